"""Outcomes -> the data frames of ranks and of steps."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    REPEATED_TEXT,
    SHORT_COUNT,
    TEXT,
    Column,
    copy_column,
    make_frame_of_values,
)
from dlperf_slurm.results.repeats import REPEATS

if TYPE_CHECKING:
    from pandas import DataFrame

CASE_MEANING, REPEAT_MEANING = (column.meaning for column in REPEATS[:2])


# declared for files and docs; `_list_ranks` yields the values in this order
RANKS: tuple[Column, ...] = (
    copy_column("case_id", TEXT, "", CASE_MEANING),
    copy_column("repeat", COUNT, "", REPEAT_MEANING),
    copy_column("rank", COUNT, "", "MPI rank, from 0"),
    copy_column("local_rank", COUNT, "", "index of the rank on its host, from 0"),
    copy_column("host", TEXT, "", "host of the rank"),
    copy_column("device_name", TEXT, "", "device of the rank"),
    copy_column("window_seconds", NUMBER, "s", "time of all measured steps together"),
    copy_column("data_wait_seconds", NUMBER, "s", "time spent waiting for data during the "
        "measured steps"),
    copy_column("median_step_seconds", NUMBER, "s", "median time of the measured steps; missing "
        "for imported logs"),
    copy_column("peak_memory_bytes", COUNT, "B", "peak memory of the rank"),
    copy_column("final_loss", NUMBER, "", "loss after the last step"),
)  # fmt: skip

# declared for files and docs; `make_step_frame` fills them from whole arrays
STEPS: tuple[Column, ...] = (
    copy_column("case_id", REPEATED_TEXT, "", CASE_MEANING),
    copy_column("repeat", SHORT_COUNT, "", REPEAT_MEANING),
    copy_column("rank", SHORT_COUNT, "", "MPI rank, from 0"),
    copy_column("step", SHORT_COUNT, "", "measured step, from 1"),
    copy_column("seconds", NUMBER, "s", "time of the step, by the clock in `clock` of the repeats"),
)


def make_rank_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """Build the data frame with one row per rank of each valid repeat."""
    rows = [row for case in cases for outcome in case.outcomes for row in _list_ranks(outcome)]
    return make_frame_of_values({column.name: column.dtype for column in RANKS}, rows)


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


def _list_ranks(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    """Yield the values of RANKS for each rank of a repeat; none without a valid record."""
    if outcome.record is None:
        return
    import numpy

    seconds, results = outcome.rank_step_seconds, outcome.record.ranks
    medians = [None] * len(results) if seconds is None else numpy.median(seconds, axis=1).tolist()
    for rank, median in zip(results, medians):
        yield (
            *(outcome.case_id, outcome.repeat, rank.rank, rank.local_rank, rank.host),
            *(rank.device_name, rank.window_seconds, rank.data_wait_seconds, median),
            *(rank.peak_memory_bytes or None, rank.final_loss),
        )
