"""Report -> JSON."""

from dlperf_slurm.reports import json_format
from dlperf_slurm.reports.formats import Report

SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """The summary's figures in full precision."""
    return {json_format.FILE_NAME: json_format.serialize(report.summary).encode()}
