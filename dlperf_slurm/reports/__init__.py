"""The report formats: one module each, `serialize(summary)` -> text, named by its file suffix."""

from importlib import import_module
from typing import Protocol, cast

from dlperf_slurm.reports.summarize import Summary

FILE_FORMATS = ("markdown", "csv", "json", "latex")


class ReportFormat(Protocol):
    FILE_NAME: str

    def serialize(self, summary: Summary) -> str: ...


def load_format(name: str) -> ReportFormat:
    """The module of a report format; ModuleNotFoundError for an unknown one."""
    return cast(ReportFormat, import_module(f"{__name__}.{name}_format"))
