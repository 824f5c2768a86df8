"""Timelines -> a frame of them, a row for each case and run: columns of the cases, and of runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    TEXT,
    THROUGHPUT,
    TIME,
    Column,
    get,
    make_frame,
)
from dlperf_slurm.results.comparison_frame import (
    declare_identity,
    declare_speed_ratio,
    share_case_column,
)
from dlperf_slurm.results.history.entries import describe_software
from dlperf_slurm.results.history.timeline import Point, Timeline
from dlperf_slurm.results.labels import find_unit

if TYPE_CHECKING:
    from pandas import DataFrame


def _find_text(point: Point, name: str) -> str:
    return getattr(point.comparison, name) if point.comparison else ""


HISTORY: tuple[Column, ...] = (
    *declare_identity("entry."),
    Column("parameters", TEXT, "", "sizes of the model as JSON; empty where no record tells",
        get("entry.parameters")),
    Column("run_id", TEXT, "", "the run; ids begin with its time", get("entry.run_id")),
    Column("run_dir", TEXT, "", "where the run lies", get("entry.run_dir")),
    Column("created_at", TIME, "", "UTC, to the second", get("entry.created_at")),
    Column("site", TEXT, "", "name of the site", get("entry.site_name")),
    replace(share_case_column("unit", ""), compute=lambda point: find_unit(point.entry.model)),
    share_case_column("samples_per_s", "median"),
    Column("interval_low", NUMBER, THROUGHPUT, "lower end of the 95 % interval of the median; "
        "missing where repeats are too few for one", get("interval.low")),
    Column("interval_high", NUMBER, THROUGHPUT, "upper end of the 95 % interval of the median",
        get("interval.high")),
    replace(share_case_column("repeats_measured", ""),
        compute=lambda point: len(point.entry.samples_per_s)),
    Column("repeats_planned", COUNT, "repeats", "asked for", get("entry.planned_repeats")),
    *declare_speed_ratio("throughput over that of the last run before with a "
        "figure of the case", "comparison."),
    Column("p_value", NUMBER, "", "of the rank-sum test, adjusted for all runs of the case (Holm)",
        get("comparison.p_value")),
    Column("verdict", TEXT, "", "against that run: faster, slower, equivalent, undecided, "
        "not comparable; empty of the first", lambda point: _find_text(point, "verdict")),
    Column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is one",
        lambda point: _find_text(point, "reason")),
    Column("changes", TEXT, "", "what else is not the same as in that run, joined by semicolons",
        lambda point: "; ".join(point.comparison.changes if point.comparison else ())),
    Column("software", TEXT, "", "versions, drivers, and the tool's own",
        lambda point: describe_software(point.entry)),
    Column("state", TEXT, "", "why there is no figure: OOM, failed, invalid, missing",
        get("entry.state")),
    Column("problem", TEXT, "", "what is wrong with any of the repeats; empty if nothing is",
        get("entry.problem")),
)  # fmt: skip


def make_history_frame(timelines: Sequence[Timeline]) -> "DataFrame":
    """Build the frame case by case, the oldest run first."""
    return make_frame(HISTORY, (point for timeline in timelines for point in timeline.points))
