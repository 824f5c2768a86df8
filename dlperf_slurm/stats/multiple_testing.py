"""Single p-values or chances -> p-values adjusted for many tests, or the chance of many hits."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests for multiple testing (Holm 1979), in the given order."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compute_excess_chance(hits: int, chances: Sequence[float]) -> float:
    """Return the probability that at least `hits` of several independent events happen.

    `chances` has the probability of each event. The result is the exact upper tail of the Poisson
    binomial distribution.
    """
    import numpy

    counts = numpy.ones(1)
    for chance, events in Counter(chances).items():
        counts = numpy.convolve(counts, _compute_hit_chances(events, chance))
    return min(1.0, float(counts[hits:].sum()))


@lru_cache(maxsize=64)
def _compute_hit_chances(events: int, chance: float) -> Any:
    """Return the probability that exactly k of `events` events happen, for each k: [events + 1].

    The events are independent, each with probability `chance`. Their binomial distribution is
    convolved from those of both halves.
    """
    import numpy

    if events == 1:
        return numpy.array([1 - chance, chance])
    half = _compute_hit_chances(events // 2, chance)
    rest = _compute_hit_chances(events - events // 2, chance)
    return numpy.convolve(half, rest)
