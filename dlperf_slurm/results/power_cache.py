"""Simulations of statistical power -> their results, cached in the user's cache directory.

The simulations are deterministic, and take as long as all other work of `plan`.
"""

import hashlib
from typing import NamedTuple

from dlperf_slurm.results.cache import evict_entries, load_entry, store_entry
from dlperf_slurm.stats.power import compute_detectable_slowdown, compute_power
from dlperf_slurm.version import __version__

# the folder of the cache, and the most results in it
POWERS = "power"
MOST_RESULTS = 1000


class Power(NamedTuple):
    """The statistical power of a comparison of two runs.

    `chance` is the probability of detecting a given slowdown, `least` the smallest slowdown that is
    detected with probability POWER.
    """

    chance: float
    least: float


def get_power(repeats: int, spread: float, slowdown: float, tests: int, is_paired: bool) -> Power:
    """Return the statistical power of a comparison of two runs, from the cache or by simulation.

    The parameters are those of `stats.power.compute_power`. Errors of the cache are ignored.
    """
    key = (repeats, spread, slowdown, tests, is_paired)
    name = hashlib.blake2b(ascii(key).encode(), digest_size=16).hexdigest()
    known = load_entry(POWERS, name, __version__)
    if known is not None:
        return Power(*known)
    least = compute_detectable_slowdown(repeats, spread, tests, is_paired)
    power = Power(compute_power(*key), least)
    store_entry(POWERS, name, __version__, tuple(power))
    evict_entries(POWERS, MOST_RESULTS)
    return power
