"""Timelines -> a frame of them, a row for each case and run: columns of the cases, and of runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.cases import find_unit
from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    TEXT,
    TIME,
    Column,
    declare_bounds,
    follow,
    make_frame,
)
from dlperf_slurm.results.comparison_frame import get_speed_ratio
from dlperf_slurm.results.history.entries import describe_software
from dlperf_slurm.results.history.timeline import Point, Timeline
from dlperf_slurm.results.ratios import Ratio

if TYPE_CHECKING:
    from pandas import DataFrame

_OF_CASES = {column.name: column for column in CASES}


def _share(name: str, source: str = "") -> Column:
    """A column of the frame of cases; a point has its value there, or its entry as a case has."""
    column = _OF_CASES[name]
    return column._replace(source=source or (lambda point: column.find(point.entry)))


def _find_speed_ratio(point: Point) -> Optional[Ratio]:
    return get_speed_ratio(point.comparison) if point.comparison else None


def _find_text(point: Point, name: str) -> str:
    return follow(point.comparison, name) or ""


HISTORY: tuple[Column, ...] = (
    *map(_share, ("case_id", "model", *AXES)),
    Column("parameters", TEXT, "", "sizes of the model as JSON; empty where no record tells",
        "entry.parameters"),
    Column("run_id", TEXT, "", "the run; ids begin with its time", "entry.run_id"),
    Column("run_dir", TEXT, "", "where the run lies", "entry.run_dir"),
    Column("created_at", TIME, "", "UTC, to the second", "entry.created_at"),
    Column("site", TEXT, "", "name of the site", "entry.site_name"),
    _share("unit")._replace(source=lambda point: find_unit(point.entry.model)),
    _share("samples_per_s", "median"),
    _share("interval_low", "interval.low"),
    _share("interval_high", "interval.high"),
    _share("repeats_measured")._replace(source=lambda point: len(point.entry.samples_per_s)),
    Column("repeats_planned", COUNT, "repeats", "asked for", "entry.planned_repeats"),
    *declare_bounds("speed_ratio", "ratio", "throughput over that of the last run before with a "
        "figure of the case", _find_speed_ratio),
    Column("p_value", NUMBER, "", "of the rank-sum test, adjusted for all runs of the case (Holm)",
        "comparison.p_value"),
    Column("verdict", TEXT, "", "against that run: faster, slower, equivalent, undecided, "
        "not comparable; empty of the first", lambda point: _find_text(point, "verdict")),
    Column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is one",
        lambda point: _find_text(point, "reason")),
    Column("changes", TEXT, "", "what else is not the same as in that run, joined by semicolons",
        lambda point: "; ".join(follow(point, "comparison.changes") or ())),
    Column("software", TEXT, "", "versions, drivers, and the tool's own",
        lambda point: describe_software(point.entry)),
    Column("state", TEXT, "", "why there is no figure: OOM, failed, invalid, missing",
        "entry.state"),
    Column("problem", TEXT, "", "what is wrong with any of the repeats; empty if nothing is",
        "entry.problem"),
)  # fmt: skip


def make_history_frame(timelines: Sequence[Timeline]) -> "DataFrame":
    """Case by case, the oldest run first."""
    return make_frame(HISTORY, (point for timeline in timelines for point in timeline.points))
