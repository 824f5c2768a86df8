"""Lines that every rank prints for a step, with labels of a launcher or without -> each rank's."""

from dataclasses import replace
from functools import reduce
from math import gcd
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.windows import Window

Position = Tuple[int, ...]


class Entry(NamedTuple):
    """What a rank printed at a position of training: step, or epoch and step."""

    position: Position
    values: Tuple[float, ...]


class RankLines:
    """Timed lines of all ranks; ranks that no launcher labelled are told apart by their number.

    Without labels the first line of every step stands for one rank, the second for another: the
    ranks wait for each other in a step, so that it does not matter whose line it is.
    """

    def __init__(self) -> None:
        self._labelled: Dict[int, List[Entry]] = {}
        self._unlabelled: Dict[Position, Dict[int, List[Entry]]] = {}
        self._back = ""

    def __bool__(self) -> bool:
        return bool(self._labelled or self._unlabelled)

    def add(self, line: Line, position: Position, values: Iterable[float]) -> None:
        entry = Entry(position, tuple(values))
        if line.rank < 0:
            same = self._unlabelled.setdefault(position, {})
            same.setdefault(hash(line.text), []).append(entry)
            return
        entries = self._labelled.setdefault(line.rank, [])
        if entries and position <= entries[-1].position:
            if entry in entries[-4:]:
                return
            self._back = self._back or (
                f"rank {line.rank} goes back from {_name(entries[-1].position)} "
                f"to {_name(position)}: the run was started over"
            )
        entries.append(entry)

    def list_by_rank(self) -> Dict[int, List[Entry]]:
        """The lines of each rank in training's order; ranks without label are -1, -2, ..."""
        by_rank = {rank: list(entries) for rank, entries in sorted(self._labelled.items())}
        copies = self._count_copies()
        for position in sorted(self._unlabelled):
            entries = [
                entry
                for same in self._unlabelled[position].values()
                for entry in same[: len(same) // copies]
            ]
            for index, entry in enumerate(entries):
                by_rank.setdefault(-1 - index, []).append(entry)
        return by_rank

    def find_problem(self) -> str:
        """Why the ranks' lines are not those of one whole run; empty if they are."""
        if self._labelled and self._unlabelled:
            return "some of the timed lines have a rank's label and some have none"
        by_rank = self.list_by_rank()
        longest = max(by_rank, key=lambda rank: len(by_rank[rank]))
        for rank, entries in by_rank.items():
            reached = {entry.position for entry in entries}
            for entry in by_rank[longest]:
                if entry.position not in reached and rank >= 0:
                    return f"rank {rank} has no line of {_name(entry.position)}, others have"
                if entry.position not in reached:
                    return (
                        f"ranks' lines are missing: {-1 - rank} of {_name(entry.position)}, "
                        f"{-rank} or more of {_name(by_rank[rank][0].position)}"
                    )
        return self._back

    def _count_copies(self) -> int:
        """How often a log without labels has each line, as `tee` or two handlers double them."""
        counts = (len(same) for at in self._unlabelled.values() for same in at.values())
        return reduce(gcd, counts, 0) or 1


def merge_unlabelled(windows: Sequence[Window]) -> Tuple[Window, ...]:
    """Windows of seconds of ranks -1, -2, ... -> the slowest, as the job's; the others stay."""
    labelled = [window for window in windows if window.rank >= 0]
    unlabelled = [window for window in windows if window.rank < 0]
    if unlabelled:
        labelled.append(replace(max(unlabelled, key=_compute_step_time), rank=-1))
    return tuple(labelled)


def _compute_step_time(window: Window) -> float:
    return window.seconds / window.steps


def _name(position: Position) -> str:
    if len(position) == 1:
        return f"step {position[0]}"
    return f"epoch {position[0]} step {position[1]}"
