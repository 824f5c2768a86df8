"""JAX's cache of compiled programs, in the user's cache folder, and how much came from it."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import jax

from dlperf_slurm.files.folders import PRIVATE_MASK, file_permissions

# a compiled step takes about 1 to 50 MB
MOST_ENTRIES = 200
HIT, MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"


class CompilationCache:
    """The cache, unless the user has chosen one; counts the programs found in it and added to it.

    Without a private folder there is no cache. JAX does not add what compiles in less than a
    second.
    """

    def __init__(self) -> None:
        self._events = {HIT: 0, MISS: 0}
        if not jax.config.jax_compilation_cache_dir:
            with suppress(OSError, RuntimeError):
                jax.config.update("jax_compilation_cache_dir", str(make_folder()))
        jax.monitoring.register_event_listener(self._count)

    def _count(self, event: str, **details: object) -> None:
        if event in self._events:
            self._events[event] += 1

    def describe(self) -> str:
        """Return "cached" (all programs so far), "partly cached" or "compiled" (none)."""
        if not self._events[HIT]:
            return "compiled"
        return "partly cached" if self._events[MISS] else "cached"


def make_folder() -> Path:
    """Make the folder of JAX's cache, with mode 0700, remove its oldest entries, and return it.

    MOST_ENTRIES (200) entries are kept. Raises PermissionError if the folder or the one above it,
    `dlperf-slurm`, is not this user's alone (mode 0700): programs are loaded from it.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    own = (chosen if chosen.is_absolute() else Path.home() / ".cache") / "dlperf-slurm"
    folder = own / "jax"
    with file_permissions(PRIVATE_MASK):
        folder.mkdir(parents=True, exist_ok=True)
    for path in (own, folder):
        status = path.lstat()
        is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & PRIVATE_MASK
        if not is_private or status.st_uid != os.geteuid():
            raise PermissionError(f"{path}: must be a folder that you own, with mode 0700")
    # other processes may do the same
    with suppress(OSError):
        entries = [path for path in folder.iterdir() if path.is_file()]
        for path in sorted(entries, key=lambda path: path.stat().st_mtime)[:-MOST_ENTRIES]:
            path.unlink()
    return folder
