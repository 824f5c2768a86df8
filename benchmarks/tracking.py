"""CPU time, memory and opened files of tracking a run of 100,000 array tasks, with targets.

The run has no case folders: its states come from its journal, its markers, and a stub squeue that
prints one line for all pending tasks of a job, as Slurm does.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rows import Row, print_rows

from dlperf_slurm.jobs.attempts import fingerprint_attempt
from dlperf_slurm.jobs.journal import Event, append_events
from dlperf_slurm.jobs.run_directory import RunTask, make_job_name, open_run
from dlperf_slurm.scheduler.queue import HEADING, SEPARATOR

TASKS = 100_000
GROUPS = 10
CASES = 1_000
STATES = ("all pending", "half finished", "all finished")
WHY_SECONDS = (
    "the journal of all that has ended is read and counted, and each array task's state is decided"
)
WHY_MIB = (
    "the state of each array task by its name; it was 225 MiB with the journal parsed as a whole"
)
MATRIX = Path(__file__).parents[1] / "matrices" / "quickstart.toml"

# programs for a separate process, which measure themselves without their own start-up
STATUS = """\
import resource, sys, time
opened = 0
def count(event, arguments):
    global opened
    opened += event in ("open", "os.scandir", "os.listdir")
import argparse
from pathlib import Path
from dlperf_slurm.cli import runs
from dlperf_slurm.reports import progress
from dlperf_slurm.scheduler.track import Tracker
sys.addaudithook(count)
def measure():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)
"""
ONCE = (
    STATUS
    + """\
before = measure()
options = {"run": sys.argv[1], "results": Path(), "json": False, "exit_code": False}
runs.run_status(argparse.Namespace(**options))
figures = [measure() - before, opened, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
print(*figures, file=sys.stderr)
"""
)
POLL = (
    STATUS
    + """\
from dlperf_slurm.jobs.run_directory import open_run
tracker = Tracker(open_run(Path(sys.argv[1])))
tracker.refresh(ask_scheduler=True)
before, opened = measure(), 0
tracker.refresh(ask_scheduler=True)
figures = [measure() - before, opened, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
print(*figures, file=sys.stderr)
"""
)


def make_run(folder: Path, state: str, tasks: int = TASKS) -> Path:
    """Make a run with none, half or all of its array tasks journaled as completed.

    `folder` also gets a `bin` with the stub squeue, which prints the tasks that have not ended.
    """
    words = [sys.executable, "-m", "dlperf_slurm", "render", str(MATRIX), "--site", "local"]
    done = subprocess.run(
        [*words, "--results", str(folder)], check=True, capture_output=True, text=True
    )
    run = Path(re.findall(r"resume (\S+)", done.stdout)[0])
    _write_manifest(run, tasks)
    for path in (run / "scripts").glob("*.tasks"):
        path.unlink()
    size = tasks // GROUPS
    ended = {"all pending": 0, "half finished": size // 2, "all finished": size}[state]
    time = "2024-05-01T00:00:00Z"
    events: list[dict[str, Any]] = []
    queue = []
    (run / "markers").mkdir(exist_ok=True)
    prints = _list_prints(run)
    for group in range(GROUPS):
        name, job_id = f"1n1g-b{group}", str(group + 1)
        numbers = range(group * size, (group + 1) * size)
        folders = (f"cases/case{n % CASES}/r{1 + n // CASES}/a1" for n in numbers)
        lines = (f"pytorch\t{folder}\tlocal\t-\t0\t0" for folder in folders)
        (run / "scripts" / f"{name}.tasks").write_text("\n".join(lines) + "\n", encoding="utf-8")
        events += [
            {"event": event, "time": time, "group_id": name, "array_job_id": job_id}
            for event in ("staged", "submitted")
        ]
        for index in range(ended):
            ending: dict[str, Any] = {
                "event": "state",
                "state": "COMPLETED",
                "array_task_id": index,
                "start": 0,
            }
            ending["files"] = f"{prints[(group * size + index) % CASES]} 0e 0s"
            events.append({**ending, "group_id": name, "array_job_id": job_id, "time": time})
            (run / "markers" / f"{name}.{index}.s0.finished").touch()
        if ended < size:
            tasks_left = f"{job_id}_[{ended}-{size - 1}%100]"
            job_name = make_job_name(run.name, name)
            cells = (tasks_left, "PENDING", "", "Priority", job_name, str(os.geteuid()), "")
            queue.append(SEPARATOR.join(cells))
    (run / "journal.jsonl").unlink()
    append_events(run, [Event(**event, host="login") for event in events])
    _write_clients(folder / "bin", "\n".join([SEPARATOR.join([HEADING] * 7), *queue]))
    return run


def _list_prints(run: Path) -> list[str]:
    """Return the fingerprint of each case's files; if it differs, a state is decided again."""
    opened = open_run(run)
    return [
        fingerprint_attempt(opened, case, RunTask("", 0, f"cases/{case.case_id}/r1/a1"))
        for case in opened.manifest.cases
    ]


def _write_manifest(run: Path, tasks: int) -> None:
    path = run / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    case = {**manifest["cases"][0], "repeats": tasks // CASES, "reason": ""}
    manifest["cases"] = [{**case, "case_id": f"case{number}"} for number in range(CASES)]
    manifest["scheduler"] = "slurm"
    path.write_text(json.dumps(manifest), encoding="utf-8")


def _write_clients(bin_dir: Path, queue: str) -> None:
    """Write a stub squeue, which prints `queue`, and a stub sacct, which prints nothing."""
    bin_dir.mkdir()
    table = bin_dir / "queue.txt"
    table.write_text(queue + "\n", encoding="utf-8")
    for name, script in (("squeue", f"exec /bin/cat {table}"), ("sacct", "exit 0")):
        program = bin_dir / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)


def measure(program: str, run: Path) -> tuple[float, int, float]:
    """Return CPU seconds, opened files and folders, and peak MiB of a process that reads a run."""
    path = f"{run.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(run)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path},
    )
    seconds, opened, mib = map(float, done.stderr.splitlines()[-1].split())
    return seconds, int(opened), mib


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 4, whose programs read a run once each."""
    tasks = TASKS // 10 if is_quick else TASKS
    rows = []
    for state in STATES:
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder), state, tasks)
            for name, program, most_seconds in (("status", ONCE, 2.0), ("poll", POLL, 1.0)):
                seconds, opened, mib = measure(program, run)
                figures = (
                    ("", seconds, "CPU s", most_seconds, WHY_SECONDS),
                    (": files and folders opened", opened, "", 200.0, ""),
                    (": memory", mib, "MiB", 200.0, WHY_MIB),
                )
                rows += [
                    Row(
                        *(4, f"{name} of {tasks:,} array tasks, {state}{what}", measured, unit),
                        target=target,
                        why_missed=why,
                    )
                    for what, measured, unit, target, why in figures
                ]
    return rows


if __name__ == "__main__":
    print_rows(measure_rows)
