"""Chances of single events, p-values of single tests -> those of all of them together."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, raised so that all verdicts hold together (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compute_excess_chance(hits: int, chances: Sequence[float]) -> float:
    """The probability that at least `hits` of independent events happen, each with its chance.

    It is the upper tail of the Poisson binomial distribution, exact.
    """
    import numpy

    counts = numpy.ones(1)
    for chance, events in Counter(chances).items():
        counts = numpy.convolve(counts, _compute_hit_chances(events, chance))
    return min(1.0, float(counts[hits:].sum()))


@lru_cache(maxsize=64)
def _compute_hit_chances(events: int, chance: float) -> Any:
    """The chances that k of the events happen, each with the same chance: float64 [k].

    They are made of the chances of both halves of the events.
    """
    import numpy

    if events == 1:
        return numpy.array([1 - chance, chance])
    half = _compute_hit_chances(events // 2, chance)
    rest = _compute_hit_chances(events - events // 2, chance)
    return numpy.convolve(half, rest)
