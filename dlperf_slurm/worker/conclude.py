"""What a failed attempt left behind -> its record: the ranks' own failures, else the log's end."""

import re
from pathlib import Path
from typing import List, Tuple

from dlperf_slurm.contract import (
    CASE_FILE,
    FAILED,
    FAILURES_DIR,
    OUT_OF_MEMORY,
    RECORD_FILE,
    Case,
    Clock,
    ContractError,
    Failure,
    Record,
    format_now,
    read_json,
    write_json,
)
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.provenance import describe_job, describe_platform

LOG_TAIL_LINES = 30
# behind the sign of a lack of memory there may be a stack trace of each rank
SIGN_TAIL_LINES = 300

# how slurmstepd and the kernel say that the memory limit of a job's cgroup was reached
_OOM_SIGNS = ("oom-kill", "oom_kill", "Out Of Memory", "OUT_OF_MEMORY", "Out of memory")

# "n1: task 1: Killed", "task 0 launch failed: Unspecified error"
_SRUN_ERROR = re.compile(r"^srun: error: (.*\btasks? .+)$", re.M)


def conclude_attempt(attempt_dir: Path, exit_code: int) -> None:
    """Write record.json for an attempt whose ranks did not get to it; else leave it alone.

    Runs in the job script after the launcher, on one process without MPI.
    """
    try:
        read_json(attempt_dir / RECORD_FILE, Record)
        return
    except (FileNotFoundError, ContractError):
        pass
    case = read_json(attempt_dir / CASE_FILE, Case)
    failures = read_failures(attempt_dir) or (_describe_silent_end(attempt_dir, case, exit_code),)
    write_json(attempt_dir / RECORD_FILE, make_failed_record(case, failures))


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
    return Record(
        status=OUT_OF_MEMORY if out_of_memory else FAILED,
        reason=f"{where}{first.error}: {first.message}" if first.error else first.message,
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


def _describe_silent_end(attempt_dir: Path, case: Case, exit_code: int) -> Failure:
    lines = _read_lines(attempt_dir / "err")
    tail = "\n".join(lines[-LOG_TAIL_LINES:])
    signs_tail = "\n".join(lines[-SIGN_TAIL_LINES:])
    is_killed = any(sign in signs_tail for sign in _OOM_SIGNS)
    # some frameworks abort the process where they cannot allocate, before Python hears of it
    own_signs = load_adapter(case.framework).OUT_OF_MEMORY_MESSAGES
    is_out_of_memory = is_killed or any(sign in signs_tail for sign in own_signs)
    if is_killed:
        message = "a process was killed at the job's memory limit"
    elif is_out_of_memory:
        message = f"{case.framework} ended a process that it had no memory for; see err"
    elif exit_code == 143:
        message = "terminated (SIGTERM): time limit, cancellation, preemption or a dead rank"
    elif exit_code == 137:
        message = "killed (SIGKILL), perhaps for the machine's lack of memory"
    elif exit_code == 0:
        message = "the ranks ended without a record and without an error"
    else:
        message = f"the launcher ended with exit code {exit_code} and no rank said why; see err"
    found = [line for line in _SRUN_ERROR.findall(tail) if "Terminated" not in line]
    if found:
        message = f"{message}; srun: {found[0]}"
    return Failure(-1, "", "", message, tail, is_out_of_memory)


def _read_lines(path: Path) -> List[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
