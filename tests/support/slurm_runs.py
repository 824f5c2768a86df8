"""Runs on the real Slurm of tests/cluster, mostly with the spin framework."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import OK, RECORD_FILE, Record
from dlperf_slurm.jobs.journal import SUBMITTED, read_journal
from dlperf_slurm.jobs.run_directory import Run, make_job_name
from support.frozen_code import put_spin_as
from support.quick_tasks import make_quick_venv
from support.tool import await_that, run_tool, set_values, stage

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "tests" / "cluster" / "testcluster.toml"
# the shortest polls of a site, so that tests see a state soon
QUICK_POLLS = ("tracking.poll_seconds=1", "tracking.slowest_poll_seconds=1")
# the spin framework has no peak; measuring one would load torch on every node for seconds
NO_PEAKS = 'env.DLPERF_SLURM_PEAKS="0"'
MATRIX = """\
[model]
name = "resnet50"
{sizes}

[axes]
framework = "pytorch"
topology = [{topologies}]
batch_size_per_device = {batch_size}

[protocol]
repeats = {repeats}
warmup_steps = 2
measured_steps = {measured_steps}
{protocol}
"""
NOTHING_TO_RETRY = "no array task needs a retry"
SMALL_RESNET = "image_size = 32\nwidth = 8\nstage_blocks = [1, 1, 1, 1]\nclasses = 10"


@dataclass(frozen=True)
class Cluster:
    """A running cluster; this process's environment selects it for Slurm's client commands.

    `disk` is a small separate file system that all nodes see.
    """

    program: Path
    disk: Path
    disk_mib: int

    def call(self, *arguments: str) -> str:
        """Run a command of tests/cluster/cluster, such as `crash n2`."""
        done = subprocess.run([str(self.program), *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def has_memory_limits(self) -> bool:
        return "memory limits yes" in self.call("status")


def write_matrix(
    folder: Path,
    topologies: Sequence[str] = ("1n1g",),
    repeats: int = 1,
    sizes: str = "",
    name: str = "matrix.toml",
    batch_size: str = "2",
    protocol: str = "",
    measured_steps: int = 5,
) -> Path:
    """Write a matrix; `batch_size` is TOML text, `protocol` a further line of that table."""
    quoted = ", ".join(f'"{topology}"' for topology in topologies)
    path = folder / name
    text = MATRIX.format(
        topologies=quoted,
        repeats=repeats,
        sizes=sizes,
        batch_size=batch_size,
        protocol=protocol,
        measured_steps=measured_steps,
    )
    path.write_text(text, encoding="utf-8")
    return path


def stage_spin(
    results: Path,
    topologies: Sequence[str] = ("1n1g",),
    repeats: int = 1,
    settings: Sequence[str] = (),
    **matrix: Any,
) -> Run:
    """Stage a run directory with the spin framework; `matrix` is for `write_matrix`."""
    results.mkdir(parents=True, exist_ok=True)
    path = write_matrix(results, topologies, repeats, **matrix)
    run = stage_matrix(path, results, *QUICK_POLLS, NO_PEAKS, *settings)
    put_spin_as("pytorch", run.path / "code")
    return run


def start_spin(gate: Path, results: Path, *arguments: Any, **options: Any) -> Run:
    """Submit what `stage_spin` stages, and wait until a first rank 0 waits for the file `gate`."""
    run = stage_spin(results, *arguments, **options)
    submit(run, SPIN_WAIT_FOR=str(gate))
    await_that(lambda: sum(count_starts_of_rank_0(run)) == 1, "one runs")
    return run


def stage_matrix(matrix: Path, results: Path, *settings: str) -> Run:
    """Stage a run directory on the test cluster's site with these settings."""
    words = [str(matrix), "--site", str(SITE), "--results", str(results)]
    return stage([*words, *set_values(*settings)], CHECKOUT)


def stage_quick(
    folder: Path, settings: Sequence[str], repeats: int, seconds: float = 0.2, batch_size: str = "2"
) -> Run:
    """Stage a run directory of fast fake array tasks, each measuring for this many seconds."""
    matrix = write_matrix(folder, repeats=repeats, batch_size=batch_size)
    return stage_matrix(matrix, folder / "results", *set_up_quick(folder, seconds), *settings)


def build_quick_submit(folder: Path, *settings: str, repeats: int = 1) -> list[str]:
    """Return the words of `submit` for a matrix of fast fake array tasks below a folder."""
    words = ["submit", str(write_matrix(folder, repeats=repeats)), "--site", str(SITE)]
    words += ["--results", str(folder / "results")]
    return words + set_values(*set_up_quick(folder), *settings)


def set_up_quick(folder: Path, seconds: float = 0.2) -> list[str]:
    """Make an environment of fast fake array tasks below a folder; return settings with it."""
    venv = make_quick_venv(folder / "environment", seconds)
    return [f"environments.pytorch.venv={json.dumps(str(venv))}", "directives=[]", *QUICK_POLLS]


def submit(run: Run, *options: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Call `resume` in the checkout, whose code the ranks must not import instead of the run's."""
    return run_tool(["resume", str(run.path), *options], CHECKOUT, env)


def wait(run: Run) -> "subprocess.CompletedProcess[str]":
    return run_tool(["wait", str(run.path)], CHECKOUT)


def ask(*command: str) -> str:
    """Return the standard output of a client command of Slurm."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def count_array_tasks_in_accounting(run: Run) -> int:
    """Count the array tasks in accounting under the names of the run's groups."""
    names = ",".join(f"{run.run_id}.{group_id}" for group_id in run.list_group_ids())
    command = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID"]
    return len(ask(*command, "--starttime=now-1hours", f"--name={names}").split())


def assert_array_tasks_in_accounting(run: Run, expected: int) -> None:
    """Assert the number of array tasks in accounting, which lags by seconds."""
    await_that(lambda: count_array_tasks_in_accounting(run) >= expected, "accounting knows them")
    assert count_array_tasks_in_accounting(run) == expected


def count_starts_of_rank_0(run: Run) -> list[int]:
    """Return how often each array task of the run has started, in order."""
    folders = [run.path / task.attempt_dir for task in run.read_all_tasks()]
    return [
        sum(file.read_text().split("\n").count("rank 0") for file in folder.glob("**/starts"))
        for folder in folders
    ]


def read_records(run: Run) -> list[Record]:
    """Read the record of the first start of each array task, in order."""
    starts = [run.path / task.attempt_dir / "s0" for task in run.read_all_tasks()]
    return [read_json(start / RECORD_FILE, Record) for start in starts]


def list_valid_records(run: Run) -> list[tuple[str, ...]]:
    """Return the case and the repeat of each valid record."""
    paths = run.path.glob(f"cases/*/r*/a*/s*/{RECORD_FILE}")
    return [path.parts[-5:-3] for path in paths if read_json(path, Record).status == OK]


def await_ranks(run: Run, *starts: int) -> None:
    """Wait until the array tasks have started this often."""
    await_that(lambda: count_starts_of_rank_0(run) == list(starts), f"starts of ranks: {starts}")


def find_array_job(run: Run, group_id: str = "1n1g") -> str:
    """Return the journaled id of a group's array job."""
    (event,) = (
        event
        for event in read_journal(run.path)
        if event.event == SUBMITTED and event.group_id == group_id
    )
    return event.array_job_id


def list_queue(run: Run) -> dict[str, str]:
    """Return the states of the run's array tasks in the queue that have not ended, by id."""
    names = ",".join(
        make_job_name(run.run_id, path.stem) for path in run.path.glob("scripts/*.tasks")
    )
    output = ask("squeue", "--noheader", "--array", "--format=%i %T", f"--name={names}")
    return dict(line.split() for line in output.splitlines())


def kill_controller(run: Run) -> None:
    """Kill slurmctld once it has saved the run's jobs, and wait until it is gone.

    It saves every few seconds, and a job that it has not saved is lost.
    """
    testbed = Path(os.environ["SLURM_TESTBED"])
    saved = testbed / "state" / "job_state"
    name = run.run_id.encode()
    await_that(lambda: saved.exists() and name in saved.read_bytes(), "slurmctld has saved the job")
    (line,) = (testbed / "run" / "slurmctld.pid").read_text().splitlines()
    pid = int(line.split()[0])
    os.kill(pid, signal.SIGKILL)
    await_that(lambda: not is_there(pid), "slurmctld is gone")


def is_there(pid: int) -> bool:
    """Return whether a process lives; a zombie does not."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def write_wrapper(bin_dir: Path, name: str, script: str) -> str:
    """Write a wrapper of a Slurm program; return a PATH with it. $real is the real one.

    `sbatch --test-only` always calls the real one.
    """
    real = shutil.which(name)
    assert real is not None, f"{name} is not on PATH"
    bin_dir.mkdir(exist_ok=True)
    path = bin_dir / name
    asked = 'if [ "$1" = --test-only ]; then exec "$real" "$@"; fi'
    path.write_text(f"#!/bin/bash\nreal={real}\n{asked}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return f"{bin_dir}{os.pathsep}{os.environ['PATH']}"
