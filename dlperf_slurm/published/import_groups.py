"""Imported runs -> one run per job, and labels that distinguish cases of several machines."""

import hashlib
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from dlperf_slurm.contract.record import OK
from dlperf_slurm.files.reading import open_file
from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.runs import ImportedRun
from dlperf_slurm.logs.settings import ALL_SETTINGS, CASE_SETTINGS
from dlperf_slurm.published.grouping import group_by

SECONDS_PER_DAY = 86400.0

# workerlog.3, rank_3.log, log-rank3.txt, trainer.3
_RANK = re.compile(r"(?<![a-z])(workerlog|rank|trainer|worker|task|proc)[._-]?(\d{1,6})(?!\d)")
_READ_BYTES = 1 << 20


def join_ranks(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """Merge the logs that the ranks of one job wrote, so that each job has one run.

    Such logs are identical copies, or their names differ only in a rank (`workerlog.0`,
    `workerlog.1`) and their times overlap. Of a job's runs a failed one is kept, else the slowest.
    """
    left: list[ImportedRun] = []
    for same in group_by(runs, lambda run: _hash_file(run.path)).values():
        # only files of a single run can be copies
        are_files = len({run.path for run in same}) == len(same)
        left += [_join(same, "copies of one log")] if are_files else same
    joined: list[ImportedRun] = []
    for same in group_by(left, _name_job).values():
        for together in _split_by_time(same):
            joined.append(_join(together, "the logs of the ranks of one run"))
    order = {run.log: index for index, run in enumerate(runs)}
    return sorted(joined, key=lambda run: order[run.log])


def _hash_file(path: Path) -> str:
    """Return the SHA-256 digest of a file, or its path as text if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            for chunk in iter(lambda: file.read(_READ_BYTES), b""):
                digest.update(chunk)
    except OSError:
        return str(path)
    return digest.hexdigest()


def _name_job(run: ImportedRun) -> Hashable:
    """Return a key that is equal for logs of one job's ranks; the log's own name if it has no rank.

    The key has the folder, the name without the rank, the format and all settings.
    """
    name = run.path.name.lower()
    if "#" in run.log or not _RANK.search(name):
        return run.log
    settings = tuple(getattr(run.identity, setting) for setting in ALL_SETTINGS)
    return run.path.parent, _RANK.sub(r"\1", name), run.format_name, settings


def _split_by_time(runs: Sequence[ImportedRun]) -> list[list[ImportedRun]]:
    """Split runs into groups whose times overlap; a run without times joins the group before it."""
    groups: list[list[ImportedRun]] = []
    for run in sorted(runs, key=lambda run: run.started):
        last = max((one.ended for one in groups[-1]), default=0.0) if groups else 0.0
        if groups and (not run.started or not last or run.started <= last):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _join(runs: Sequence[ImportedRun], what: str) -> ImportedRun:
    """Return one run for several that are the same: a failed one, else the slowest.

    A note lists all files; `what` says what these are, such as "copies of one log".
    """
    if len(runs) == 1:
        return runs[0]
    chosen = min(runs, key=lambda run: (run.status == OK, run.samples_per_s or 0.0))
    names = ", ".join(run.path.name for run in runs)
    return replace(
        chosen, notes=(*chosen.notes, f"{len(runs)} files are {what}, imported once: {names}")
    )


def label_runs(runs: Sequence[ImportedRun]) -> list[str]:
    """Return a label for each run, which distinguishes it from runs with the same settings.

    It has the hardware, software and date that differ among these, as in "on V100 of 2020-08-26";
    "" if nothing differs. Hardware that differs anywhere among runs of a model and format is in all
    their labels. Runs that start within a day of the previous run's end have the same date.
    """
    labels = [""] * len(runs)
    days = _name_days(runs)
    for parts, is_of_case in (
        (lambda identity: f"on {identity.hardware or 'unknown hardware'}", False),
        (lambda identity: f"with {identity.software or 'unknown software'}", True),
        (_name_unstated, True),
    ):
        for indices in _group_indices(runs, is_of_case):
            names = [parts(runs[index].identity) for index in indices]
            if len(set(names)) > 1:
                for index, name in zip(indices, names):
                    labels[index] = f"{labels[index]} {name}".strip()
    for indices in _group_indices(runs, True):
        for same in group_by(indices, labels.__getitem__).values():
            if len({days[index] for index in same}) > 1:
                for index in same:
                    labels[index] = f"{labels[index]} {days[index]}".strip()
    return labels


def _group_indices(runs: Sequence[ImportedRun], is_of_case: bool) -> list[list[int]]:
    """Group the indices of runs that share format, framework and model.

    With `is_of_case` they share all settings, so that a group is a case.
    """
    names = ALL_SETTINGS if is_of_case else ("framework", "model")

    def find_key(index: int) -> Hashable:
        run = runs[index]
        values = (getattr(run.identity, name) or CASE_SETTINGS.get(name) for name in names)
        return (run.format_name, *values)

    return list(group_by(range(len(runs)), find_key).values())


def _name_unstated(identity: Identity) -> str:
    """Return the settings that a log does not state: "with data not stated in the log", or ""."""
    unstated = [name for name in CASE_SETTINGS if not getattr(identity, name)]
    return f"with {' and '.join(unstated)} not stated in the log" if unstated else ""


def _name_days(runs: Sequence[ImportedRun]) -> list[str]:
    """Return the date of each run's series: runs with the same settings, less than a day apart.

    A series that goes on past midnight has the date on which it began.
    """
    days = [f"of {run.identity.date}" if run.identity.date else "undated" for run in runs]
    for indices in _group_indices(runs, True):
        timed = sorted((i for i in indices if runs[i].started), key=lambda i: runs[i].started)
        for before, after in zip(timed, timed[1:]):
            if runs[after].started <= runs[before].ended + SECONDS_PER_DAY:
                days[after] = days[before]
    return days


def describe_provenance(runs: Sequence[ImportedRun]) -> list[str]:
    """Return notes on the hardware, software and dates that the logs of a case state, or do not."""
    told, untold = [], []
    for name in ("hardware", "software", "date"):
        values = list(dict.fromkeys(getattr(run.identity, name) for run in runs))
        known = [value for value in values if value]
        if known:
            told.append(f"{name} {' and '.join(known)}")
        if len(known) < len(values):
            untold.append(name)
    notes = []
    if told:
        notes.append(f"from the logs or their folder: {'; '.join(told)}")
    if untold:
        several = "; they may differ between the repeats" if len(runs) > 1 else ""
        notes.append(f"not stated in the logs or their folder: {' and '.join(untold)}{several}")
    return notes
