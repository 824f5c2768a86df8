"""Report -> Parquet."""

from dlperf_slurm.reports import parquet
from dlperf_slurm.reports.formats import Report

FILE_NAME = parquet.FILE_NAME
SHOWS_PLOTS = False


def serialize(report: Report) -> bytes:
    """The summary's figures in full precision."""
    return parquet.serialize(report.summary)
