"""Comparisons of two runs -> a frame of them, with the columns of COMPARISON."""

from dataclasses import replace
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.columns import COUNT, NUMBER, TEXT, THROUGHPUT, Column, get, make_frame
from dlperf_slurm.results.compare import MEAN_LATENCY, Comparison, RunComparison
from dlperf_slurm.results.labels import find_unit
from dlperf_slurm.stats.median import find_median

if TYPE_CHECKING:
    from pandas import DataFrame


def _find_unit(comparison: Comparison) -> str:
    return "ms" if comparison.quantity == MEAN_LATENCY else find_unit(comparison.model)


def _find_median(comparison: Comparison, samples: tuple[float, ...]) -> Optional[float]:
    median = find_median(samples)
    return 1000 * median if median and comparison.quantity == MEAN_LATENCY else median


def share_case_column(name: str, path: str) -> Column:
    """Declare a column of `cases` for a frame whose rows have its value at this path."""
    column = next(column for column in CASES if column.name == name)
    return replace(column, compute=get(path), bounds=(), extremes=(), hidden=())


def declare_identity(place: str) -> list[Column]:
    """Declare case_id, model and axes of the object at this place of a row."""
    # "max" and ladders are no numbers, and a dynamic loss scale is none
    paths = {"loss_scale": "constant_loss_scale"}
    names = ("case_id", "model", *AXES)
    columns = [share_case_column(name, place + paths.get(name, name)) for name in names]
    find_size = get(f"{place}batch_size_per_device")
    return [
        replace(column, compute=lambda row: str(find_size(row)))
        if column.name == "batch_size_per_device"
        else column
        for column in columns
    ]


def declare_speed_ratio(meaning: str, place: str) -> list[Column]:
    """Declare the speed ratio of the comparison at this place of a row, and its interval's ends."""
    name, ends = "speed_ratio", ("lower", "upper")
    return [
        Column(name, NUMBER, "ratio", meaning, get(f"{place}speed_ratio")),
        *(
            Column(
                f"{name}_{end}", NUMBER, "ratio",
                f"{word} end of the 95 % interval of `{name}`", get(f"{place}interval.{end}"),
            )
            for word, end in zip(ends, ("low", "high"))
        ),
    ]  # fmt: skip


COMPARISON: tuple[Column, ...] = (
    *declare_identity(""),
    Column("quantity", TEXT, "", "throughput or mean latency", get("quantity")),
    Column("unit", TEXT, "", "of both medians", _find_unit),
    Column("median_a", NUMBER, THROUGHPUT, "median over the sound repeats of run A",
        lambda c: _find_median(c, c.samples_a)),
    Column("median_b", NUMBER, THROUGHPUT, "median over the sound repeats of run B",
        lambda c: _find_median(c, c.samples_b)),
    Column("repeats_a", COUNT, "repeats", "of run A with a sound record",
        lambda c: len(c.samples_a)),
    Column("repeats_b", COUNT, "repeats", "of run B with a sound record",
        lambda c: len(c.samples_b)),
    *declare_speed_ratio("speed of B over that of A, also for latencies: below "
        "1 B is slower", ""),
    Column("p_value", NUMBER, "", "of the test for any difference, adjusted for all comparisons "
        "(Holm)", get("p_value")),
    Column("verdict", TEXT, "", "faster, slower, equivalent, undecided, not comparable",
        get("verdict")),
    Column("deciding_repeats", COUNT, "repeats", "in each run that would decide, about; missing "
        "where it is decided, or where no repeats would", get("deciding_repeats")),
    Column("reason", TEXT, "", "why there is no verdict on the speed, or what it takes; empty if "
        "there is one", get("reason")),
    Column("changes", TEXT, "", "what else is not the same in both runs, joined by semicolons",
        lambda c: "; ".join(c.changes)),
)  # fmt: skip


def make_comparison_frame(compared: RunComparison) -> "DataFrame":
    """Build a row for each quantity of each case of either run."""
    return make_frame(COMPARISON, compared.comparisons)
