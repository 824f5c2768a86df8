"""Outcomes -> the data frames of ranks and of steps."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from dlperf_slurm.contract.record import RankResult
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    REPEATED_TEXT,
    SHORT_COUNT,
    TEXT,
    Column,
    make_frame,
)
from dlperf_slurm.results.repeats import REPEATS

if TYPE_CHECKING:
    from pandas import DataFrame

CASE_MEANING, REPEAT_MEANING = (column.meaning for column in REPEATS[:2])


class _Rank(NamedTuple):
    """A rank of a valid repeat, from which a row of the data frame of ranks is computed."""

    outcome: Outcome
    result: RankResult
    median_step_seconds: Optional[float]


RANKS: tuple[Column, ...] = (
    Column("case_id", TEXT, "", CASE_MEANING, attrgetter("outcome.case_id")),
    Column("repeat", COUNT, "", REPEAT_MEANING, attrgetter("outcome.repeat")),
    Column("rank", COUNT, "", "MPI rank, from 0", attrgetter("result.rank")),
    Column("local_rank", COUNT, "", "index of the rank on its host, from 0",
        attrgetter("result.local_rank")),
    Column("host", TEXT, "", "host of the rank", attrgetter("result.host")),
    Column("device_name", TEXT, "", "device of the rank", attrgetter("result.device_name")),
    Column("window_seconds", NUMBER, "s", "time of all measured steps together",
        attrgetter("result.window_seconds")),
    Column("data_wait_seconds", NUMBER, "s", "time spent waiting for data during the "
        "measured steps",
        attrgetter("result.data_wait_seconds")),
    Column("median_step_seconds", NUMBER, "s", "median time of the measured steps; missing for "
        "imported logs",
        attrgetter("median_step_seconds")),
    Column("peak_memory_bytes", COUNT, "B", "peak memory of the rank",
        lambda row: row.result.peak_memory_bytes or None),
    Column("final_loss", NUMBER, "", "loss after the last step",
        attrgetter("result.final_loss")),
)  # fmt: skip

# filled from whole arrays by `make_step_frame`
STEPS: tuple[Column, ...] = tuple(
    Column(name, dtype, unit, meaning, attrgetter(name)) for name, dtype, unit, meaning in (
        ("case_id", REPEATED_TEXT, "", CASE_MEANING),
        ("repeat", SHORT_COUNT, "", REPEAT_MEANING),
        ("rank", SHORT_COUNT, "", "MPI rank, from 0"),
        ("step", SHORT_COUNT, "", "measured step, from 1"),
        ("seconds", NUMBER, "s", "time of the step, by the clock in `clock` of the repeats"),
    ))  # fmt: skip


def make_rank_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """Build the data frame with one row per rank of each valid repeat."""
    return make_frame(RANKS, (row for c in cases for o in c.outcomes for row in _list_ranks(o)))


def make_step_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """Build the data frame with one row per measured step (from 1) of each rank.

    Columns: case_id, repeat, rank, step, seconds. For speed with millions of rows, columns are
    built from whole arrays [ranks, steps], and case ids are categorical.
    """
    import numpy
    from pandas import Categorical, DataFrame

    timed = [o for c in cases for o in c.outcomes if o.record and o.rank_step_seconds is not None]
    case_ids = list(dict.fromkeys(outcome.case_id for outcome in timed))
    numbers = {case_id: number for number, case_id in enumerate(case_ids)}
    times: list[Any] = [outcome.rank_step_seconds for outcome in timed]
    sizes = [seconds.size for seconds in times]
    ranks = [
        numpy.array([rank.rank for rank in o.record.ranks], "int32") for o in timed if o.record
    ]
    steps = [numpy.arange(1, seconds.shape[1] + 1, dtype="int32") for seconds in times]
    codes = numpy.repeat(numpy.array([numbers[o.case_id] for o in timed], "int32"), sizes)
    return DataFrame(
        {
            "case_id": Categorical.from_codes(codes, categories=case_ids),
            "repeat": numpy.repeat(numpy.array([o.repeat for o in timed], "int32"), sizes),
            "rank": _join([numpy.repeat(r, len(s)) for r, s in zip(ranks, steps)], "int32"),
            "step": _join([numpy.tile(s, len(r)) for r, s in zip(ranks, steps)], "int32"),
            "seconds": _join([seconds.ravel() for seconds in times], "float64"),
        }
    )


def _join(arrays: Sequence[Any], dtype: str) -> Any:
    """Concatenate arrays to one of type `dtype`; without arrays it is empty."""
    import numpy

    return numpy.concatenate([numpy.empty(0, dtype), *arrays], dtype=dtype)


def _list_ranks(outcome: Outcome) -> Iterator[_Rank]:
    """Yield the ranks of a repeat, each with its median step time; none without a valid record."""
    if outcome.record is None:
        return
    import numpy

    seconds, results = outcome.rank_step_seconds, outcome.record.ranks
    medians = [None] * len(results) if seconds is None else numpy.median(seconds, axis=1).tolist()
    for result, median in zip(results, medians):
        yield _Rank(outcome, result, median)
