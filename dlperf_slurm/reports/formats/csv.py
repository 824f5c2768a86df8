"""Report -> CSV."""

from dlperf_slurm.reports import csv_format
from dlperf_slurm.reports.formats import Report

FILE_NAME = csv_format.FILE_NAME
SHOWS_PLOTS = False


def serialize(report: Report) -> bytes:
    """The summary's figures in full precision."""
    return csv_format.serialize(report.summary).encode()
