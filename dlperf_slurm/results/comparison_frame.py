"""Pairs of samples of two runs -> what files have of them: the columns of COMPARISON."""

from dataclasses import replace
from typing import TYPE_CHECKING

from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    TEXT,
    THROUGHPUT,
    Column,
    compute_columns,
    take,
    with_bounds,
)
from dlperf_slurm.results.compare import IDENTITY, MEAN_LATENCY, RunComparison
from dlperf_slurm.results.labels import find_unit
from dlperf_slurm.stats.median import find_median

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def share_case_column(name: str) -> Column:
    """Declare a column of `cases` for a frame that has its values under the same name."""
    column = next(column for column in CASES if column.name == name)
    return replace(column, compute=take(name), bounds=(), extremes=(), hidden=())


def declare_speed_ratio(meaning: str) -> Column:
    """Declare a speed ratio with its interval."""
    bounds = with_bounds("speed_ratio")
    names = ["speed_ratio", *bounds]
    return Column(names[0], NUMBER, "ratio", meaning, lambda pairs: pairs[names], bounds)


def _find_medians(pairs: "DataFrame", samples: "Series") -> "Series":
    factors = pairs.quantity.map({MEAN_LATENCY: 1000.0}).fillna(1.0)
    return factors * samples.map(find_median).astype(NUMBER)


COMPARISON: tuple[Column, ...] = (
    *map(share_case_column, IDENTITY),
    Column("quantity", TEXT, "", "throughput or mean latency", take("quantity")),
    Column("unit", TEXT, "", "of both medians",
        lambda pairs: pairs.model.map(find_unit).mask(pairs.quantity == MEAN_LATENCY, "ms")),
    Column("median_a", NUMBER, THROUGHPUT, "median over the sound repeats of run A",
        lambda pairs: _find_medians(pairs, pairs.samples_a)),
    Column("median_b", NUMBER, THROUGHPUT, "median over the sound repeats of run B",
        lambda pairs: _find_medians(pairs, pairs.samples_b)),
    Column("repeats_a", COUNT, "repeats", "of run A with a sound record",
        lambda pairs: pairs.samples_a.map(len)),
    Column("repeats_b", COUNT, "repeats", "of run B with a sound record",
        lambda pairs: pairs.samples_b.map(len)),
    declare_speed_ratio("speed of B over that of A, also for latencies: below 1 B is slower"),
    Column("p_value", NUMBER, "", "of the test for any difference, adjusted for all comparisons "
        "(Holm)", take("p_value")),
    Column("verdict", TEXT, "", "faster, slower, equivalent, undecided, not comparable",
        take("verdict")),
    Column("deciding_repeats", COUNT, "repeats", "in each run that would decide, about; missing "
        "where it is decided, or where no repeats would", take("deciding_repeats")),
    Column("reason", TEXT, "", "why there is no verdict on the speed, or what it takes; empty if "
        "there is one", take("reason")),
    Column("changes", TEXT, "", "what else is not the same in both runs, joined by semicolons",
        lambda pairs: pairs.changes.map("; ".join)),
)  # fmt: skip


def make_comparison_frame(compared: RunComparison) -> "DataFrame":
    """Build a row for each quantity of each case of either run."""
    return compute_columns(COMPARISON, compared.pairs)
