"""Outcomes -> the step times of every rank, by case and repeat, of the cases to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.stability import describe_stability


@dataclass(frozen=True)
class RepeatSteps:
    """`seconds` is an array [ranks, steps]; `ranks` and `hosts` are those of its rows."""

    repeat: int
    samples_per_s: float
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    seconds: Any


@dataclass(frozen=True)
class CaseSteps:
    """The repeats of a case that kept step times, by their number."""

    case_id: str
    repeats: tuple[RepeatSteps, ...]

    @property
    def middle(self) -> RepeatSteps:
        """The repeat whose throughput is the median one, of two the slower."""
        ordered = sorted(self.repeats, key=lambda repeat: (repeat.samples_per_s, repeat.repeat))
        return ordered[(len(ordered) - 1) // 2]


def list_case_steps(cases: Sequence[CaseOutcomes]) -> list[CaseSteps]:
    """Of the cases that have any; logs of other people's scripts have none."""
    found = [CaseSteps(c.case.case_id, tuple(_list_repeats(c))) for c in cases]
    return [steps for steps in found if steps.repeats]


def _list_repeats(outcomes: CaseOutcomes) -> list[RepeatSteps]:
    return [
        _make_repeat(outcome.repeat, outcome.record, outcome.rank_step_seconds)
        for outcome in outcomes.outcomes
        if outcome.record is not None and outcome.rank_step_seconds is not None
    ]


def _make_repeat(repeat: int, record: Record, seconds: Any) -> RepeatSteps:
    return RepeatSteps(
        repeat,
        record.samples_per_s,
        tuple(rank.rank for rank in record.ranks),
        tuple(rank.host for rank in record.ranks),
        seconds,
    )


def list_doubtful(cases: Sequence[CaseOutcomes]) -> list[str]:
    """Ids of the cases whose steps or repeats have a footnote."""
    return [c.case.case_id for c in cases if describe_stability(c)]
