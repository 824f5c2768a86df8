"""Profiles of `submit --profile` -> a table with links, and what the profiler cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import OK, RECORD_FILE, Record
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import list_names
from dlperf_slurm.jobs.attempts import list_starts
from dlperf_slurm.jobs.profiles import PROFILED_REPEAT, PROFILERS
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.number_formats import MILLISECONDS, SHARE

if TYPE_CHECKING:
    from pandas import DataFrame

HEADER = ("case", "profiler", "step (ms)", "with profiler (ms)", "slower by", "files")


class Profile(NamedTuple):
    """A profile of a case; `folder` is relative to the run directory."""

    case_id: str
    tool: str
    folder: Path
    record: Record


def list_profiles(run: Run) -> list[Profile]:
    """Read the record of each profile of a run; profiles without a readable record are left out."""
    found = []
    for task in run.read_all_tasks():
        if task.repeat != PROFILED_REPEAT:
            continue
        for start in list_starts(run.path / task.attempt_dir, run.path):
            names = list_names(start.path, run.path)
            for tool in PROFILERS:
                name = f"profile-{tool}"
                if name not in names:
                    continue
                folder = start.path / name
                try:
                    record = read_json(folder / RECORD_FILE, Record, run.path)
                except (FileNotFoundError, FileProblem):
                    continue
                found.append(Profile(task.case_id, tool, folder.relative_to(run.path), record))
    return found


def make_profile_table(profiles: Sequence[Profile], cases: "DataFrame") -> Table:
    """Make the table of a run's profiles, which compares each with the median of its case."""
    rows = [_make_row(profile, cases.samples_per_s[profile.case_id]) for profile in profiles]
    return make_table(
        "profiles",
        HEADER,
        rows,
        2,
        "steps that a case ran under a profiler after the measurement, not included in other "
        "tables; step: step time without profiler, from the median throughput of the case",
    )


def _make_row(profile: Profile, samples_per_s: float) -> list[Cell]:
    record = profile.record
    seconds = record.case.global_batch_size / samples_per_s
    with_profiler = record.window_seconds / record.steps if record.status == OK else None
    return [
        Cell(profile.case_id),
        Cell(profile.tool),
        Cell(seconds, MILLISECONDS),
        Cell(with_profiler, MILLISECONDS, problem="failed"),
        Cell(with_profiler and with_profiler / seconds - 1, SHARE, problem="failed"),
        Cell(str(profile.folder), link=f"../{profile.folder}"),
    ]
