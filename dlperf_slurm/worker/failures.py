"""How a rank failed -> a file of its own in the attempt, whoever can still write it."""

import socket
import traceback
from pathlib import Path

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import FAILURES_DIR, Failure

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
