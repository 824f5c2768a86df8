"""Report -> Parquet."""

from dlperf_slurm.reports import parquet
from dlperf_slurm.reports.formats import Report

SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """The summary's figures in full precision."""
    return {parquet.FILE_NAME: parquet.serialize(report.summary)}
