"""Timed lines of one run, by rank: duplicates left out, starting over noticed."""

from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

from dlperf_slurm.logs.reading.times import subtract_times
from dlperf_slurm.logs.reading.windows import Window

Position = Tuple[int, ...]


class Mark(NamedTuple):
    """A timed line: where in training it stands (step, or epoch and step), and what it says."""

    position: Position
    time: float
    value: float


class Marks:
    """The marks of each rank in training's order; rank -1 for lines that no launcher labelled.

    A line that is there twice, as `tee` and loggers with two handlers do it, counts once. A
    position `may_repeat` where a script does not count the updates that its loss scaling leaves
    out.
    """

    def __init__(self, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self.by_rank: Dict[int, List[Mark]] = {}
        self._start_over = ""

    def __bool__(self) -> bool:
        return bool(self.by_rank)

    def add(self, rank: int, position: Position, time: float, value: float) -> None:
        marks = self.by_rank.setdefault(rank, [])
        mark = Mark(position, time, value)
        if marks and position <= marks[-1].position:
            if mark in marks[-4:]:
                return
            if self._may_repeat and position == marks[-1].position:
                marks.append(mark)
                return
            where = " ".join(map(str, position))
            self._start_over = self._start_over or (
                f"training goes back from {' '.join(map(str, marks[-1].position))} to {where}: "
                "the log holds a run that was started over, or the ranks' lines without labels"
            )
        marks.append(mark)

    @property
    def problem(self) -> str:
        """What is wrong with a rank's marks: it started over, or lines within its log are lost."""
        if self._start_over:
            return self._start_over
        return next(filter(None, map(_describe_gap, self.by_rank.values())), "")

    def list_values(self) -> Tuple[float, ...]:
        """The values of the lowest rank that printed, which is what publishers' scripts read."""
        marks = self.by_rank[min(self.by_rank)] if self.by_rank else []
        return tuple(mark.value for mark in marks)

    def describe_ranks_without(self, ended_ranks: Set[int]) -> str:
        """Which ranks timed steps but are not among the `ended_ranks`, or only that there are."""
        missing = sorted(set(self.by_rank) - ended_ranks)
        if not missing:
            return ""
        return f" of ranks {', '.join(map(str, missing))}" if missing[-1] >= 0 else " of the job"


def _describe_gap(marks: Sequence[Mark]) -> str:
    """Where lines of a rank are missing, if so.

    Such a gap is at least twice as long as the two intervals around it, which are as long as most:
    a script that prints less often from some step on has no such place.
    """
    pairs = [(a.position, b.position) for a, b in zip(marks, marks[1:])]
    strides = [b[-1] - a[-1] if a[:-1] == b[:-1] else 0 for a, b in pairs]
    if len(strides) < 3:
        return ""
    usual = max(set(strides), key=strides.count)
    for before, stride, after, (start, end) in zip(strides, strides[1:], strides[2:], pairs[1:]):
        if before == after == usual and 0 < 2 * usual <= stride:
            return f"the log has no line between steps {start[-1]} and {end[-1]}"
    return ""


def make_time_windows(
    rank: int, marks: Sequence[Mark], warmup_marks: int = 0, micro_batches: int = 1
) -> Tuple[Window, ...]:
    """The time between marks of the same epoch, summed; none if there are no two, or no time.

    `position` is (step,) or (epoch, step). The first interval of an epoch has no time of its
    beginning in the log and is left out, and with it what lies between epochs; of the
    `warmup_marks` first marks, the last one begins the window. An interval between marks one step
    apart is a step time. Where the position stays, as many steps were made as in the least advance.
    """
    warm = marks[max(warmup_marks - 1, 0) :]
    intervals = [
        (mark.position[-1] - before.position[-1], subtract_times(mark.time, before.time))
        for before, mark in zip(warm, warm[1:])
        if before.position[:-1] == mark.position[:-1]
    ]
    stride = min((count for count, _ in intervals if count > 0), default=1)
    intervals = [(count or stride, seconds) for count, seconds in intervals]
    steps = sum(count for count, _ in intervals)
    seconds = sum(seconds for _, seconds in intervals)
    if steps <= 0 or min((seconds for _, seconds in intervals), default=0.0) < 0 or seconds <= 0:
        return ()
    is_stepwise = micro_batches == 1 and all(count == 1 for count, _ in intervals)
    return (
        Window(
            rank=rank,
            steps=steps * micro_batches,
            seconds=seconds,
            step_seconds=tuple(seconds for _, seconds in intervals) if is_stepwise else (),
        ),
    )
