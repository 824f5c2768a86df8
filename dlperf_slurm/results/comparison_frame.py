"""Comparisons of two runs -> a frame of them, with the columns of COMPARISON."""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.cases import find_unit
from dlperf_slurm.results.columns import (
    CASE_ID,
    COUNT,
    MODEL,
    NUMBER,
    TEXT,
    THROUGHPUT,
    Column,
    declare_bounds,
    make_frame,
)
from dlperf_slurm.results.compare import MEAN_LATENCY, Comparison, RunComparison
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import find_median

if TYPE_CHECKING:
    from pandas import DataFrame


def _find_unit(comparison: Comparison) -> str:
    return "ms" if comparison.quantity == MEAN_LATENCY else find_unit(comparison.model)


def _find_median(comparison: Comparison, samples: tuple[float, ...]) -> Optional[float]:
    median = find_median(samples)
    return 1000 * median if median and comparison.quantity == MEAN_LATENCY else median


def get_speed_ratio(comparison: Comparison) -> Ratio:
    """The ratio of a comparison, with its interval."""
    return Ratio(comparison.speed_ratio, comparison.interval)


COMPARISON: tuple[Column, ...] = (
    CASE_ID,
    MODEL,
    *(column for column in CASES if column.name in AXES),
    Column("quantity", TEXT, "", "throughput or mean latency"),
    Column("unit", TEXT, "", "of both medians", _find_unit),
    Column("median_a", NUMBER, THROUGHPUT, "median over the sound repeats of run A",
        lambda c: _find_median(c, c.samples_a)),
    Column("median_b", NUMBER, THROUGHPUT, "median over the sound repeats of run B",
        lambda c: _find_median(c, c.samples_b)),
    Column("repeats_a", COUNT, "repeats", "of run A with a sound record",
        lambda c: len(c.samples_a)),
    Column("repeats_b", COUNT, "repeats", "of run B with a sound record",
        lambda c: len(c.samples_b)),
    *declare_bounds("speed_ratio", "ratio", "speed of B over that of A, also for latencies: below "
        "1 B is slower", get_speed_ratio),
    Column("p_value", NUMBER, "", "of the test for any difference, adjusted for all comparisons "
        "(Holm)"),
    Column("verdict", TEXT, "", "faster, slower, equivalent, undecided, not comparable"),
    Column("deciding_repeats", COUNT, "repeats", "in each run that would decide, about; missing "
        "where it is decided, or where no repeats would"),
    Column("reason", TEXT, "", "why there is no verdict on the speed, or what it takes; empty if "
        "there is one"),
    Column("changes", TEXT, "", "what else is not the same in both runs, joined by semicolons",
        lambda c: "; ".join(c.changes)),
)  # fmt: skip


def make_comparison_frame(compared: RunComparison) -> "DataFrame":
    """A row for each quantity of each case of either run."""
    return make_frame(COMPARISON, compared.comparisons)
