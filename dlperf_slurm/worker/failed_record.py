"""What a failed attempt left behind -> its record: the ranks' own failures, else the log's end."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import List, Tuple

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import ContractError, read_json, write_json
from dlperf_slurm.contract.record import (
    FAILED,
    FAILURES_DIR,
    OUT_OF_MEMORY,
    RECORD_FILE,
    TERMINATED,
    Clock,
    Failure,
    Record,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.worker.failures import LIBRARY_MEMORY_SIGNS, RANK_LOST
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.provenance import describe_job, describe_platform
from dlperf_slurm.worker.stalled_record import describe_stall, keep_steps

LOG_TAIL_LINES = 30
# twice what the job script keeps free for how a task ends
FULL_DISK_BYTES = 2 * 2**20
# behind the sign of a lack of memory there may be a stack trace of each rank
SIGN_TAIL_LINES = 300

# How slurmstepd, srun and the kernel say that the memory limit of a job's cgroup was reached; not
# CUDA_ERROR_OUT_OF_MEMORY, of which frameworks warn also where they can do with less.
_OOM_SIGNS = re.compile(
    r"oom[-_]kill|Out Of Memory|\bOUT_OF_MEMORY|(?:Out|cgroup out) of memory: Kill"
)
# of any framework, beside its OUT_OF_MEMORY_MESSAGES
_FRAMEWORK_SIGNS = ("OUT_OF_MEMORY", "Out of memory", *LIBRARY_MEMORY_SIGNS)
# "... ran out of memory trying to allocate ... The caller indicates that this is not a failure":
# TensorFlow and XLA, when they try a faster algorithm and then take another one
_HARMLESS = "is not a failure"

# "n1: task 1: Killed", "task 0 launch failed: Unspecified error"
_SRUN_ERROR = re.compile(r"^srun: error: (.*\btasks? .+)$", re.M)
# how a task ends that others have told to
_TOLD_TO_END = ("Terminated", "Killed")
_INTERRUPTED_EXIT_CODES = (130, 143)


def conclude_attempt(attempt_dir: Path, exit_code: int) -> Record:
    """Write record.json for an attempt whose ranks did not get to it; else return the one there.

    Runs in the job script after the launcher, on one process without MPI.
    """
    try:
        return read_json(attempt_dir / RECORD_FILE, Record)
    except (FileNotFoundError, ContractError):
        pass
    case = read_json(attempt_dir / CASE_FILE, Case)
    failures = find_failures(attempt_dir, case, exit_code)
    partial_steps = keep_steps(attempt_dir, case)
    record = replace(make_failed_record(case, failures), partial_steps=partial_steps)
    write_json(attempt_dir / RECORD_FILE, record)
    return record


def find_failures(attempt_dir: Path, case: Case, exit_code: int) -> Tuple[Failure, ...]:
    """The ranks' failures, and the job's where they cannot tell: when memory killed a process.

    The host's memory says nothing of a batch that a GPU holds: there it is no lack of memory.

    A rank whose peer, or whose loader of data, is killed says that a connection was closed; so do
    those that are not the first to be ended when they have come to stand still. Of a rank that is
    gone, others tell where ranks have no MPI: it comes first, unless they were all told to end.
    """
    failures = read_failures(attempt_dir)
    if any(failure.is_out_of_memory for failure in failures):
        return failures
    lines = _read_lines(attempt_dir / "err")
    if any(_OOM_SIGNS.search(line) for line in lines[-SIGN_TAIL_LINES:]):
        message = "a process was killed at the job's memory limit"
        is_on_cpu = case.device == "cpu"
        if not is_on_cpu:
            message += ", which is the host's, not the GPU's: see memory_mib_per_node"
        return (_describe_job(message, lines, is_out_of_memory=is_on_cpu), *failures)
    lost = tuple(failure for failure in failures if failure.error == RANK_LOST)
    failures = tuple(failure for failure in failures if failure.error != RANK_LOST)
    stall = describe_stall(attempt_dir, case)
    if stall:
        return (*stall, *failures)
    full = describe_full_disk(attempt_dir)
    if full and not failures:
        return (_describe_job(full, lines),)
    if lost and not _are_all_told_to_end(lines, exit_code):
        failures = (*lost, *failures)
    if failures and not (failures == lost and _lacked_memory(lines, case, exit_code)):
        return failures
    return (_describe_silent_end(lines, case, exit_code), *failures)


def describe_full_disk(folder: Path) -> str:
    """Which disk is full, where the ranks could hardly write why they failed; empty if it is not.

    The job script has just given back what it held of it.
    """
    usage = shutil.disk_usage(str(folder))
    if usage.free > FULL_DISK_BYTES:
        return ""
    mount = folder.resolve()
    while not mount.is_mount():
        mount = mount.parent
    return (
        f"the disk at {mount} is full: {usage.free // 1024} of {usage.total // 1024} KiB are free"
    )


def read_failures(attempt_dir: Path) -> Tuple[Failure, ...]:
    """What the ranks wrote before they ended, by rank."""
    failures: List[Failure] = []
    for path in sorted((attempt_dir / FAILURES_DIR).glob("*.json")):
        try:
            failures.append(read_json(path, Failure))
        except ContractError:
            continue
    return tuple(sorted(failures, key=lambda failure: failure.rank))


def make_failed_record(case: Case, failures: Tuple[Failure, ...]) -> Record:
    """A record without measurements; a rank that ran out of memory decides the status."""
    out_of_memory = [failure for failure in failures if failure.is_out_of_memory]
    first = (out_of_memory or list(failures))[0]
    where = f"rank {first.rank} on {first.host}: " if first.rank >= 0 else ""
    error = "" if first.error == TERMINATED else first.error
    return Record(
        status=OUT_OF_MEMORY if out_of_memory else FAILED,
        reason=f"{where}{error}: {first.message}" if error else first.message,
        case=case,
        started_at="",
        ended_at=format_now(),
        parameter_count=0,
        clock=Clock("", 0.0),
        ranks=(),
        failures=failures,
        versions={},
        platform=describe_platform(),
        job=describe_job(),
    )


def _describe_silent_end(lines: List[str], case: Case, exit_code: int) -> Failure:
    if _lacked_memory(lines, case, exit_code):
        message = f"{case.axes.framework} ended a process that it had no memory for; see err"
        return _describe_job(message, lines, is_out_of_memory=True)
    if exit_code == 143:
        message = "terminated (SIGTERM): time limit, cancellation, preemption or a dead rank"
    elif exit_code == 137:
        message = "killed (SIGKILL), perhaps for the machine's lack of memory"
    elif exit_code == 0:
        message = "the ranks ended without a record and without an error"
    else:
        message = f"the launcher ended with exit code {exit_code} and no rank said why; see err"
    failure = _describe_job(message, lines)
    return replace(failure, error=TERMINATED if _are_all_told_to_end(lines, exit_code) else "")


def _lacked_memory(lines: List[str], case: Case, exit_code: int) -> bool:
    """Whether the framework ended a process, as some do, before Python heard of it.

    What it said before is no reason of a job that was told to end, unless a rank died by itself:
    srun then ends the others, and returns the highest of their exit codes.
    """
    tail = lines[-SIGN_TAIL_LINES:]
    if exit_code in _INTERRUPTED_EXIT_CODES and all(
        error.endswith(_TOLD_TO_END) for error in _find_srun_errors(tail)
    ):
        return False
    signs = (*_FRAMEWORK_SIGNS, *load_adapter(case.axes.framework).OUT_OF_MEMORY_MESSAGES)
    return any(sign in line for line in tail if _HARMLESS not in line for sign in signs)


def _are_all_told_to_end(lines: List[str], exit_code: int) -> bool:
    """Whether the job was; srun names a rank that has ended by itself."""
    errors = _find_srun_errors(lines[-SIGN_TAIL_LINES:])
    return exit_code in _INTERRUPTED_EXIT_CODES and all("Terminated" in error for error in errors)


def _describe_job(message: str, lines: List[str], is_out_of_memory: bool = False) -> Failure:
    tail = lines[-LOG_TAIL_LINES:]
    found = [error for error in _find_srun_errors(tail) if "Terminated" not in error]
    if found:
        message = f"{message}; srun: {found[0]}"
    return Failure(-1, "", "", message, "\n".join(tail), is_out_of_memory)


def _find_srun_errors(lines: List[str]) -> List[str]:
    return _SRUN_ERROR.findall("\n".join(lines))


def _read_lines(path: Path) -> List[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
