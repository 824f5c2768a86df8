"""How a rank failed -> a file of its own in the attempt, whoever can still write it."""

import errno
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import FAILURES_DIR, Failure
from dlperf_slurm.files import FileProblem

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Adapter

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# How NVIDIA's libraries say, in whatever error of a framework, that what they need for themselves
# was not to be had: the driver, CUDA, cuBLAS, cuDNN before version 9 and since.
LIBRARY_MEMORY_SIGNS = (
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)
# the error of a rank of which others tell
RANK_LOST = "RankLostError"


def write_failure(
    attempt_dir: Path, rank: int, error: BaseException, is_out_of_memory: bool = False
) -> None:
    """Say how this rank failed in a file of its own: what joins the ranks cannot be trusted now."""
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
    """Name a rank that is gone; what one has said itself of its failure stays."""
    if not _find_file(attempt_dir, rank).exists():
        message = "its process has ended without a word: killed, or crashed in native code"
        _write(attempt_dir, Failure(rank, host, RANK_LOST, message, "", False))


def _find_file(attempt_dir: Path, rank: int) -> Path:
    return attempt_dir / FAILURES_DIR / f"rank-{rank}.json"


def _write(attempt_dir: Path, failure: Failure) -> None:
    path = _find_file(attempt_dir, failure.rank)
    path.parent.mkdir(exist_ok=True)
    write_json(path, failure)


def report_failure(
    attempt_dir: Path,
    rank: Optional[int],
    adapter: Optional["Adapter"],
    error: BaseException,
) -> None:
    """Print and write how this rank failed, None if it did not come to be one.

    Raises OSError where there is no room for it.
    """
    is_disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
    if is_disk_full or isinstance(error, FileProblem):
        # it says all; a full disk would be told in the traceback of each rank
        print(error, file=sys.stderr)
    else:
        traceback.print_exc()
    is_out_of_memory = isinstance(error, MemoryError) or any(
        sign in str(error) for sign in LIBRARY_MEMORY_SIGNS
    )
    try:
        if adapter is not None:
            is_out_of_memory = is_out_of_memory or adapter.is_out_of_memory(error)
    finally:
        known_rank = guess_rank() if rank is None else rank
        write_failure(attempt_dir, known_rank, error, is_out_of_memory)


def guess_rank() -> int:
    """The rank by the launcher's variables, for a process that could not join the others."""
    # torchrun's before Slurm's, whose task it is
    for name in ("PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
