"""Timed lines of one run -> marks by rank, without duplicates; finds restarts and gaps."""

from functools import reduce
from math import gcd
from typing import Dict, List, NamedTuple, Sequence, Tuple

from dlperf_slurm.logs.lines import LogLine

Position = Tuple[int, ...]


class Mark(NamedTuple):
    """A timed line of a log: its position in training (step, or epoch and step) and its values.

    `time` is the clock time in seconds, `value` a rate or seconds, `mean` the average seconds of
    one step, if the line has that too. `number` counts a rank's intervals, if lines number them.
    """

    position: Position
    time: float = 0.0
    value: float = 0.0
    mean: float = 0.0
    number: int = 0


class Marks:
    """The timed lines (Mark) of each rank; rank -1 for lines without a launcher's label.

    A line that is printed twice, by `tee` or by a logger with two handlers, counts once.
    `may_repeat` allows equal positions: some scripts do not count updates that loss scaling skips.
    """

    def __init__(self, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self._by_rank: Dict[int, List[Mark]] = {}
        # a message if a rank's steps go back, as in a run that was started over; else ""
        self.fault = ""

    def __bool__(self) -> bool:
        return bool(self._by_rank)

    def has_rank(self, rank: int) -> bool:
        return rank in self._by_rank

    def add(self, line: LogLine, mark: Mark) -> None:
        marks = self._by_rank.setdefault(line.rank, [])
        if marks and mark.position <= marks[-1].position:
            if mark in marks[-4:]:
                return
            if self._may_repeat and mark.position == marks[-1].position:
                marks.append(mark)
                return
            self.fault = self.fault or _describe_start_over(line, marks[-1], mark)
        marks.append(mark)

    @property
    def by_rank(self) -> Dict[int, List[Mark]]:
        """The timed lines of each rank in training order, the lowest rank first."""
        return dict(sorted(self._by_rank.items()))

    @property
    def gap(self) -> str:
        """A message about the first timed lines that are missing within a rank's log; else ""."""
        return next(filter(None, map(_describe_gap, self._by_rank.values())), "")


class RankMarks:
    """The timed lines (Mark) of ranks that do not label them; a launcher may have added labels.

    Without labels, the first line of every step is assigned to one rank, the second to another.
    Ranks wait for each other in each step, so that the assignment does not matter.
    """

    def __init__(self) -> None:
        self._labelled = Marks()
        self._unlabelled: Dict[Position, Dict[int, List[Mark]]] = {}

    def __bool__(self) -> bool:
        return bool(self._labelled or self._unlabelled)

    def has_rank(self, rank: int) -> bool:
        """Return whether a timed line has a launcher's label with this rank."""
        return self._labelled.has_rank(rank)

    def add(self, line: LogLine, mark: Mark) -> None:
        if line.rank >= 0:
            self._labelled.add(line, mark)
            return
        same = self._unlabelled.setdefault(mark.position, {})
        same.setdefault(hash(line.text), []).append(mark)

    @property
    def by_rank(self) -> Dict[int, List[Mark]]:
        """The timed lines of each rank, as in `Marks`; ranks without label are -1, -2, ..."""
        by_rank = self._labelled.by_rank
        copies = self._count_copies()
        for position in sorted(self._unlabelled):
            marks = [
                mark
                for same in self._unlabelled[position].values()
                for mark in same[: len(same) // copies]
            ]
            for index, mark in enumerate(marks):
                by_rank.setdefault(-1 - index, []).append(mark)
        return by_rank

    @property
    def fault(self) -> str:
        """A message if only some lines are labelled, or a rank's steps go back; else ""."""
        if self._labelled and self._unlabelled:
            return (
                "some of the timed lines have a rank label and others do not; label all lines, "
                "such as with `srun --label`"
            )
        return self._labelled.fault

    @property
    def gap(self) -> str:
        """A message about the first step that a rank has no line of, but others have; else ""."""
        by_rank = self.by_rank
        longest = max(by_rank, key=lambda rank: len(by_rank[rank]), default=0)
        for rank, marks in by_rank.items():
            reached = {mark.position for mark in marks}
            for mark in by_rank[longest]:
                if mark.position not in reached and rank >= 0:
                    return (
                        f"the log has lines of other ranks for {format_position(mark.position)}, "
                        f"but none of rank {rank}"
                    )
                if mark.position not in reached:
                    return (
                        f"some ranks did not print all steps: {format_position(mark.position)} was "
                        f"printed by {-1 - rank} rank(s), "
                        f"{format_position(by_rank[rank][0].position)} by {-rank} or more"
                    )
        return ""

    def _count_copies(self) -> int:
        """Return how often each unlabelled line is printed (by `tee` or two log handlers)."""
        counts = (len(same) for at in self._unlabelled.values() for same in at.values())
        return reduce(gcd, counts, 0) or 1


def _describe_start_over(line: LogLine, last: Mark, mark: Mark) -> str:
    steps = f"goes back from {format_position(last.position)} to {format_position(mark.position)}"
    if line.rank >= 0:
        return f"rank {line.rank} {steps}: the run was restarted"
    return f"training {steps}: the run was restarted, or the lines of several ranks have no labels"


def _describe_gap(marks: Sequence[Mark]) -> str:
    """Return a message about the first gap in a rank's timed lines, or "".

    A gap is at least twice as long as the intervals before and after it, and these have the most
    frequent length: a script that prints less often from some step on has no gap.
    """
    pairs = [(a.position, b.position) for a, b in zip(marks, marks[1:])]
    strides = [b[-1] - a[-1] if a[:-1] == b[:-1] else 0 for a, b in pairs]
    if len(strides) < 3:
        return ""
    usual = max(set(strides), key=strides.count)
    for before, stride, after, (start, end) in zip(strides, strides[1:], strides[2:], pairs[1:]):
        if before == after == usual and 0 < 2 * usual <= stride:
            return f"the log lacks lines between steps {start[-1]} and {end[-1]}"
    return ""


def format_position(position: Position) -> str:
    """Format a position in training: "step 20", or "epoch 0 step 20"."""
    if len(position) == 1:
        return f"step {position[0]}"
    return f"epoch {position[0]} step {position[1]}"
