"""Summary -> CSV, one line per case of the matrix."""

from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.columns import make_case_columns

FILE_NAME = "report.csv"


def serialize(summary: Summary) -> str:
    """RFC 4180; a figure that does not exist is an empty field, its problem says why."""
    text: str = make_case_columns(summary.frame).to_csv(index=False, lineterminator="\r\n")
    return text
