"""Printed figures of a log -> one throughput, by the arithmetic of publishers' rules."""

from typing import Callable, Optional, Sequence, TypeVar

from dlperf_slurm.logs import Identity, ParsedRun
from dlperf_slurm.logs.patterns import subtract_times

Value = TypeVar("Value")
Compute = Callable[[ParsedRun, Identity], float]


class RuleError(ValueError):
    """Error of a publisher's rule that cannot compute a throughput from a log."""


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def average_harmonically(values: Sequence[float]) -> float:
    """Return the harmonic mean; raises RuleError if a value is not above 0."""
    if min(values) <= 0:
        raise RuleError("needs rates above 0 for a harmonic mean")
    return len(values) / sum(1 / value for value in values)


def take_values(values: Sequence[Value], start: int, stop: Optional[int]) -> Sequence[Value]:
    """Return `values[start:stop]`; raises RuleError if the log has fewer values."""
    needed = start + 1 if stop is None else stop
    if len(values) < needed:
        raise RuleError(f"needs at least {needed} values, but the log has {len(values)}")
    return values[start:stop]


def round_significantly(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def time_steps(times: Sequence[float], first: int, last: int, samples_per_step: int) -> float:
    """Return samples/s from the `first` to the `last` time, one per step, from 1.

    Raises RuleError if lines are missing, if time does not increase, or without a batch size.
    """
    taken = take_values(times, first - 1, last)
    seconds = subtract_times(taken[-1], taken[0])
    if seconds <= 0 or samples_per_step <= 0:
        raise RuleError("needs increasing times, and a batch size")
    return samples_per_step * (last - first) / seconds


def average_lines(
    start: int,
    stop: Optional[int] = None,
    is_per_device: bool = False,
    digits: Optional[int] = None,
    series: str = "",
) -> Compute:
    """Make a rule: the mean of the values on timed lines, or of `series`, `values[start:stop]`.

    Rounds to `digits`. The rule raises RuleError without enough values or a needed device count.
    """

    def compute(reading: ParsedRun, identity: Identity) -> float:
        if is_per_device and identity.devices <= 0:
            raise RuleError("needs the number of devices")
        values = reading.series.get(series, ()) if series else [m.value for m in reading.marks]
        rates = take_values(values, start, stop)
        figure = average(rates) * (identity.devices if is_per_device else 1)
        return figure if digits is None else round(figure, digits)

    return compute


def time_lines(first: int, last: int, after_step: int = -1) -> Compute:
    """Make a rule: samples/s, to 2 decimals, from timed line `first` to `last`, from 1.

    Only lines whose step is above `after_step` count. Raises RuleError as `time_steps` does.
    """

    def compute(reading: ParsedRun, identity: Identity) -> float:
        times = [
            mark.time for mark in reading.marks if mark.position[-1] > after_step and mark.time > 0
        ]
        return round(time_steps(times, first, last, identity.global_batch_size), 2)

    return compute


def time_between(first: int, last: int) -> Compute:
    """Make a rule: samples/s between step `first` and `last`; RuleError without their times."""

    def compute(reading: ParsedRun, identity: Identity) -> float:
        times = {mark.position[-1]: mark.time for mark in reading.marks if mark.time > 0}
        if first not in times or last not in times:
            raise RuleError(f"needs the times of steps {first} and {last}, but the log lacks one")
        samples = identity.global_batch_size * (last - first)
        return round(time_steps((times[first], times[last]), 1, 2, samples), 2)

    return compute


def average_epochs(reading: ParsedRun, identity: Identity) -> float:
    """Return the harmonic mean of the epochs' rates but the first; RuleError without two."""
    return average_harmonically(take_values(reading.series.get("epoch_rates", ()), 1, None))


def take_final(reading: ParsedRun, identity: Identity) -> float:
    """Return the first throughput that the log prints for the whole run; RuleError without it."""
    return take_values(reading.series.get("final_rates", ()), 0, 1)[0]
