"""The formats of a report: one module each, found by listing; what they share are packages."""

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Optional, Protocol, cast

from dlperf_slurm.reports.summarize import Summary

if TYPE_CHECKING:
    from dlperf_slurm.reports.plots import Plot
    from dlperf_slurm.reports.plots.steps import ReadRepeat


@dataclass(frozen=True)
class Report:
    """All that a format may show; `matrix_toml` is empty where a run has none.

    `variant` is what the names of its files end with where it is not the run's plain report.
    `read_repeat` reads the steps that plots show.
    """

    summary: Summary
    plots: "Sequence[Plot]" = ()
    matrix_toml: str = ""
    variant: str = ""
    read_repeat: "Optional[ReadRepeat]" = None


class ReportFormat(Protocol):
    """A format; `SHOWS_PLOTS` where its files have to wait for them."""

    SHOWS_PLOTS: bool

    def serialize(self, report: Report) -> dict[str, bytes]:
        """The contents of its files, by their names."""
        ...


def list_formats() -> list[str]:
    """Names of the formats, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def load_format(name: str) -> ReportFormat:
    """The format's module; ModuleNotFoundError for a name not in `list_formats`."""
    return cast(ReportFormat, import_module(f"{__name__}.{name}"))
