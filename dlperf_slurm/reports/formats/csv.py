"""Report -> CSV, one line per case of the matrix."""

from typing import TYPE_CHECKING

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.case_columns import make_case_columns
from dlperf_slurm.results.columns import serialize_csv

if TYPE_CHECKING:
    from pandas import DataFrame

FILE_NAME = "report.csv"
SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """The frame of cases with every figure in full precision."""
    return {FILE_NAME: serialize_cases(report.summary.frame).encode()}


def serialize_cases(frame: "DataFrame") -> str:
    """RFC 4180; a figure that does not exist is an empty field, its problem says why."""
    return serialize_csv(make_case_columns(frame))
