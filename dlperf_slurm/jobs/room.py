"""A folder and the cases that will write there -> whether its disk has room for them."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.expand import MatrixCase

MIB = 2**20
# the frozen worker, and what the journal grows by
RUN_BYTES = 8 * MIB
# of an array task: record, output and samples; the times of its steps come on top
TASK_BYTES = MIB // 2
# what a job script holds while it runs, for how it ends, and then its last words
RESERVE_BYTES = MIB + 64 * 1024
BYTES_PER_STEP_OF_A_RANK = 24
# how job scripts, workers and the system say so
_NO_ROOM = re.compile(
    r"\bthe disk\b.* (?:is full|cannot be written)|No space left on device|"
    r"Disk quota exceeded"
)


def check_room(folder: Path, cases: Sequence[MatrixCase]) -> None:
    """Raise InputError, which names the disk, when the repeats of all cases would fill it.

    A quota of the user is not asked for: each array task tries what it may write.
    """
    check_free(folder, RUN_BYTES + sum(map(_estimate_bytes, cases)))


def check_free(folder: Path, needed_bytes: int) -> None:
    """Raise InputError, which names the disk, when it has fewer bytes free."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < needed_bytes:
        raise InputError(
            f"{folder}: {describe_disk(place)}; the run needs about "
            f"{_format_mib(needed_bytes)} MiB of it"
        )


def find_full_disk(folder: Path, needed_bytes: int = RESERVE_BYTES) -> str:
    """Which disk has no room, for an array task if nothing else is said; empty where it has."""
    return describe_disk(folder) if shutil.disk_usage(folder).free < needed_bytes else ""


def is_for_want_of_room(words: str) -> bool:
    """Whether the reason of a failure is that a disk could not be written."""
    return _NO_ROOM.search(words) is not None


@contextmanager
def name_full_disk(folder: Path) -> Iterator[None]:
    """Raise an OSError for want of room again as an InputError that names the disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(f"{describe_disk(folder)}: {error}") from error


def describe_disk(place: Path) -> str:
    """Such as "the disk at /shared has 3.1 of 500.0 MiB free"."""
    mount = place.resolve()
    while not os.path.ismount(mount):
        mount = mount.parent
    usage = shutil.disk_usage(place)
    free, total = _format_mib(usage.free), _format_mib(usage.total)
    return f"the disk at {mount} has {free} of {total} MiB free"


def _estimate_bytes(case: MatrixCase) -> int:
    protocol = case.protocol
    steps = protocol.warmup_steps + protocol.measured_steps
    of_task = TASK_BYTES + BYTES_PER_STEP_OF_A_RANK * steps * case.topology.world_size
    return protocol.repeats * of_task


def _format_mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f}"
