"""A results folder -> its runs and their entries: results, software and machine of each case.

An entry is one case of one run, a row of the data frame with the columns ENTRIES.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.record import Record
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import ARCHIVE_SUFFIX, has_file
from dlperf_slurm.jobs.journal import JOURNAL_FILE, Event, read_journal
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, Manifest
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, Run, open_run
from dlperf_slurm.results.collect import CaseOutcomes, collect_outcomes
from dlperf_slurm.results.columns import COUNT, LISTS, TEXT, make_frame_of_values
from dlperf_slurm.results.comparability import list_surroundings, list_work
from dlperf_slurm.results.compare import IDENTITY, list_identity
from dlperf_slurm.results.history.node_facts import (
    list_contests,
    list_node_failures,
    list_sound_repeats,
)
from dlperf_slurm.results.repeats import classify_problem

if TYPE_CHECKING:
    from pandas import DataFrame

# other contents of a run directory: if any exists without a manifest, the run is incomplete
_SIGNS = (JOURNAL_FILE, SCRIPTS_DIR, "cases")
# machine facts that are also software versions
_DRIVERS = ("gpu_driver", "cuda_driver")


@dataclass(frozen=True)
class ResultsFolder:
    """The run directories (or archives) of a results folder, by name, and one line per problem."""

    runs: tuple[Path, ...]
    problems: tuple[str, ...]


def list_runs(results_dir: Path) -> ResultsFolder:
    """List the runs of a results folder; InputError if the folder cannot be read.

    Other files and folders are ignored. A run with a second name (a symbolic link) counts once.
    """
    runs: dict[Path, Path] = {}
    problems = []
    try:
        paths = sorted(path for path in results_dir.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"{results_dir}: cannot be read: {error.strerror}") from error
    for path in paths:
        try:
            path.name.encode()
            if (path / MANIFEST_FILE).is_file() or _is_archive(path, paths):
                runs.setdefault(path.resolve(), path)
            elif any((path / name).exists() for name in _SIGNS):
                problems.append(f"{path}: has no {MANIFEST_FILE}: the run is incomplete")
        except UnicodeEncodeError:
            problems.append(f"{str(path)!a}: left out, as its name is not valid UTF-8")
        except FileProblem as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
    return ResultsFolder(tuple(runs.values()), tuple(problems))


def _is_archive(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a path is the archive of a run whose directory is not among `paths` too."""
    if path.suffix != ARCHIVE_SUFFIX or path.with_suffix("") in paths:
        return False
    return path.is_file() and has_file(path / MANIFEST_FILE, path)


# The columns of the data frame of entries: one row per case of a run, as planned. `state` is the
# reason for a missing result (failed, OOM, invalid, missing), `problem` the problems of repeats.
# Without a valid record these are empty: `parameters` (sizes of the model), `work` and
# `surroundings` (see `list_work`, `list_surroundings`), and `versions` (software versions).
# `node_contests`: see `list_contests`; `node_sound`: see `list_sound_repeats`;
# `node_failures`: node, time and reason of each node failure.
ENTRIES: dict[str, str] = {
    "run_dir": TEXT,
    "run_id": TEXT,
    "created_at": TEXT,
    "site_name": TEXT,
    "tool": TEXT,
    **IDENTITY,
    "planned_repeats": COUNT,
    "samples_per_s": LISTS,
    "state": TEXT,
    "problem": TEXT,
    "parameters": TEXT,
    "work": TEXT,
    "surroundings": TEXT,
    "versions": TEXT,
    "node_contests": TEXT,
    "node_sound": TEXT,
    "node_failures": TEXT,
}
# the columns with JSON
FACTS = tuple(ENTRIES)[tuple(ENTRIES).index("work") :]
# the values of an entry, in the order of ENTRIES
EntryRow = tuple[Any, ...]


def read_entries(run_dir: Path) -> list[EntryRow]:
    """Read the entries of a run: one per case that was not left out.

    Raises InputError if the run cannot be read.
    """
    try:
        run = open_run(run_dir)
        cases = collect_outcomes(run)
        failures = list_failures_by_case(run)
        entries = [
            add_failures(make_entry(run_dir, run.manifest, c), failures.get(c.case.case_id, []))
            for c in cases
            if not c.case.reason
        ]
        check_entries(run.manifest, entries)
        return entries
    except (OSError, RecursionError, ValueError, LookupError) as error:
        # a damaged run must not hide the other runs
        raise InputError(f"{run_dir}: cannot be read as a run: {error!r}") from error


def list_failures_by_case(run: Run) -> dict[str, list[list[str]]]:
    """List [node, time, reason] of the node failures in a run's journal, by affected case id."""
    cases = {task.marker: task.case_id for task in run.read_all_tasks()}
    by_case: dict[str, list[Event]] = {}
    for event in read_journal(run.path):
        case_id = cases.get(f"{event.group_id}.{event.array_task_id}", "")
        by_case.setdefault(case_id, []).append(event)
    return {case_id: list_node_failures(events) for case_id, events in by_case.items()}


def check_entries(manifest: Manifest, entries: Sequence[EntryRow]) -> None:
    """Raise ValueError if entries have text, times or rates that cannot be printed or plotted."""
    if entries:
        parse_time(manifest.created_at)
    # JSON may contain lone surrogates, which cannot be encoded
    _write_json(entries).encode()


def add_failures(entry: EntryRow, node_failures: Sequence[list[str]]) -> EntryRow:
    """Return an entry with these rows of `list_node_failures` in its last column."""
    return (*entry[:-1], _write_json([*node_failures]))


def make_entry(run_dir: Path, manifest: Manifest, outcomes: CaseOutcomes) -> EntryRow:
    """Make the entry of a case of a run, without failures of nodes (`add_failures`)."""
    case, records = outcomes.case, outcomes.records
    problems = dict.fromkeys(o.problem for o in outcomes.outcomes if o.problem)
    facts = (
        list_work(records) if records else {},
        list_surroundings(records) if records else {},
        _list_versions(records),
        list_contests(records),
        list_sound_repeats(records),
    )
    planned = case.blocks if outcomes.has_blocks else case.repeats
    return (
        *(str(run_dir), manifest.run_id, manifest.created_at, manifest.site_name, manifest.tool),
        *list_identity(case),
        0 if case.reason else planned,
        [*outcomes.units],
        "" if records else _name_state(outcomes),
        "; ".join(problems),
        json.dumps(records[0].case.model_parameters, sort_keys=True) if records else "",
        *map(_write_json, facts),
        "[]",
    )


def _write_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# cached, because runs have many facts in common: callers must not modify the result
read_facts: Callable[[str], Any] = lru_cache(maxsize=None)(json.loads)


def make_entry_frame(rows: Sequence[EntryRow]) -> "DataFrame":
    """Build the data frame of entries."""
    return make_frame_of_values(ENTRIES, rows)


def _name_state(outcomes: CaseOutcomes) -> str:
    """Name the reason for a missing result: "not run", or the worst problem of the repeats."""
    if outcomes.case.reason:
        return "not run"
    return classify_problem(*(outcome.problem for outcome in outcomes.outcomes))


def _list_versions(records: Sequence[Record]) -> dict[str, list[str]]:
    """List the distinct values of each software version over the records of a case."""
    names = dict.fromkeys(name for record in records for name in record.versions)
    return {
        name: sorted({record.versions[name] for record in records if name in record.versions})
        for name in names
    }


def describe_software(versions: str, surroundings: str, tool: str) -> str:
    """Describe the software of an entry: "pytorch 2.4, gpu_driver 550.54, dlperf_slurm 1.0".

    The first two parameters are JSON texts of the columns of the same name; `tool` is the version
    of this tool.
    """
    around = read_facts(surroundings)
    drivers = {name: around[name] for name in _DRIVERS if name in around}
    facts = {**read_facts(versions), **drivers, "dlperf_slurm": [tool]}
    return ", ".join(f"{name} {' and '.join(values)}" for name, values in facts.items())
