"""A history -> what files have of it, a row for each case and run: the columns of HISTORY."""

from dataclasses import replace
from typing import TYPE_CHECKING

from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    TEXT,
    THROUGHPUT,
    TIME,
    Column,
    compute_columns,
    take,
)
from dlperf_slurm.results.compare import IDENTITY
from dlperf_slurm.results.comparison_frame import declare_speed_ratio, share_case_column
from dlperf_slurm.results.history.entries import describe_software

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def _describe_software(history: "DataFrame") -> "Series":
    from pandas import Series

    facts = zip(history.versions, history.surroundings, history.tool)
    return Series([describe_software(*own) for own in facts], index=history.index, dtype=TEXT)


HISTORY: tuple[Column, ...] = (
    *map(share_case_column, IDENTITY),
    Column("parameters", TEXT, "", "sizes of the model as JSON; empty where no record tells",
        take("parameters")),
    Column("run_id", TEXT, "", "the run; ids begin with its time", take("run_id")),
    Column("run_dir", TEXT, "", "where the run lies", take("run_dir")),
    Column("created_at", TIME, "", "UTC, to the second", take("created_at")),
    Column("site", TEXT, "", "name of the site", take("site_name")),
    share_case_column("unit"),
    replace(share_case_column("samples_per_s"), compute=take("median")),
    Column("interval_low", NUMBER, THROUGHPUT, "lower end of the 95 % interval of the median; "
        "missing where repeats are too few for one", take("interval_low")),
    Column("interval_high", NUMBER, THROUGHPUT, "upper end of the 95 % interval of the median",
        take("interval_high")),
    replace(share_case_column("repeats_measured"),
        compute=lambda history: history.samples_per_s.map(len)),
    Column("repeats_planned", COUNT, "repeats", "asked for", take("planned_repeats")),
    declare_speed_ratio("throughput over that of the last run before with a figure of the case"),
    Column("p_value", NUMBER, "", "of the rank-sum test, adjusted for all runs of the case (Holm)",
        take("p_value")),
    Column("verdict", TEXT, "", "against that run: faster, slower, equivalent, undecided, "
        "not comparable; empty of the first", take("verdict")),
    Column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is one",
        take("reason")),
    Column("changes", TEXT, "", "what else is not the same as in that run, joined by semicolons",
        lambda history: history.changes.map("; ".join)),
    Column("software", TEXT, "", "versions, drivers, and the tool's own", _describe_software),
    Column("state", TEXT, "", "why there is no figure: OOM, failed, invalid, missing",
        take("state")),
    Column("problem", TEXT, "", "what is wrong with any of the repeats; empty if nothing is",
        take("problem")),
)  # fmt: skip


def make_history_frame(history: "DataFrame") -> "DataFrame":
    """Build the frame case by case, the oldest run first."""
    return compute_columns(HISTORY, history)
