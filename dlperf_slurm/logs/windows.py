"""Marks of a rank, or printed intervals of steps -> the window that throughput is computed from.

A mark is a timed line of a log (`marks.Mark`), a window the measured steps of a rank. A function
that makes one returns a tuple with it, or () if that is not possible.
"""

from dataclasses import dataclass, replace
from statistics import median
from typing import Iterable, List, Sequence, Tuple

from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import subtract_times

WARMUP_STEPS = 20
"""Default number of warm-up steps of a log; in a log with fewer than 80 steps, a quarter."""

SAMPLES, TOKENS, STEPS = "samples", "tokens", "steps"

Interval = Tuple[int, float]
"""Number of steps, and their duration in seconds or their rate in samples/s."""


@dataclass(frozen=True)
class Window:
    """The measured steps of a rank: those timed after the warm-up; rank -1 is the whole job.

    A window has either `seconds` or a rate: `samples_per_s` is the harmonic mean weighted by steps,
    of the job or of one device; by its `unit` it counts tokens or steps instead of samples.
    `step_seconds` are the times of single steps, if the log has them.
    """

    rank: int
    steps: int
    seconds: float = 0.0
    samples_per_s: float = 0.0
    is_per_device: bool = False
    step_seconds: Tuple[float, ...] = ()
    unit: str = SAMPLES

    def describe(self) -> str:
        """Return what was measured, as the log prints it: "894 ms a step", "14.2 steps/s"."""
        if self.seconds > 0:
            return f"{_format_figure(self.seconds / self.steps * 1000)} ms a step"
        device = " per device" if self.is_per_device else ""
        return f"{_format_figure(self.samples_per_s)} {self.unit}/s{device}"


def _format_figure(value: float) -> str:
    """Format a figure with four significant digits, and all digits before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def make_rate_window(
    rank: int, rates: Iterable[Interval], is_per_device: bool = False
) -> Tuple[Window, ...]:
    """Make a rank's window of measured steps from printed rates, (steps, samples/s).

    Its rate is their harmonic mean weighted by steps, or 0 if one is 0. Empty without rates.
    """
    taken = list(rates)
    steps = sum(count for count, _ in taken)
    if not taken:
        return ()
    if min(rate for _, rate in taken) <= 0:
        return (Window(rank=rank, steps=steps, is_per_device=is_per_device),)
    rate = steps / sum(count / rate for count, rate in taken)
    return (Window(rank=rank, steps=steps, samples_per_s=rate, is_per_device=is_per_device),)


def make_printed_window(
    rank: int, marks: Sequence[Mark], warmup_marks: int = 0
) -> Tuple[Window, ...]:
    """Make the Window of the rates on timed lines, over the same steps as `make_time_window`."""
    warm = marks[warmup_marks - 1 :] if 0 < warmup_marks < len(marks) else marks
    return make_rate_window(rank, [entry for entry in list_between(warm) if entry[0] > 0])


def make_warm_rate_window(
    rank: int, intervals: Sequence[Interval], is_per_device: bool = False
) -> Tuple[Window, ...]:
    """Make a rank's window of (steps, samples/s) after the warm-up; empty if none is left."""
    return make_rate_window(rank, drop_warmup(intervals), is_per_device)


def make_warm_window(
    rank: int, intervals: Sequence[Interval], micro_batches: int = 1
) -> Tuple[Window, ...]:
    """Make a rank's window of intervals (steps, seconds) after the warm-up; empty if none is left.

    Each step counts as `micro_batches` steps: batches of gradient accumulation.
    """
    return make_seconds_window(rank, drop_warmup(intervals), micro_batches)


def make_time_window(
    rank: int, marks: Sequence[Mark], warmup_marks: int = 0, micro_batches: int = 1
) -> Tuple[Window, ...]:
    """Make a rank's window of measured steps from the times between timed lines of the same epoch.

    The first interval of an epoch, whose start time is not in the log, is left out, and so is the
    time between epochs. The last of the first `warmup_marks` lines begins the window; a log with no
    more lines has only its first interval left out. An interval whose position does not advance
    counts as many steps as the shortest one. Each step counts as `micro_batches` steps. If each
    interval has one step, they are the step times. Empty without intervals, or if time goes back.
    """
    warm = marks[warmup_marks - 1 :] if 0 < warmup_marks < len(marks) else marks
    intervals = list_timed(warm)
    stride = min((count for count, _ in intervals if count > 0), default=1)
    if min((seconds for _, seconds in intervals), default=0.0) < 0:
        return ()
    return make_seconds_window(
        rank, [(count or stride, seconds) for count, seconds in intervals], micro_batches
    )


def make_time_or_rate_window(rank: int, marks: Sequence[Mark]) -> Tuple[Window, ...]:
    """Make a rank's window from the times on timed lines, or from rates if a line has no time.

    The first interval of an epoch is left out, as in `make_time_window`.
    """
    if all(mark.time > 0 for mark in marks):
        return make_time_window(rank, marks)
    return make_rate_window(rank, list_between(marks))


def make_seconds_window(
    rank: int, intervals: Sequence[Interval], micro_batches: int = 1
) -> Tuple[Window, ...]:
    """Make a rank's window of intervals (steps, seconds); empty if the seconds sum to 0.

    Each step counts as `micro_batches` steps: batches of gradient accumulation.
    """
    steps, seconds = sum(count for count, _ in intervals), sum(taken for _, taken in intervals)
    if steps <= 0 or seconds <= 0:
        return ()
    is_stepwise = micro_batches == 1 and all(count == 1 for count, _ in intervals)
    step_seconds = tuple(taken for _, taken in intervals) if is_stepwise else ()
    return (
        Window(rank=rank, steps=steps * micro_batches, seconds=seconds, step_seconds=step_seconds),
    )


def drop_warmup(intervals: Sequence[Interval], warmup_steps: int = -1) -> List[Interval]:
    """Return the intervals that begin after the warm-up; none if it ends in the last one.

    The warm-up has `warmup_steps`. If these are negative, it has WARMUP_STEPS or a quarter of all
    steps, whichever is less, but at least the first interval.
    """
    if warmup_steps < 0:
        warmup_steps = max(min(WARMUP_STEPS, sum(steps for steps, _ in intervals) // 4), 1)
    done = 0
    for index, (steps, _) in enumerate(intervals):
        if done >= warmup_steps:
            return list(intervals[index:])
        done += steps
    return []


def list_since_last(marks: Sequence[Mark]) -> List[Interval]:
    """Return (steps, value) of each timed line: the steps since the line before, and its value.

    The first line of an epoch has the steps since the epoch's start. Values are seconds or rates.
    """
    intervals = []
    epoch: Tuple[int, ...] = ()
    done = 0
    for mark in marks:
        done = done if mark.position[:-1] == epoch else 0
        intervals.append((mark.position[-1] - done, mark.value))
        epoch, done = mark.position[:-1], mark.position[-1]
    return intervals


def list_timed(marks: Sequence[Mark]) -> List[Interval]:
    """Return (steps, seconds by the clock) between timed lines of the same epoch."""
    return [
        (after.position[-1] - before.position[-1], subtract_times(after.time, before.time))
        for before, after in _pair_within_epochs(marks)
    ]


def list_between(marks: Sequence[Mark]) -> List[Interval]:
    """Return (steps, value) of each timed line but an epoch's first; steps since the one before."""
    return [
        (after.position[-1] - before.position[-1], after.value)
        for before, after in _pair_within_epochs(marks)
    ]


def spread_over_epochs(marks: Sequence[Mark]) -> List[Interval]:
    """Return (steps, value) of each timed line: steps since the line before.

    An epoch's first line gets the largest number of steps between two lines. This does not depend
    on whether the steps of an epoch count from 0 or 1.
    """
    gaps = [
        after.position[1] - before.position[1] if after.position[0] == before.position[0] else 0
        for before, after in zip(marks, marks[1:])
    ]
    usual = max(gaps, default=0) or 1
    return [(gap or usual, mark.value) for gap, mark in zip([0, *gaps], marks)]


def count_steps(marks: Sequence[Mark]) -> List[int]:
    """Return the steps since the line before, for each timed line; the first gets the second's.

    A run may resume from a checkpoint, so that the first line's steps are not known. A single line
    gives none.
    """
    counts = [after.position[-1] - before.position[-1] for before, after in zip(marks, marks[1:])]
    return counts[:1] + counts


def count_timed_steps(marks: Sequence[Mark]) -> List[int]:
    """Return the steps that each line's seconds cover; the first line gets those of the second.

    If a line is lost, the steps since the line before are those of several intervals, but the
    seconds are those of one: the steps of one interval are returned. Lost lines show in the numbers
    of intervals (`Mark.number`), or, without them, in seconds nearer to those of one interval.
    """
    gaps = count_steps(marks)[1:]
    passed = [
        after.number - before.number if 0 < before.number < after.number else 1
        for before, after in zip(marks, marks[1:])
    ]
    gaps = [gap // count if gap % count == 0 else gap for gap, count in zip(gaps, passed)]
    usual = min(set(gaps), key=lambda gap: (-gaps.count(gap), gap), default=0)
    of_usual = [mark.value for gap, mark in zip(gaps, marks[1:]) if gap == usual and mark.value > 0]
    if usual > 0 and of_usual:
        seconds = median(of_usual)
        gaps = [
            usual if gap >= 2 * usual and mark.value**2 < seconds**2 * gap / usual else gap
            for gap, mark in zip(gaps, marks[1:])
        ]
    return gaps[:1] + gaps


def merge_unlabelled(windows: Sequence[Window]) -> Tuple[Window, ...]:
    """Replace the windows of ranks without label (-1, -2, ...) by the slowest one, as the job's."""
    labelled = [window for window in windows if window.rank >= 0]
    unlabelled = [window for window in windows if window.rank < 0]
    if unlabelled:
        slowest = max(unlabelled, key=lambda window: window.seconds / window.steps)
        labelled.append(replace(slowest, rank=-1))
    return tuple(labelled)


def _pair_within_epochs(marks: Sequence[Mark]) -> List[Tuple[Mark, Mark]]:
    return [
        (before, after)
        for before, after in zip(marks, marks[1:])
        if before.position[:-1] == after.position[:-1]
    ]
