"""Simulations of statistical power -> their results, cached in the user's cache directory.

The simulations are deterministic, and take as long as all other work of `plan`.
"""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple, Optional

from dlperf_slurm.config.folders import find_cache_dir, make_cache_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.reading import read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.stats.power import compute_detectable_slowdown, compute_power
from dlperf_slurm.version import __version__

# results in the cache file; if it is full, it is started afresh
_MOST_KEPT = 1000


class Power(NamedTuple):
    """What a comparison of two runs detects.

    `chance` is the probability of detecting a given slowdown, `least` the smallest slowdown that is
    detected with probability POWER.
    """

    chance: float
    least: float


def get_power(repeats: int, spread: float, slowdown: float, tests: int) -> Power:
    """Return what a comparison of two runs detects, from the cache or by `stats.power`.

    Parameters as of `compute_power`. Errors of the cache file are ignored.
    """
    key = f"{repeats} {spread!r} {slowdown!r} {tests}"
    known = _load()
    answer = _take(known.get(key))
    if answer is not None:
        return answer
    power = Power(
        compute_power(repeats, spread, slowdown, tests),
        compute_detectable_slowdown(repeats, spread, tests),
    )
    _store({**(known if len(known) < _MOST_KEPT else {}), key: list(power)})
    return power


def get_cache_path() -> Path:
    """Return the path of the cache file of this version; it may not exist.

    Raises as `find_cache_dir`.
    """
    return find_cache_dir() / f"power-{__version__}.json"


def _load() -> dict[str, Any]:
    """Load the cache file; empty if it is missing or damaged."""
    try:
        stored = read_json(get_cache_path())
    except (OSError, InputError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _take(stored: object) -> Optional[Power]:
    """Convert a cached JSON value to a result; None if it is not a valid one."""
    if not isinstance(stored, list) or len(stored) != len(Power._fields):
        return None
    if not all(isinstance(share, (int, float)) and 0 <= share <= 1 for share in stored):
        return None
    return Power(*stored)


def _store(answers: dict[str, Any]) -> None:
    """Write the cache file; errors are ignored."""
    with contextlib.suppress(OSError, InputError):
        make_cache_dir()
        write_file(get_cache_path(), json.dumps(answers).encode(), mode=0o600)
