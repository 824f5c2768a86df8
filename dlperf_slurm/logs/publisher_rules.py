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
        raise RuleError("the publisher's rule needs rates above 0 for a harmonic mean")
    return len(values) / sum(1 / value for value in values)


def take_values(values: Sequence[Value], start: int, stop: Optional[int]) -> Sequence[Value]:
    """Return `values[start:stop]`; raise RuleError if the log has fewer values."""
    needed = start + 1 if stop is None else stop
    if len(values) < needed:
        raise RuleError(
            f"the publisher's rule needs at least {needed} values, but the log has {len(values)}"
        )
    return values[start:stop]


def round_significantly(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def time_steps(times: Sequence[float], first: int, last: int, samples_per_step: int) -> float:
    """Return samples/s between the times of two steps, number `first` and `last`, counted from 1.

    There is one time for each step. Raises RuleError if the log has fewer times, if the time does
    not increase, or without a batch size (`samples_per_step`).
    """
    taken = take_values(times, first - 1, last)
    seconds = subtract_times(taken[-1], taken[0])
    if seconds <= 0 or samples_per_step <= 0:
        raise RuleError(
            "the publisher's rule needs times that increase, and the batch size: if the log lacks "
            "the batch size, add --set batch_size_per_device=..."
        )
    return samples_per_step * (last - first) / seconds


def average_lines(
    start: int,
    stop: Optional[int] = None,
    is_per_device: bool = False,
    digits: Optional[int] = None,
    series: str = "",
    line_digits: Optional[int] = None,
) -> Compute:
    """Return a rule: the mean of the values on timed lines, `values[start:stop]`.

    `series` names printed figures to take instead. With `is_per_device` the mean is multiplied by
    the number of devices; `digits` rounds the result, `line_digits` each value, to so many
    decimals. The rule raises RuleError if the log has fewer values, or if the number of devices is
    needed and missing.
    """

    def compute(parsed: ParsedRun, identity: Identity) -> float:
        if is_per_device and identity.devices <= 0:
            raise RuleError(
                "the publisher's rule needs the number of devices: add --set devices=..."
            )
        values = parsed.series.get(series, ()) if series else [m.value for m in parsed.marks]
        rates = take_values(values, start, stop)
        rates = rates if line_digits is None else [round(rate, line_digits) for rate in rates]
        figure = average(rates) * (identity.devices if is_per_device else 1)
        return figure if digits is None else round(figure, digits)

    return compute


def average_seconds(start: int, stop: Optional[int] = None) -> Compute:
    """Return a rule: the global batch size over the mean of the timed lines' `seconds[start:stop]`.

    The rule raises RuleError if the log has fewer lines, or without times or batch size above 0.
    """

    def compute(parsed: ParsedRun, identity: Identity) -> float:
        seconds = average(take_values([mark.value for mark in parsed.marks], start, stop))
        if seconds <= 0 or identity.global_batch_size <= 0:
            raise RuleError(
                "the publisher's rule needs step times above 0, and the batch size: if the log "
                "lacks the batch size, add --set batch_size_per_device=..."
            )
        return identity.global_batch_size / seconds

    return compute


def time_lines(first: int, last: int, after_step: int = -1) -> Compute:
    """Return a rule: samples/s from timed line `first` to line `last`, if each line is of one step.

    Counts from 1, and only lines with a time whose step is above `after_step`; rounds to 2
    decimals. The rule raises RuleError as `time_steps` does.
    """

    def compute(parsed: ParsedRun, identity: Identity) -> float:
        times = [
            mark.time for mark in parsed.marks if mark.position[-1] > after_step and mark.time > 0
        ]
        return round(time_steps(times, first, last, identity.global_batch_size), 2)

    return compute


def time_between(first: int, last: int) -> Compute:
    """Return a rule: samples/s between the times of step `first` and step `last`, to 2 decimals.

    The rule raises RuleError if the time of one of the steps is missing, or as `time_steps` does.
    """

    def compute(parsed: ParsedRun, identity: Identity) -> float:
        times = {mark.position[-1]: mark.time for mark in parsed.marks if mark.time > 0}
        if first not in times or last not in times:
            raise RuleError(
                f"the publisher's rule needs the times of steps {first} and {last}, but one "
                "of them is not in the log"
            )
        samples = identity.global_batch_size * (last - first)
        return round(time_steps((times[first], times[last]), 1, 2, samples), 2)

    return compute


def average_epochs(parsed: ParsedRun, identity: Identity) -> float:
    """Return the harmonic mean of the epochs' printed rates without the first epoch's.

    Raises RuleError if the log has fewer than two rates, or a rate of 0.
    """
    return average_harmonically(take_values(parsed.series.get("epoch_rates", ()), 1, None))


def take_final(parsed: ParsedRun, identity: Identity) -> float:
    """Return the first throughput that the log prints for the whole run.

    Raises RuleError if there is none.
    """
    return take_values(parsed.series.get("final_rates", ()), 0, 1)[0]


def take_last(series: str) -> Compute:
    """Return a rule: the last printed figure of `series`; RuleError if that is not above 0."""

    def compute(parsed: ParsedRun, identity: Identity) -> float:
        values = parsed.series.get(series, ())
        if not values or values[-1] <= 0:
            raise RuleError(
                f"the publisher's rule needs the {series} that the script prints, but the log has "
                "none"
            )
        return values[-1]

    return compute
