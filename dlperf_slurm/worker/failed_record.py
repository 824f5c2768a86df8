"""The files of a failed attempt -> its record: the ranks' failures, else the end of the log."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import List, Tuple

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
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
from dlperf_slurm.files import FileProblem
from dlperf_slurm.worker.failures import RANK_LOST
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.host import read_text
from dlperf_slurm.worker.out_of_memory import LIBRARY_MESSAGES
from dlperf_slurm.worker.provenance import describe_job, describe_platform
from dlperf_slurm.worker.stalled_record import describe_stall, write_partial_steps

LOG_TAIL_LINES = 30
LINE_CHARACTERS = 200
# twice the space that the job script reserves for the files of a task's end
FULL_DISK_BYTES = 2 * 2**20
# a stack trace of each rank may follow the message that memory ran out
SIGN_TAIL_LINES = 300

# Messages of slurmstepd, srun and the kernel that a job reached its cgroup's memory limit. Must not
# match CUDA_ERROR_OUT_OF_MEMORY, which frameworks also print as a warning and go on.
_OOM_SIGNS = re.compile(
    r"oom[-_]kill|Out Of Memory|\bOUT_OF_MEMORY|(?:Out|cgroup out) of memory: Kill"
)
# messages of any framework
_FRAMEWORK_SIGNS = ("OUT_OF_MEMORY", "Out of memory", *LIBRARY_MESSAGES)
# "... ran out of memory trying to allocate ... The caller indicates that this is not a failure":
# TensorFlow and XLA, when they fall back from a faster algorithm to another one
_HARMLESS = "is not a failure"

# messages of bash and slurmstepd for a program that a node cannot run, and the exit codes of bash
_CANNOT_RUN = re.compile(
    "Exec format error|cannot execute|required file not found|bad interpreter|error: execve"
)
_NOT_STARTED = re.compile(r"Exited with exit code 12[67]\b")
# "n1: task 1: Killed", "task 0 launch failed: Unspecified error"
_SRUN_ERROR = re.compile(r"^srun: error: (.*\btasks? .+)$", re.M)
# errno 98: of torchrun's rendezvous, of Gloo, of our own server
_PORT_TAKEN = re.compile(r"\bEADDRINUSE\b|[Aa]ddress already in use")
# 128 + SIGBUS; "Bus error" is what bash, srun and PyTorch's data loader print
_BUS_ERROR = 135
# srun's words for a task that was ended by a signal from outside
_TOLD_TO_END = ("Terminated", "Killed")
_INTERRUPTED_EXIT_CODES = (130, 143)


def conclude_attempt(attempt_dir: Path, exit_code: int) -> Record:
    """Return the attempt's record; if none can be read, write and return that of a failed attempt.

    Runs in the job script after the launcher, on one process without MPI.
    """
    try:
        return read_json(attempt_dir / RECORD_FILE, Record)
    except (FileNotFoundError, FileProblem):
        pass
    case = read_json(attempt_dir / CASE_FILE, Case)
    failures = find_failures(attempt_dir, case, exit_code)
    partial_steps = write_partial_steps(attempt_dir, case)
    record = replace(make_failed_record(case, failures), partial_steps=partial_steps)
    write_json(attempt_dir / RECORD_FILE, record)
    return record


def find_failures(attempt_dir: Path, case: Case, exit_code: int) -> Tuple[Failure, ...]:
    """Find the failures of an attempt, at least one, the most likely cause first.

    Unless a rank itself reports that memory ran out, a failure of the job comes first: the cgroup's
    memory limit (out of memory only for ranks on CPUs: host memory does not limit a batch on a
    GPU), a bus error, a stall, or, if no rank wrote a failure, a full disk. Closed connections that
    ranks report are then consequences. Ranks that others report as lost (without MPI) come next,
    unless the whole job was terminated. If there is nothing else, the end of the log and
    `exit_code`, the launcher's, say how the job ended.
    """
    failures = read_failures(attempt_dir)
    if any(failure.is_out_of_memory for failure in failures):
        return failures
    lines = read_text(attempt_dir / "err").splitlines()
    if any(_OOM_SIGNS.search(line) for line in lines[-SIGN_TAIL_LINES:]):
        message = "a process was killed for exceeding the job's memory limit"
        is_on_cpu = case.device == "cpu"
        if not is_on_cpu:
            message += "; this is host memory, not GPU memory: see memory_mib_per_node"
        return (_describe_job(message, lines, is_out_of_memory=is_on_cpu), *failures)
    if exit_code == _BUS_ERROR or any("Bus error" in line for line in lines[-SIGN_TAIL_LINES:]):
        message = (
            "a process ended with a bus error (SIGBUS): /dev/shm was full (see `df /dev/shm` on "
            "its node), or a memory-mapped file was truncated"
        )
        return (_describe_job(message, lines), *failures)
    lost = tuple(failure for failure in failures if failure.error == RANK_LOST)
    failures = tuple(failure for failure in failures if failure.error != RANK_LOST)
    stall = describe_stall(attempt_dir, case)
    if stall:
        return (*stall, *failures)
    full = describe_full_disk(attempt_dir)
    if full and not failures:
        return (_describe_job(full, lines),)
    if lost and not _is_job_terminated(lines, exit_code):
        failures = (*lost, *failures)
    if failures and not (failures == lost and _ran_out_of_memory(lines, case, exit_code)):
        return failures
    return (_describe_silent_end(lines, case, exit_code), *failures)


def describe_full_disk(folder: Path) -> str:
    """Describe the file system of `folder` if it is full, so that ranks could not write; else "".

    Called after the job script has released its reserved space.
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
    """Read the failures that ranks and nodes wrote, sorted by rank; invalid files are skipped."""
    failures: List[Failure] = []
    for path in sorted((attempt_dir / FAILURES_DIR).glob("*.json")):
        try:
            failures.append(read_json(path, Failure))
        except FileProblem:
            continue
    return tuple(sorted(failures, key=lambda failure: failure.rank))


def make_failed_record(case: Case, failures: Tuple[Failure, ...]) -> Record:
    """Make a record of at least one failure: its status is OUT_OF_MEMORY if any is, else FAILED."""
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
    """Return the failure of a job whose ranks wrote none, from its log and exit code."""
    if _ran_out_of_memory(lines, case, exit_code):
        message = f"{case.axes.framework} ended a process because memory ran out; see the error "
        message += "output in the file `err`"
        return _describe_job(message, lines, is_out_of_memory=True)
    tail = lines[-SIGN_TAIL_LINES:]
    cannot_run = [line.strip() for line in tail if _CANNOT_RUN.search(line)]
    has_not_started = any(_NOT_STARTED.search(error) for error in _find_srun_errors(tail))
    taken = [line.strip() for line in tail if _PORT_TAKEN.search(line)]
    if taken:
        message = "a port was taken by another process; error output: "
        message += f"{taken[-1][:LINE_CHARACTERS]!r}"
    elif cannot_run or has_not_started:
        message = "a rank could not be started"
        message += f"; error output: {cannot_run[0][:LINE_CHARACTERS]!r}" if cannot_run else ""
    elif exit_code == 143:
        is_whole = _is_job_terminated(lines, exit_code)
        message = "terminated (SIGTERM)" + ("" if is_whole else " after a rank had ended")
    elif exit_code == 137:
        message = "killed (SIGKILL), perhaps because the node ran out of memory"
    elif exit_code == 0:
        message = "all ranks ended, but wrote neither a result nor an error message"
    else:
        message = f"the launcher ended with exit code {exit_code} and no rank said why; "
        last = [line.strip() for line in lines if re.search(r"\w", line)][-1:]
        message += "the error output "
        message += f"ends with {last[0][:LINE_CHARACTERS]!r}" if last else "is empty"
    failure = _describe_job(message, lines)
    return replace(failure, error=TERMINATED if _is_job_terminated(lines, exit_code) else "")


def _ran_out_of_memory(lines: List[str], case: Case, exit_code: int) -> bool:
    """Return whether the log shows that a framework ran out of memory and ended its process.

    `lines` are of the attempt's standard error, `exit_code` is the launcher's. Some frameworks
    abort without a Python exception. Their messages do not count if the job was terminated, unless
    a rank died by itself: srun then ends the others, and returns the highest of their exit codes.
    """
    tail = lines[-SIGN_TAIL_LINES:]
    if exit_code in _INTERRUPTED_EXIT_CODES and all(
        error.endswith(_TOLD_TO_END) for error in _find_srun_errors(tail)
    ):
        return False
    signs = (*_FRAMEWORK_SIGNS, *load_adapter(case.axes.framework).OUT_OF_MEMORY.messages)
    return any(sign in line for line in tail if _HARMLESS not in line for sign in signs)


def _is_job_terminated(lines: List[str], exit_code: int) -> bool:
    """Return whether the whole job was terminated, and not one rank ended by itself.

    srun names a rank that ended by itself. `lines` are of the attempt's standard error, `exit_code`
    is the launcher's.
    """
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
