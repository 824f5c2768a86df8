"""Timed lines of one run, by rank: duplicates left out, starting over noticed, ranks told apart."""

from functools import reduce
from math import gcd
from typing import Dict, List, NamedTuple, Sequence, Tuple

from dlperf_slurm.logs.lines import Line

Position = Tuple[int, ...]


class Mark(NamedTuple):
    """A timed line: where in training it stands (step, or epoch and step), and what it says.

    `time` is the clock's, `value` a rate or seconds, `mean` the seconds of one step on average,
    where a line tells them beside its value. `number` counts a rank's intervals, where lines do.
    """

    position: Position
    time: float = 0.0
    value: float = 0.0
    mean: float = 0.0
    number: int = 0


class Marks:
    """The timed lines of each rank; rank -1 for lines that no launcher labelled.

    A line that is there twice, as `tee` and loggers with two handlers do it, counts once. A
    position `may_repeat` where a script does not count the updates that its loss scaling leaves
    out.
    """

    def __init__(self, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self._by_rank: Dict[int, List[Mark]] = {}
        self.start_over = ""

    def __bool__(self) -> bool:
        return bool(self._by_rank)

    def has_rank(self, rank: int) -> bool:
        return rank in self._by_rank

    def add(self, line: Line, mark: Mark) -> None:
        marks = self._by_rank.setdefault(line.rank, [])
        if marks and mark.position <= marks[-1].position:
            if mark in marks[-4:]:
                return
            if self._may_repeat and mark.position == marks[-1].position:
                marks.append(mark)
                return
            self.start_over = self.start_over or _describe_start_over(line, marks[-1], mark)
        marks.append(mark)

    @property
    def by_rank(self) -> Dict[int, List[Mark]]:
        """The marks of each rank in training's order, the lowest rank first."""
        return dict(sorted(self._by_rank.items()))

    @property
    def fault(self) -> str:
        """What is wrong with a rank's marks: it started over."""
        return self.start_over

    @property
    def gap(self) -> str:
        """Where lines within a rank's log are lost."""
        return next(filter(None, map(_describe_gap, self._by_rank.values())), "")

    @property
    def problem(self) -> str:
        """The fault, or else the gap; empty if there is neither."""
        return self.fault or self.gap


class RankMarks:
    """The marks of ranks that print without labels of their own; a launcher may have put some on.

    Without labels the first line of every step stands for one rank, the second for another: the
    ranks wait for each other in a step, so that it does not matter whose line it is.
    """

    def __init__(self) -> None:
        self._labelled = Marks()
        self._unlabelled: Dict[Position, Dict[int, List[Mark]]] = {}

    def __bool__(self) -> bool:
        return bool(self._labelled or self._unlabelled)

    def has_rank(self, rank: int) -> bool:
        """Whether a launcher's label names the rank."""
        return self._labelled.has_rank(rank)

    def add(self, line: Line, mark: Mark) -> None:
        if line.rank >= 0:
            self._labelled.add(line, mark)
            return
        same = self._unlabelled.setdefault(mark.position, {})
        same.setdefault(hash(line.text), []).append(mark)

    @property
    def by_rank(self) -> Dict[int, List[Mark]]:
        """The marks of each rank, as `Marks` has them; ranks without label are -1, -2, ..."""
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
        """Why the lines are not those of one run; empty if they are."""
        if self._labelled and self._unlabelled:
            return "some of the timed lines have a rank's label and some have none"
        return self._labelled.start_over

    @property
    def problem(self) -> str:
        """Why the ranks' lines are not those of one whole run; empty if they are."""
        return self.fault or self.gap

    @property
    def gap(self) -> str:
        """Which rank's line of which step is missing; empty if none is."""
        by_rank = self.by_rank
        longest = max(by_rank, key=lambda rank: len(by_rank[rank]))
        for rank, marks in by_rank.items():
            reached = {mark.position for mark in marks}
            for mark in by_rank[longest]:
                if mark.position not in reached and rank >= 0:
                    return f"rank {rank} has no line of {name_position(mark.position)}, others have"
                if mark.position not in reached:
                    return (
                        f"ranks' lines are missing: {-1 - rank} of {name_position(mark.position)}, "
                        f"{-rank} or more of {name_position(by_rank[rank][0].position)}"
                    )
        return ""

    def _count_copies(self) -> int:
        """How often a log without labels has each line, as `tee` or two handlers double them."""
        counts = (len(same) for at in self._unlabelled.values() for same in at.values())
        return reduce(gcd, counts, 0) or 1


def _describe_start_over(line: Line, last: Mark, mark: Mark) -> str:
    steps = f"goes back from {name_position(last.position)} to {name_position(mark.position)}"
    if line.rank >= 0:
        return f"rank {line.rank} {steps}: the run was started over"
    return (
        f"training {steps}: the log holds a run that was started over, or the ranks' lines "
        "without labels"
    )


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


def name_position(position: Position) -> str:
    """Name a place in training: "step 20", or "epoch 0 step 20"."""
    if len(position) == 1:
        return f"step {position[0]}"
    return f"epoch {position[0]} step {position[1]}"
