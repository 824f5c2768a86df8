"""The outcomes of a case -> what a report needs of them: figures in place of ranks and steps.

A case is reduced where it is read. What is exact over all of its steps, as percentiles are, takes
all of its step times at once: a case is the most that has to be in memory.
"""

from dataclasses import dataclass, replace

from dlperf_slurm.contract.record import RankResult, Record
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.detail_frames import list_repeat_values
from dlperf_slurm.results.frame import CaseRow, make_row
from dlperf_slurm.results.stability import describe_stability


@dataclass(frozen=True)
class Reduced:
    """The figures of a case: its row without what takes other cases, and the values of its repeats.

    `is_doubtful` says that its steps or repeats have a footnote.
    """

    row: CaseRow
    repeats: list[list[object]]
    is_doubtful: bool


def reduce_case(outcomes: CaseOutcomes) -> CaseOutcomes:
    """The case with its figures; its outcomes tell still where and with what they were measured.

    They have neither the times of all ranks nor all ranks, but those of the slowest at each step.
    """
    doubts = describe_stability(outcomes)
    reduced = Reduced(make_row(outcomes, doubts), list_repeat_values(outcomes), bool(doubts))
    return replace(outcomes, outcomes=tuple(map(_abridge, outcomes.outcomes)), reduced=reduced)


def _abridge(outcome: Outcome) -> Outcome:
    record = None if outcome.record is None else abridge_record(outcome.record)
    beside = replace(outcome.beside, token_seconds=None)
    return replace(outcome, record=record, batch_seconds=(), rank_step_seconds=None, beside=beside)


def abridge_record(record: Record) -> Record:
    """The record with the slowest rank alone of those that drove devices of one name on a host."""
    slowest: dict[tuple[str, str], RankResult] = {}
    for rank in record.ranks:
        place = (rank.host, rank.device_name)
        if place not in slowest or rank.window_seconds > slowest[place].window_seconds:
            slowest[place] = rank
    return replace(record, ranks=tuple(slowest.values()))
