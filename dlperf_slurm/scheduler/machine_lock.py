"""Lock this machine for one process of this user at a time, first come, first served."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.config.folders import find_cache_dir, get_host_name, make_private_dir
from dlperf_slurm.errors import SchedulerError

if TYPE_CHECKING:
    import threading

# Each check of the lock wakes a core that may be under measurement, so checks are rare.
LOOK_SECONDS = 0.25
MAX_NAME_BYTES = 255


@contextlib.contextmanager
def lock_machine(cancelled: "Optional[threading.Event]" = None, run_id: str = "") -> Iterator[None]:
    """Hold the lock of this machine, so that this user's benchmarks do not run at the same time.

    Waits for its turn; if `cancelled` is set first, the context begins without the lock. Others
    that wait can read `run_id`. Raises SchedulerError if no folder for the lock can be made.
    """
    import threading

    cancelled = cancelled or threading.Event()
    with open_own_folder() as folder, join_queue(folder, run_id) as is_first:
        # The folder itself is locked, because a lock file in it could be replaced.
        while not cancelled.is_set() and not (is_first() and _try_lock(folder, fcntl.LOCK_EX)):
            cancelled.wait(LOOK_SECONDS)
        yield


@contextlib.contextmanager
def open_own_folder() -> Iterator[int]:
    """Open a folder on this machine that only this user can write to; yield its descriptor.

    That is dlperf-slurm-UID in the temporary folder, or one in the user's cache if another user
    owns that name. Raises SchedulerError if neither can be used.
    """
    import tempfile

    temporary = Path(tempfile.gettempdir()) / f"dlperf-slurm-{os.getuid()}"
    descriptor = _open_own(temporary)
    if descriptor is None:
        cached = find_cache_dir() / get_host_name()
        with contextlib.suppress(OSError):
            make_private_dir(cached.parent, cached.name)
        descriptor = _open_own(cached)
    if descriptor is None:
        raise SchedulerError(
            f"neither {temporary} nor {cached} is a folder that you own; one of them is needed to "
            "lock this machine, so that your benchmarks do not run at the same time"
        )
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_own(path: Path) -> Optional[int]:
    """Open a private folder, made if missing, and return its descriptor; None if that fails.

    It fails if the folder belongs to another user.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        return None
    os.fchmod(descriptor, 0o700)
    return descriptor


@contextlib.contextmanager
def join_queue(folder: int, run_id: str = "") -> Iterator[Callable[[], bool]]:
    """Enter the queue in a folder, for the context; yield a function that says whose turn it is.

    The function returns whether this entry is first. `folder` is a descriptor; others can read
    `run_id`. First come, first served: array tasks of runs that were submitted together alternate.
    An entry is a file that its process keeps locked; an unlocked one is left from a killed process.
    """
    place = f"{time.monotonic_ns():020}.{os.urandom(4).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(f".{place}", flags, 0o600, dir_fd=folder)
    try:
        _try_lock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            # on a full disk an empty entry is enough
            os.write(descriptor, run_id.encode())
        os.rename(f".{place}", place, src_dir_fd=folder, dst_dir_fd=folder)

        def is_first() -> bool:
            for other in _list_places(folder):
                if other == place:
                    break
                if _is_locked(folder, other):
                    return False
                with contextlib.suppress(OSError):
                    os.unlink(other, dir_fd=folder)
            return True

        yield is_first
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place, dir_fd=folder)
        os.close(descriptor)


def _list_places(folder: int) -> list[str]:
    """Return the names of the files in the queue's folder (a descriptor), oldest entry first."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def get_first_in_queue() -> str:
    """Return the id of the run that has this machine or is next in the queue for it; else ""."""
    with contextlib.suppress(SchedulerError), open_own_folder() as folder:
        for name in _list_places(folder):
            if _is_locked(folder, name):
                return _read_place(folder, name)
    return ""


def _read_place(folder: int, name: str) -> str:
    """Return the run id in a file of the queue, or "" if it cannot be read."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        # the process has left the queue
        return ""
    try:
        return os.read(descriptor, MAX_NAME_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def _is_locked(folder: int, name: str) -> bool:
    """Return whether `name` is a regular file in the folder that another process has locked."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return False
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_file and not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it.

    `kind` is LOCK_EX or LOCK_SH, as of flock(2).
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
