"""The folder of a start -> its validated record, or what contradicts it.

All figures in tables pass this validation. It catches a record that was edited, misplaced or
miscounted; it cannot detect a run directory that was forged as a whole.
"""

import dataclasses
import errno
import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Optional, Union

from dlperf_slurm.contract.axes import INFER, Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.host_noise import HOST_NOISE_FILE, NoiseReport
from dlperf_slurm.contract.json_files import ContractError
from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.peaks import NUMBER_FORMATS, PEAKS_FILE, Peaks
from dlperf_slurm.contract.record import (
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    Record,
    find_record_problem,
)
from dlperf_slurm.contract.step_archive import SidecarFile, read_details
from dlperf_slurm.files.arrays import parse_array
from dlperf_slurm.files.reading import ARRAY_LIMIT_BYTES, JSON_LIMIT_BYTES
from dlperf_slurm.jobs.attempts import AttemptValidity, Sidecars, Start
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.decode import decode, read_json
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.record_consistency import (
    find_figure_problem,
    find_step_problem,
    find_token_problem,
)
from dlperf_slurm.jobs.run_directory import CASES_FILE, RunTask

MAX_VALUE_CHARACTERS = 60
MAX_PROBLEM_CHARACTERS = 1000
# the sidecar files that are read with a record, and their maximum sizes
_DETAILS = {
    STEP_SECONDS_FILE: ARRAY_LIMIT_BYTES,
    TOKEN_SECONDS_FILE: ARRAY_LIMIT_BYTES,
    HOST_NOISE_FILE: JSON_LIMIT_BYTES,
    PEAKS_FILE: JSON_LIMIT_BYTES,
}


class InvalidRecordError(ContractError):
    """A record that contradicts its case, its run or itself; the message names file and field."""


def read_valid_record(
    run_dir: Path, run_id: str, planned: PlannedCase, task: RunTask, start: Start
) -> AttemptValidity:
    """Read the record that one execution of a job script wrote, and validate it.

    The record of a failure is returned with a problem. Raises FileNotFoundError without a record,
    FileProblem for an unreadable one, and InvalidRecordError for one that contradicts its case, the
    manifest or itself. The message names file, field, value and expected value.
    """
    folder = start.path
    name = str(folder).removeprefix(f"{run_dir}/")
    record = read_json(folder / RECORD_FILE, Record, root=run_dir)
    asked = _read_case(run_dir, task)
    # in this order: each check relies on what the earlier ones have ensured
    differences = [
        *_find_case_problems(asked, run_id, planned, task),
        *_find_differences(record, asked),
    ]
    problem = (
        "; ".join(differences)
        or find_record_problem(record)
        or (find_figure_problem(record) if record.status == OK else "")
    )
    if problem:
        cut = problem[:MAX_PROBLEM_CHARACTERS]
        raise InvalidRecordError(f"{name}/{RECORD_FILE}: {cut}")
    if record.status != OK:
        return AttemptValidity(start, record, describe_failure(record))
    details = read_details(folder, _DETAILS, run_dir)
    seconds = _parse_steps(folder, details.get(STEP_SECONDS_FILE), record)
    problem = "" if seconds is None else find_step_problem(record, seconds)
    if problem:
        raise InvalidRecordError(f"{name}/{STEP_SECONDS_FILE}: {problem}")
    sidecars = parse_sidecars(details)
    problem = find_token_problem(record, sidecars.token_seconds, seconds)
    if problem:
        raise InvalidRecordError(f"{name}/{TOKEN_SECONDS_FILE}: {problem}")
    problem = find_sidecar_problem(sidecars, record)
    if problem:
        raise InvalidRecordError(f"{name}/{problem[:MAX_PROBLEM_CHARACTERS]}")
    return AttemptValidity(start, record, "", seconds, sidecars)


def _read_case(run_dir: Path, task: RunTask) -> Case:
    try:
        return read_planned_case(run_dir, task)
    except FileNotFoundError:
        raise ContractError(
            f"{run_dir / CASES_FILE}: is missing, so the record cannot be checked; was the "
            "whole run directory copied?"
        ) from None


def _find_case_problems(
    asked: Case, run_id: str, planned: PlannedCase, task: RunTask
) -> Iterator[str]:
    """Yield where a case in the file of cases (`asked`) contradicts run, array task or manifest."""
    expected = {
        "run_id": run_id,
        "case_id": task.case_id,
        "repeat": task.repeat,
        "attempt": task.attempt,
        "model": planned.model,
    }
    for name, value in expected.items():
        yield from _compare(f"case.{name} of {CASES_FILE}", getattr(asked, name), value, "this run")
    for name in _AXES:
        one, other = getattr(asked.axes, name), getattr(planned.axes, name)
        yield from _compare(f"case.axes.{name} of {CASES_FILE}", one, other, "the manifest")
    epochs = asked.training.epochs
    yield from _compare(
        f"case.training.epochs of {CASES_FILE}", epochs, planned.epochs, "the manifest"
    )


_AXES = [field.name for field in dataclasses.fields(Axes)]
# settings that a record has from the parsed log, the last one only if the case does not set it
OF_LOG = ("warmup_steps", "measured_steps", "tokens_per_sample")


def _find_differences(record: Record, asked: Case) -> Iterator[str]:
    """Yield a message for each value of the case in a record that differs from the planned `asked`.

    Only what the job decides may differ: a batch size that it searched, and in a log that it parsed
    the numbers of steps, and of tokens unless the matrix sets them.
    """
    found, is_ok = record.case, record.status == OK
    of_log = OF_LOG[:-1] if asked.tokens_per_sample else OF_LOG
    for field in dataclasses.fields(Case):
        if field.name == "axes" or (is_ok and asked.log_format and field.name in of_log):
            continue
        one, other = getattr(found, field.name), getattr(asked, field.name)
        yield from _compare(f"case.{field.name}", one, other, CASES_FILE)
    for name in _AXES:
        if name == "batch_size_per_device" and is_ok and asked.axes.has_batch_search:
            yield from _find_search_problem(record, asked)
            continue
        one, other = getattr(found.axes, name), getattr(asked.axes, name)
        yield from _compare(f"case.axes.{name}", one, other, CASES_FILE)


def _compare(what: str, found: object, expected: object, where: str) -> Iterator[str]:
    if found != expected or type(found) is not type(expected):
        yield f"{what} is {_quote(found)}, {where} has {_quote(expected)}"


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}..."


def _find_search_problem(record: Record, asked: Case) -> Iterator[str]:
    """Yield why the job's batch size search cannot have found the batch size of the record."""
    size = record.case.axes.batch_size_per_device
    ladder, step = asked.axes.batch_ladder, asked.batch_size_step
    wanted = f"'{asked.axes.batch_size_per_device}'"
    if not isinstance(size, int):
        yield f"case.axes.batch_size_per_device is {_quote(size)}; allowed: a number"
    elif ladder and size not in ladder:
        yield f"case.axes.batch_size_per_device is {size}, not one of the sizes in {wanted}"
    elif not ladder and size % step:
        yield (
            f"case.axes.batch_size_per_device is {size}, not a multiple of batch_size_step "
            f"({step}), as {wanted} requires"
        )
    elif not any(
        trial.batch_size_per_device >= size and not trial.is_out_of_memory
        for trial in record.batch_trials
    ):
        yield (
            f"case.axes.batch_size_per_device is {size}, which is not among the sizes that the "
            "job tried"
        )


def _parse_steps(folder: Path, detail: Optional[SidecarFile], record: Record) -> Any:
    """Return the measured step times as an array [ranks, steps]; None without a file of them.

    `detail` is that file. Raises FileProblem if inference by our worker has no step times, or if
    shape or values are invalid.
    """
    import numpy

    if detail is None:
        if record.case.axes.mode == INFER and record.case.log_format is None:
            raise ContractError(f"{folder / STEP_SECONDS_FILE}: {os.strerror(errno.ENOENT)}")
        return None
    seconds = parse_array(*detail)
    # training to accuracy may stop early at its target
    steps = seconds.shape[-1] if record.epochs and seconds.ndim else record.steps
    shape = (len(record.ranks), steps)
    if seconds.shape != shape:
        raise ContractError(f"{detail.where}: shape is {seconds.shape}, not [ranks, steps] {shape}")
    if seconds.dtype.kind != "f" or not (numpy.isfinite(seconds) & (seconds >= 0)).all():
        raise ContractError(f"{detail.where}: has negative, infinite or NaN times")
    return seconds


def parse_sidecars(details: Mapping[str, SidecarFile]) -> Sidecars:
    """Parse the files beside a record, by name in `details`; raises FileProblem if invalid."""
    noise, peaks = details.get(HOST_NOISE_FILE), details.get(PEAKS_FILE)
    tokens = details.get(TOKEN_SECONDS_FILE)
    return Sidecars(
        None if noise is None else decode(NoiseReport, *noise),
        None if peaks is None else decode(Peaks, *peaks),
        None if tokens is None else parse_array(*tokens),
    )


def find_sidecar_problem(sidecars: Sidecars, record: Record) -> str:
    """Return which file and field beside a record contradict the record; "" if none does."""
    noise, peaks = sidecars.noise, sidecars.peaks
    if noise is not None:
        problem = _find_stranger_problem(noise, {one.host for one in noise.hosts}, record)
        if problem:
            return f"{HOST_NOISE_FILE}: {problem}"
    if peaks is not None:
        problem = _find_stranger_problem(peaks, {one.host for one in peaks.devices}, record)
        numbers = NUMBER_FORMATS.get(record.case.axes.precision)
        if not problem and peaks.number_format != numbers:
            found = f"{peaks.number_format!r:.80}"
            problem = f"number_format is {found}, but the record has precision {numbers!r}"
        if problem:
            return f"{PEAKS_FILE}: {problem}"
    return ""


def _find_stranger_problem(told: Union[NoiseReport, Peaks], hosts: Set[str], record: Record) -> str:
    """Return why host noise or peaks are of another attempt or other hosts than a record, or ""."""
    for name in ("run_id", "case_id", "repeat", "attempt"):
        found, expected = getattr(told, name), getattr(record.case, name)
        if found != expected:
            return f"{name} is {found!r:.80}, but the record has {expected!r}"
    strangers = hosts - {rank.host for rank in record.ranks}
    if strangers:
        return f"names host {min(strangers)!r:.80}, but no rank ran on this host"
    return ""


def describe_failure(record: Record) -> str:
    """Return why an attempt failed, as its record says, on one line; '' for an OK record."""
    if record.status == OK:
        return ""
    unhealthy = describe_unhealthy(record)
    if unhealthy:
        return unhealthy
    kind = "out of memory" if record.status == OUT_OF_MEMORY else "failed"
    first_line = record.reason.splitlines()[0] if record.reason else "no reason recorded"
    measured = f"{record.partial_steps} of {record.case.measured_steps} steps were measured"
    rest = f"; {measured}, but are not used in tables" if record.partial_steps else ""
    return f"{kind}: {first_line}{rest}"
