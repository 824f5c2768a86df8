"""A folder and the cases that will write there -> whether the disk has enough free space."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.errors import InputError

if TYPE_CHECKING:
    from dlperf_slurm.matrix.expand import MatrixCase

MIB = 2**20
# for the frozen worker code and the journal
RUN_BYTES = 8 * MIB
# for the record, output and samples of an array task, without step times
TASK_BYTES = MIB // 2
# free space below which a disk counts as full; a job script reserves 1 MiB of it
RESERVE_BYTES = MIB + 64 * 1024
BYTES_PER_STEP_OF_A_RANK = 24
# messages of job scripts, workers and the system
_NO_ROOM = (
    r"\bthe disk\b.* (?:is full|cannot be written)|No space left on device|"
    r"Disk quota exceeded"
)


def check_disk_space(folder: Path, cases: "Sequence[MatrixCase]") -> None:
    """Raise InputError if the results folder's disk may be too small for a run of these cases.

    The message names the disk. User quotas are not checked here; each array task tests at its start
    what it can write.
    """
    check_free(folder, RUN_BYTES + sum(map(_estimate_bytes, cases)))


def check_free(folder: Path, needed_bytes: int) -> None:
    """Raise InputError, which names the disk, if `folder` has fewer than `needed_bytes` free."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_bytes, _ = measure_disk(place)
    if free_bytes < needed_bytes:
        raise InputError(
            f"{folder}: {describe_disk(place)}; the run needs about {_format_mib(needed_bytes)} MiB"
        )


def describe_full_disk(folder: Path, needed_bytes: int = RESERVE_BYTES) -> str:
    """Return "the disk at /shared has 0.5 of 500.0 MiB free" if that is too little, else ""."""
    return describe_disk(folder) if measure_disk(folder)[0] < needed_bytes else ""


def is_disk_full_reason(words: str) -> bool:
    """Return whether a failure's reason says that the disk is full or not writable."""
    return re.search(_NO_ROOM, words) is not None


@contextmanager
def convert_disk_full_error(folder: Path) -> Iterator[None]:
    """Convert an OSError of a full disk or quota, in this context, into an InputError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(f"{describe_disk(folder)}: {error}") from error


def describe_disk(place: Path) -> str:
    """Describe the disk of a path: "the disk at /shared has 3.1 of 500.0 MiB free"."""
    mount = place.resolve()
    while not os.path.ismount(mount):
        mount = mount.parent
    free, total = map(_format_mib, measure_disk(place))
    return f"the disk at {mount} has {free} of {total} MiB free"


def measure_disk(place: Path) -> tuple[int, int]:
    """Return the free and the total bytes of the disk of a file or folder."""
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


def _estimate_bytes(case: "MatrixCase") -> int:
    protocol = case.protocol
    steps = protocol.warmup_steps + protocol.measured_steps
    of_task = TASK_BYTES + BYTES_PER_STEP_OF_A_RANK * steps * case.topology.world_size
    return protocol.repeats * of_task


def _format_mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f}"
