"""Single p-values or chances -> p-values adjusted for many tests, or the chance of many hits."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests for multiple testing (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compute_excess_chance(hits: int, chances: Sequence[float]) -> float:
    """Return the probability that at least `hits` of independent events happen.

    `chances` has each event's probability. It is the upper tail of the Poisson binomial
    distribution, computed exactly.
    """
    import numpy

    counts = numpy.ones(1)
    for chance, events in Counter(chances).items():
        counts = numpy.convolve(counts, _compute_hit_chances(events, chance))
    return min(1.0, float(counts[hits:].sum()))


@lru_cache(maxsize=64)
def _compute_hit_chances(events: int, chance: float) -> Any:
    """Return the probability that k of the events happen, for each k: float64 [events + 1].

    All events have the same chance. The binomial distribution is convolved from both halves.
    """
    import numpy

    if events == 1:
        return numpy.array([1 - chance, chance])
    half = _compute_hit_chances(events // 2, chance)
    rest = _compute_hit_chances(events - events // 2, chance)
    return numpy.convolve(half, rest)
