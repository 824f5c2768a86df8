"""A plan and the spread of earlier runs -> the slowdowns that its repeats can detect."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from dlperf_slurm.plain_text import count_things
from dlperf_slurm.results.cache import evict_entries, load_entry, store_entry
from dlperf_slurm.results.significance import choose_test
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.stats.power import POWER, compute_detectable_slowdown, compute_power, pool_spreads
from dlperf_slurm.version import __version__

# the slowdown whose probability of detection (power) is reported
SLOWDOWN = 0.05

# spreads to assume without earlier runs: of a quiet and of a usual machine
_USUAL_SPREADS = (0.01, 0.03)

# the folder of the cache of simulations, which take as long as all other work of `plan`, and the
# most results in it
POWERS = "power"
MOST_RESULTS = 1000


def describe_power(
    planned: Mapping[str, tuple[int, str]],
    measured: Iterable[tuple[str, Sequence[float]]],
    is_paired: bool = False,
) -> list[str]:
    """Describe which slowdown a comparison of two runs would detect, one line per repeat count.

    `planned` has (number, "repeat" or "block") of the independent samples by case id: a block is
    one of several array jobs over which repeats are spread, whose sample is their median.
    `measured` has pairs of case id and samples, of earlier runs on the same site. The spread is the
    median over the planned cases among them; without any, typical spreads are assumed. With
    `is_paired`, the two runs are interleaved.
    """
    earlier: dict[str, list[Sequence[float]]] = {}
    for case_id, samples in measured:
        if len(samples) > 1:
            earlier.setdefault(case_id, []).append(samples)
    lines = []
    for count, unit in dict.fromkeys(planned.values()):
        case_ids = [case_id for case_id, own in planned.items() if own == (count, unit)]
        known = [earlier[case_id] for case_id in case_ids if case_id in earlier]
        lines.append(_describe_cases(count, unit, len(case_ids), known, is_paired))
    return lines


def _describe_cases(
    count: int,
    unit: str,
    case_count: int,
    known: Sequence[Sequence[Sequence[float]]],
    is_paired: bool,
) -> str:
    """Describe which slowdown is detectable for a number of cases with `count` samples each.

    `known` has, for each case that earlier runs measured, its samples in each of these runs. The
    spread is estimated from them.
    """
    what = count_things(count, unit)
    needed = choose_test(is_paired).count_needed_values(tests=case_count)
    comparison = "comparison of two interleaved runs" if is_paired else "comparison of two runs"
    if count < needed:
        return (
            f"{what}: too few to detect any slowdown of {_describe_count(case_count)}; at least "
            f"{needed} are needed"
        )
    if known:
        spread = compute_median([*map(pool_spreads, known)])
        runs = sum(map(len, known))
        source = f"variation {100 * spread:.1f} % (from {runs} earlier runs)"
        detection = _describe_detection(count, spread, case_count, is_paired)
        return f"{what}, {source}: a {comparison} like this one {detection}"
    told = []
    for spread in _USUAL_SPREADS:
        detection = _describe_detection(count, spread, case_count, is_paired)
        told.append(f"if repeats vary by {100 * spread:.0f} %, the comparison {detection}")
    return (
        f"{what}; without earlier runs, the variation of repeats is unknown. For a {comparison} "
        f"like this one: {'; '.join(told)}"
    )


def _describe_detection(count: int, spread: float, case_count: int, is_paired: bool) -> str:
    """Describe how probably the slowdown SLOWDOWN is detected, and which one surely.

    "Surely" is with the probability POWER. Each case has `count` samples with the same relative
    `spread`; `is_paired`: the two runs are interleaved.
    """
    chance, least = get_power(count, spread, SLOWDOWN, case_count, is_paired)
    return (
        f"detects a slowdown of {_describe_count(case_count)} by {100 * SLOWDOWN:.0f} % with a "
        f"probability of {100 * chance:.0f} %, and by {100 * least:.1f} % with a probability of "
        f"{100 * POWER:.0f} %"
    )


def _describe_count(case_count: int) -> str:
    """Return "the case", or "one of 12 cases", for use in a sentence."""
    return "the case" if case_count == 1 else f"one of {case_count} cases"


def get_power(
    repeats: int, spread: float, slowdown: float, tests: int, is_paired: bool
) -> tuple[float, float]:
    """Return the probability of detecting a slowdown, and the one that is detected with POWER.

    `repeats` (of each run) vary by `spread`, the standard deviation of their logarithms; `slowdown`
    is a fraction, `tests` the number of cases compared together; `is_paired`: the runs are
    interleaved. The results of the simulations are cached; errors of the cache are ignored.
    """
    key = (repeats, spread, slowdown, tests, is_paired)
    name = hashlib.blake2b(ascii(key).encode(), digest_size=16).hexdigest()
    known: Optional[tuple[float, float]] = load_entry(POWERS, name, __version__)
    if known is None:
        least = compute_detectable_slowdown(repeats, spread, tests, is_paired)
        known = (compute_power(*key), least)
        store_entry(POWERS, name, __version__, known)
        evict_entries(POWERS, MOST_RESULTS)
    return known
