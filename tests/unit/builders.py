"""Builders of values for tests, with small valid defaults; each call changes what it names."""

import csv
import dataclasses
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy
from support.cases import vary

import dlperf_slurm
from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import FAILED, OK, RECORD_FILE, Clock, Failure, RankResult, Record
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.grouping import ArrayTask, Group, group_array_tasks
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.manifest import Manifest, PlannedCase
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.run_directory import CASES_FILE, CODE_DIR, HARNESS_FILE, Run, RunTask
from dlperf_slurm.jobs.task_tables import format_case
from dlperf_slurm.matrix.axes import make_case_id
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import serialize_csv
from dlperf_slurm.scheduler.submitter import Submitter

# PYTHONPATH of processes that start in another folder
IMPORT_DIR = str(Path(dlperf_slurm.__file__).parents[1])

HARNESS = find_resource_dir("templates") / "harness.sh"

SMALL_MATRIX = """\
title = "Small"
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = ["1n1g", "1n2g", "2n2g"]
batch_size_per_device = 8
[protocol]
repeats = 2
warmup_steps = 3
measured_steps = 10
"""


def copy_run(run: Path, folder: Path) -> Path:
    """Copy a run directory; the frozen code, which no test changes, is shared by hard links."""

    def copy(source: str, target: str) -> None:
        is_code = Path(source).is_relative_to(run / CODE_DIR)
        (os.link if is_code else shutil.copy2)(source, target)

    return Path(shutil.copytree(run, folder, copy_function=copy))


def write_matrix(text: str = SMALL_MATRIX, path: Union[str, Path] = "matrix.toml") -> Path:
    """Write a matrix; in the working directory its path is relative, as from a user."""
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def write_program(folder: Path, name: str, script: str) -> Path:
    """Write a fake program: a /bin/sh script in a folder on PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def print_queue(*rows: str, name: str = "", script: str = "") -> str:
    """Return shell commands that print rows "id|state|nodes|reason" as squeue and sacct do."""
    rest = f"{name}|{os.geteuid()}|{script}"
    lines = ["JOBID|STATE|NODELIST|REASON|NAME|UID|COMMAND", *(f"{row}|{rest}" for row in rows)]
    return "; ".join(f"echo '{line}'" for line in lines).replace("|", "\x1f")


def show_queue(folder: Path, *rows: str, name: str = "", script: str = "") -> None:
    """Make a fake squeue print these rows of jobs with this name."""
    write_program(folder, "squeue", print_queue(*rows, name=name, script=script))


def submit_run(run: Run, report: Callable[[str], None], retry_seconds: float = 0.0) -> int:
    """Submit a run as `resume` does; return the number of array jobs."""
    submitter = Submitter(run, report, retry_seconds)
    submitter.submit()
    submitter.raise_if_unsubmitted()
    return submitter.started


def journal_submissions(run: Run) -> None:
    """Journal that the groups of a run were submitted as the array jobs 1, 2, ..."""
    for number, group_id in enumerate(run.list_group_ids(), start=1):
        append_event(run.path, Event(SUBMITTED, format_now(), group_id, str(number)))


def journal_state(run: Run, task: RunTask, state: str, detail: str = "", job_id: str = "1") -> None:
    """Journal the final state of an array task."""
    event = Event(STATE, format_now(), task.group_id, job_id, task.array_task_id, state, detail)
    append_event(run.path, event)


def make_wheel(path: Path) -> Path:
    """Make a wheel of one module, with the version in its name: tiny-1.0-py3-none-any.whl."""
    name, version, _ = path.name.split("-", 2)
    info = f"{name}-{version}.dist-info"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = {version!r}\n")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make_site(**values: Any) -> Site:
    return Site.model_validate({"scheduler": "slurm", "device": "cpu", **values})


def make_axes(topology: str = "1n1g") -> Axes:
    return Axes(framework="pytorch", topology=topology, batch_size_per_device=8)


def make_matrix_case(topology: str = "1n1g", **changes: Any) -> MatrixCase:
    case = MatrixCase(
        model="resnet50",
        model_parameters={},
        axes=make_axes(topology),
        protocol=Protocol(),
        notes=(),
    )
    return vary(case, **changes)


def make_group(site: Site, topology: str = "1n1g", repeats: int = 7) -> Group:
    """Make one array job of one case with its repeats."""
    case = make_matrix_case(topology)
    tasks = [ArrayTask(case, repeat, 1) for repeat in range(1, repeats + 1)]
    (group,) = group_array_tasks(tasks, site, max_array_size=1001)
    return group


def render_script(
    site: Site, topology: str = "2n8g", run_dir: Path = Path("/shared/run"), header: str = ""
) -> str:
    """Return the script of an array job of one case with its repeats."""
    files = render_scripts([make_group(site, topology)], site, "run", run_dir, header)
    return files[f"scripts/{topology}.sbatch"]


def list_directives(script: str) -> list[str]:
    return [line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")]


def read_launch(script: str, name: str = "pytorch") -> str:
    """Return the command that starts the ranks."""
    lines = script.splitlines()
    return lines[lines.index(f"launch_{name}() {{") + 1].strip()


def write_scripts(run_dir: Path, files: Mapping[str, str]) -> None:
    """Write rendered files and what they need in a run directory, without the worker's code."""
    for relative, text in files.items():
        (run_dir / relative).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / relative).write_text(text, encoding="utf-8")
    (run_dir / MARKERS_DIR).mkdir()
    # scripts of these tests start a python of PATH, as their environments are not there
    harness = HARNESS.read_text(encoding="utf-8") + "check_python() { :; }\n"
    (run_dir / HARNESS_FILE).write_text(harness, encoding="utf-8")


def make_case(**changes: Any) -> Case:
    """Make a case of 1n2g, 8 samples per device, 10 measured steps: 160 samples in the window."""
    case = Case(
        run_id="run",
        case_id="pytorch-resnet50-1n2g-bs8-fp32",
        repeat=1,
        attempt=1,
        axes=make_axes("1n2g"),
        model="resnet50",
        model_parameters={},
        device="cpu",
        cpus_per_rank=1,
        warmup_steps=3,
        measured_steps=10,
        seed=1,
    )
    return vary(case, **changes)


def make_rank(rank: int = 0, **changes: Any) -> RankResult:
    result = RankResult(
        rank=rank,
        local_rank=rank,
        host="node1",
        device_name="cpu",
        window_seconds=2.0,
        peak_memory_bytes=1 << 20,
        final_loss=6.9,
    )
    return dataclasses.replace(result, **changes)


def make_ranks(case: Case, window_seconds: float = 2.0) -> tuple[RankResult, ...]:
    """Make one valid result for each rank of the case's topology."""
    return tuple(
        make_rank(
            rank,
            local_rank=rank % case.devices_per_node,
            host=f"node{rank // case.devices_per_node + 1}",
            window_seconds=window_seconds,
        )
        for rank in range(case.world_size)
    )


def make_record(case: Optional[Case] = None, window_seconds: float = 2.0, **changes: Any) -> Record:
    case = case or make_case()
    record = Record(
        status=OK,
        reason="",
        case=case,
        started_at="2024-05-01T12:00:00Z",
        ended_at="2024-05-01T12:01:00Z",
        parameter_count=25_557_032,
        clock=Clock("host", 1e-7),
        ranks=make_ranks(case, window_seconds),
        failures=(),
        versions={"torch": "2.13.0"},
        platform={"python": "3.11"},
        job={},
    )
    return dataclasses.replace(record, **changes)


def make_failed_record(
    case: Optional[Case] = None,
    status: str = FAILED,
    reason: str = "rank 1 on node1: ValueError: x",
) -> Record:
    failure = Failure(1, "node1", "ValueError", "x", "Traceback", False)
    return make_record(case, status=status, reason=reason, ranks=(), failures=(failure,))


def read_case(run: Run, task: RunTask) -> Case:
    """Read the case of an array task, as the worker does."""
    return read_planned_case(run.path, read_again(run, task))


def read_again(run: Run, task: RunTask) -> RunTask:
    """Read an array task from its table again, as the offset of its case may have changed."""
    return run.read_tasks(task.group_id)[task.array_task_id]


def replace_case(run: Run, task: RunTask, case: Case) -> None:
    """Replace the planned case of this array task, and of the others of the same case."""
    start = read_again(run, task).case_offset
    rewrite_cases(run.path, lambda offset, line: format_case(case) if offset == start else line)


def rewrite_cases(path: Path, change: Callable[[int, str], str]) -> None:
    """Change lines of a run's cases file by offset and text; update the offsets in the tables."""
    lines, offsets, place, size = [], {}, 0, 0
    for line in (path / CASES_FILE).read_text(encoding="utf-8").splitlines():
        offsets[str(place)] = str(size)
        lines.append(change(place, line) + "\n")
        place += len(line.encode()) + 1
        size += len(lines[-1].encode())
    (path / CASES_FILE).write_text("".join(lines), encoding="utf-8")
    for table in path.glob("scripts/*.tasks"):
        rows = [row.split("\t") for row in table.read_text(encoding="utf-8").splitlines()]
        texts = ("\t".join([*row[:5], offsets[row[5]], *row[6:]]) + "\n" for row in rows)
        table.write_text("".join(texts), encoding="utf-8")


def find_task(run: Run, topology: str, repeat: int = 1) -> RunTask:
    (task,) = (t for t in run.read_tasks(topology) if t.repeat == repeat)
    return task


def find_start_dir(run: Run, task: RunTask) -> Path:
    """Return the folder of the first start of an array task."""
    return run.path / task.attempt_dir / "s0"


def write_record(run: Run, task: RunTask, record: Record) -> Path:
    path = find_start_dir(run, task) / RECORD_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return path


def make_planned_case(topology: str = "1n1g", **changes: Any) -> PlannedCase:
    case = PlannedCase(
        case_id="", model="resnet50", axes=make_axes(topology), repeats=3, notes=(), reason=""
    )
    return name_case(vary(case, **changes))


def name_case(case: PlannedCase) -> PlannedCase:
    """Return the case, with the id of a matrix if it has none."""
    return dataclasses.replace(case, case_id=case.case_id or make_case_id(case.model, case.axes))


def make_manifest(**changes: Any) -> Manifest:
    manifest = Manifest(
        run_id="20240501-120000-small-tiny-abcd",
        title="Small",
        matrix_name="small",
        site_name="tiny",
        scheduler="slurm",
        created_at="2024-05-01T12:00:00Z",
        created_by="alice",
        created_on="login1",
        command=("dlperf-slurm", "submit", "small.toml"),
        tool_version="0.1.0",
        tool_git="abc1234",
        poll_seconds=30.0,
        slowest_poll_seconds=180.0,
        lost_after_seconds=300.0,
        cases=(),
    )
    return dataclasses.replace(manifest, **changes)


def make_outcomes(
    planned: PlannedCase,
    samples_per_s: Sequence[float] = (),
    problems: Sequence[str] = (),
    batch_seconds: Sequence[float] = (),
    found_batch_size: int = 8,
    **record_changes: Any,
) -> CaseOutcomes:
    """Make a case whose first repeats measured these throughputs, and whose last have problems.

    All measured repeats have the same latencies, and `found_batch_size` if the case searches it.
    The latencies are step times of one rank.
    """
    axes = planned.axes
    if axes.has_batch_search:
        axes = dataclasses.replace(axes, batch_size_per_device=found_batch_size)
    case = make_case(case_id=planned.case_id, axes=axes)
    samples = case.global_batch_size * case.measured_steps
    outcomes = [
        Outcome(
            planned.case_id,
            repeat,
            make_record(case, samples / rate, **record_changes),
            "",
            numpy.array([batch_seconds]) if len(batch_seconds) else None,
        )
        for repeat, rate in enumerate(samples_per_s, start=1)
    ]
    first = len(outcomes) + 1
    outcomes += [
        Outcome(planned.case_id, repeat, None, problem)
        for repeat, problem in enumerate(problems, start=first)
    ]
    return CaseOutcomes(planned, tuple(outcomes))


def read_csv(summary: Summary) -> list[dict[str, str]]:
    """Return the rows of the CSV report."""
    return list(
        csv.DictReader(io.StringIO(serialize_csv(summary.results.case_columns), newline=""))
    )


def run_main(arguments, capsys):
    """Run a command of the tool; return its exit code, standard output and standard error."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def give_to_another_user(monkeypatch, path):
    """Let a path seem to belong to user 4242, who has no name here; only root could give it."""
    absolute = path.absolute()
    lstat = Path.lstat

    def look(one):
        status = lstat(one)
        return (
            os.stat_result((*status[:4], 4242, *status[5:]))
            if one.absolute() == absolute
            else status
        )

    monkeypatch.setattr(Path, "lstat", look)
