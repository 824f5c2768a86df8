"""Report -> CSV."""

from dlperf_slurm.reports import csv_format
from dlperf_slurm.reports.formats import Report

SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """The summary's figures in full precision."""
    return {csv_format.FILE_NAME: csv_format.serialize(report.summary).encode()}
