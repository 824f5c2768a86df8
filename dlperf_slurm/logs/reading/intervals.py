"""Printed intervals of a run, (steps, figure) each -> those after its warm-up."""

from typing import List, Sequence, Tuple

from dlperf_slurm.logs.reading.windows import Window, make_rate_window

WARMUP_STEPS = 20
"""As many as this project's own worker leaves out; a quarter of a run that is shorter than 80."""

Interval = Tuple[int, float]


def drop_warmup(intervals: Sequence[Interval]) -> List[Interval]:
    """The intervals that begin when the warm-up is over; none if it ends in the last one."""
    warmup_steps = min(WARMUP_STEPS, sum(steps for steps, _ in intervals) // 4)
    done = 0
    for index, (steps, _) in enumerate(intervals):
        if done >= max(warmup_steps, 1):
            return list(intervals[index:])
        done += steps
    return []


def make_seconds_windows(rank: int, intervals: Sequence[Interval]) -> Tuple[Window, ...]:
    """The window of intervals (steps, seconds) without their warm-up; none if nothing is left."""
    warm = drop_warmup(intervals)
    steps, seconds = sum(count for count, _ in warm), sum(taken for _, taken in warm)
    if steps <= 0 or seconds <= 0:
        return ()
    is_per_step = all(count == 1 for count, _ in warm)
    step_seconds = tuple(taken for _, taken in warm) if is_per_step else ()
    return (Window(rank=rank, steps=steps, seconds=seconds, step_seconds=step_seconds),)


def make_rate_windows(
    rank: int, intervals: Sequence[Interval], is_per_device: bool = False
) -> Tuple[Window, ...]:
    """The window of intervals (steps, samples/s) without their warm-up; none if nothing is left."""
    warm = drop_warmup(intervals)
    return (make_rate_window(rank, warm, is_per_device),) if warm else ()
