"""The failure of a rank -> its file in the attempt, written by the rank itself or by another."""

import errno
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Optional

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import FAILURES_DIR, Failure
from dlperf_slurm.files import FileProblem
from dlperf_slurm.worker.out_of_memory import OutOfMemory, is_out_of_memory

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# the error of a rank whose loss another rank reported
RANK_LOST = "RankLostError"


def write_failure(
    attempt_dir: Path, rank: int, error: BaseException, is_out_of_memory: bool = False
) -> None:
    """Write this rank's failure to its own file: communication may be broken. Raises OSError."""
    failure = Failure(
        rank=rank,
        host=socket.gethostname(),
        error=type(error).__name__,
        message=str(error),
        traceback="".join(traceback.format_exception(type(error), error, error.__traceback__)),
        is_out_of_memory=is_out_of_memory,
    )
    _write(attempt_dir, failure)


def write_loss(attempt_dir: Path, rank: int, host: str) -> None:
    """Write a failure for a rank on `host` that has disappeared, unless that rank wrote its own."""
    if not _find_file(attempt_dir, rank).exists():
        message = (
            "the process of this rank ended without an error message: it was killed, or crashed in "
            "native code"
        )
        _write(attempt_dir, Failure(rank, host, RANK_LOST, message, "", False))


def _find_file(attempt_dir: Path, rank: int) -> Path:
    return attempt_dir / FAILURES_DIR / f"rank-{rank}.json"


def _write(attempt_dir: Path, failure: Failure) -> None:
    path = _find_file(attempt_dir, failure.rank)
    path.parent.mkdir(exist_ok=True)
    write_json(path, failure)


def report_failure(
    attempt_dir: Path, rank: Optional[int], signs: OutOfMemory, error: BaseException
) -> None:
    """Print the failure of this rank and write it to a file; `rank` is None if it did not join.

    `signs` say which errors of the framework mean out of memory. Raises OSError if the file cannot
    be written, for instance on a full disk.
    """
    is_disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
    if is_disk_full or isinstance(error, FileProblem):
        # the message is enough; every rank would print the same traceback
        print(error, file=sys.stderr)
    else:
        traceback.print_exc()
    has_no_memory = False
    try:
        has_no_memory = is_out_of_memory(error, signs)
    finally:
        known_rank = guess_rank() if rank is None else rank
        write_failure(attempt_dir, known_rank, error, has_no_memory)


def guess_rank() -> int:
    """Guess the rank from the launcher's variables, for a process that could not join; else 0."""
    # RANK first: under torchrun one Slurm task has several ranks
    for name in ("PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
