"""Report -> CSV, one line per case of the matrix."""

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.columns import serialize_csv

FILE_NAME = "report.csv"
SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """Serialize the cases as a CSV file, in full precision; a missing value is an empty field."""
    return {FILE_NAME: serialize_csv(report.summary.results.case_columns).encode()}
