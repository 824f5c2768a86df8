"""A plan and the spread of earlier runs -> the slowdowns that its repeats can detect."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from dlperf_slurm.plain_text import count_things
from dlperf_slurm.results.cache import evict_entries, load_entry, store_entry
from dlperf_slurm.results.significance import choose_test
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.stats.power import (
    POWER,
    compute_detectable_slowdown,
    compute_power,
    pool_spreads,
)
from dlperf_slurm.version import __version__

# the slowdown whose probability of detection (power) is reported
SLOWDOWN = 0.05

# spreads to assume without earlier runs: of a quiet and of a usual machine
_USUAL_SPREADS = (0.01, 0.03)

# the folder of the cache of simulations, which take as long as all other work of `plan`, and the
# most results in it
POWERS = "power"
MOST_RESULTS = 1000


class PlannedRepeats(NamedTuple):
    """A planned case with its number of independent samples; `unit` is "repeat" or "block".

    A block is one of several array jobs over which the repeats are spread; its sample is their
    median.
    """

    case_id: str
    number: int
    unit: str


def describe_power(
    planned: Sequence[PlannedRepeats],
    measured: Iterable[tuple[str, Sequence[float]]],
    is_paired: bool = False,
) -> list[str]:
    """Describe which slowdown a comparison of two runs would detect, one line per repeat count.

    `measured` has pairs of case id and samples, of earlier runs on the same site. The spread is the
    median over the planned cases among them; without any, typical spreads are assumed. With
    `is_paired`, the two runs are interleaved.
    """
    earlier: dict[str, list[Sequence[float]]] = {}
    for case_id, samples in measured:
        if len(samples) > 1:
            earlier.setdefault(case_id, []).append(samples)
    return [
        _describe_cases(
            [case for case in planned if (case.number, case.unit) == (count, unit)],
            earlier,
            is_paired,
        )
        for count, unit in dict.fromkeys((case.number, case.unit) for case in planned)
    ]


def _describe_cases(
    cases: Sequence[PlannedRepeats], earlier: dict[str, list[Sequence[float]]], is_paired: bool
) -> str:
    """Describe which slowdown is detectable for cases with equal numbers of samples.

    `earlier` has samples of earlier runs by case id, from which the spread is estimated.
    """
    count, what = cases[0].number, count_things(cases[0].number, cases[0].unit)
    needed = choose_test(is_paired).count_needed_values(tests=len(cases))
    comparison = "comparison of two interleaved runs" if is_paired else "comparison of two runs"
    if count < needed:
        return (
            f"{what}: too few to detect any slowdown of {_describe_count(cases)}; at least "
            f"{needed} are needed"
        )
    known = {case.case_id: earlier[case.case_id] for case in cases if case.case_id in earlier}
    if known:
        spread = compute_median([pool_spreads(runs) for runs in known.values()])
        runs = sum(map(len, known.values()))
        source = f"variation {100 * spread:.1f} % (from {runs} earlier runs)"
        detection = _describe_detection(count, spread, cases, is_paired)
        return f"{what}, {source}: a {comparison} like this one {detection}"
    told = []
    for spread in _USUAL_SPREADS:
        detection = _describe_detection(count, spread, cases, is_paired)
        told.append(f"if repeats vary by {100 * spread:.0f} %, the comparison {detection}")
    return (
        f"{what}; without earlier runs, the variation of repeats is unknown. For a {comparison} "
        f"like this one: {'; '.join(told)}"
    )


def _describe_detection(
    count: int, spread: float, cases: Sequence[PlannedRepeats], is_paired: bool
) -> str:
    """Describe how probably the slowdown SLOWDOWN is detected, and which one surely.

    "Surely" is with the probability POWER. Each of `cases` has `count` samples with the same
    relative `spread`; `is_paired`: the two runs are interleaved.
    """
    chance, least = get_power(count, spread, SLOWDOWN, len(cases), is_paired)
    return (
        f"detects a slowdown of {_describe_count(cases)} by {100 * SLOWDOWN:.0f} % with a "
        f"probability of {100 * chance:.0f} %, and by {100 * least:.1f} % with a probability of "
        f"{100 * POWER:.0f} %"
    )


def _describe_count(cases: Sequence[PlannedRepeats]) -> str:
    """Return "the case", or "one of 12 cases", for use in a sentence."""
    return "the case" if len(cases) == 1 else f"one of {len(cases)} cases"


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
