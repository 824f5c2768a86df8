"""Printed figures -> one figure, by the arithmetic that publishers' rules are made of."""

from typing import Optional, Sequence

from dlperf_slurm.logs.reading.times import subtract_times


class RuleError(ValueError):
    """Why a publisher's rule gives no figure for a log."""


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def average_harmonically(values: Sequence[float]) -> float:
    if min(values) <= 0:
        raise RuleError("a harmonic mean has no use for a rate of 0")
    return len(values) / sum(1 / value for value in values)


def take_values(values: Sequence[float], start: int, stop: Optional[int]) -> Sequence[float]:
    """`values[start:stop]`, all of which must be there; RuleError if the log has fewer."""
    needed = start + 1 if stop is None else stop
    if len(values) < needed:
        raise RuleError(f"takes at least {needed} values, the log has {len(values)}")
    return values[start:stop]


def round_significantly(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def time_steps(times: Sequence[float], first: int, last: int, samples_per_step: int) -> float:
    """Samples/s from line `first` to line `last`, counted from 1, where a line is a step."""
    taken = take_values(times, first - 1, last)
    seconds = subtract_times(taken[-1], taken[0])
    if seconds <= 0 or samples_per_step <= 0:
        raise RuleError("takes times that go forward, and a batch size")
    return samples_per_step * (last - first) / seconds
