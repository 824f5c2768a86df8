"""Printed figures -> one figure, by the arithmetic that publishers' rules are made of."""

from typing import Callable, Optional, Sequence, TypeVar

from dlperf_slurm.logs import Identity, Reading
from dlperf_slurm.logs.patterns import subtract_times

Value = TypeVar("Value")
Compute = Callable[[Reading, Identity], float]


class RuleError(ValueError):
    """Why a publisher's rule gives no figure for a log."""


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def average_harmonically(values: Sequence[float]) -> float:
    """The harmonic mean; RuleError where a value is 0."""
    if min(values) <= 0:
        raise RuleError("a harmonic mean has no use for a rate of 0")
    return len(values) / sum(1 / value for value in values)


def take_values(values: Sequence[Value], start: int, stop: Optional[int]) -> Sequence[Value]:
    """The `values[start:stop]`, all of which must be there; RuleError if the log has fewer."""
    needed = start + 1 if stop is None else stop
    if len(values) < needed:
        raise RuleError(f"takes at least {needed} values, the log has {len(values)}")
    return values[start:stop]


def round_significantly(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def time_steps(times: Sequence[float], first: int, last: int, samples_per_step: int) -> float:
    """Samples/s from line `first` to line `last`, counted from 1, where a line is a step.

    RuleError if the log has fewer lines, if their times do not go forward, or without a batch size.
    """
    taken = take_values(times, first - 1, last)
    seconds = subtract_times(taken[-1], taken[0])
    if seconds <= 0 or samples_per_step <= 0:
        raise RuleError("takes times that go forward, and a batch size")
    return samples_per_step * (last - first) / seconds


def average_lines(
    start: int,
    stop: Optional[int] = None,
    is_per_device: bool = False,
    digits: Optional[int] = None,
    series: str = "",
) -> Compute:
    """A rule that averages the `values[start:stop]`, times the devices if of one each.

    They are the lines' values, or those of a series.

    It raises RuleError if the log has fewer, or does not tell the devices that it needs.
    """

    def compute(reading: Reading, identity: Identity) -> float:
        if is_per_device and identity.devices <= 0:
            raise RuleError("takes the number of devices")
        values = reading.series.get(series, ()) if series else [m.value for m in reading.marks]
        rates = take_values(values, start, stop)
        figure = average(rates) * (identity.devices if is_per_device else 1)
        return figure if digits is None else round(figure, digits)

    return compute


def time_lines(first: int, last: int, after_step: int = -1) -> Compute:
    """A rule that takes the time from line `first` to line `last`, 2 decimals; a line is a step.

    Lines are counted from 1, and only those that have a time, and that come after the step. It
    raises RuleError as `time_steps` does.
    """

    def compute(reading: Reading, identity: Identity) -> float:
        times = [
            mark.time for mark in reading.marks if mark.position[-1] > after_step and mark.time > 0
        ]
        return round(time_steps(times, first, last, identity.global_batch_size), 2)

    return compute


def time_between(first: int, last: int) -> Compute:
    """A rule that takes the time from step `first` to step `last`, 2 decimals.

    It raises RuleError if the log lacks the time of one of them.
    """

    def compute(reading: Reading, identity: Identity) -> float:
        times = {mark.position[-1]: mark.time for mark in reading.marks if mark.time > 0}
        if first not in times or last not in times:
            raise RuleError(f"takes the times of steps {first} and {last}, the log lacks one")
        samples = identity.global_batch_size * (last - first)
        return round(time_steps((times[first], times[last]), 1, 2, samples), 2)

    return compute


def average_epochs(reading: Reading, identity: Identity) -> float:
    """The rule that takes the harmonic mean of the epochs' printed rates but the first.

    RuleError if the log has fewer than two, or one of 0.
    """
    return average_harmonically(take_values(reading.series.get("epoch_rates", ()), 1, None))


def take_final(reading: Reading, identity: Identity) -> float:
    """The rule that takes the figure that the log itself gives for the run, the first one.

    RuleError if it gives none.
    """
    return take_values(reading.series.get("final_rates", ()), 0, 1)[0]
