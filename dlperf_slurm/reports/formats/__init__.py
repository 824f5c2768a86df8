"""The formats of a report: one plug-in module each; subpackages have shared code."""

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Optional, Protocol, cast

if TYPE_CHECKING:
    from dlperf_slurm.reports.plots import Plot
    from dlperf_slurm.reports.plots.steps import ReadRepeat
    from dlperf_slurm.reports.summarize import Summary


@dataclass(frozen=True)
class Report:
    """The input of all formats.

    `matrix_toml` is the text of the matrix file, "" if the run has none. `variant` is a suffix of
    file names that tells reports with other plots or additional tables apart; "" for the plain
    report. `read_repeat` reads the step times for plots.
    """

    summary: "Summary"
    plots: "Sequence[Plot]" = ()
    matrix_toml: str = ""
    variant: str = ""
    read_repeat: "Optional[ReadRepeat]" = None


class ReportFormat(Protocol):
    """The interface of a format's module.

    SHOWS_PLOTS is whether the files contain plots.
    """

    SHOWS_PLOTS: bool

    def serialize(self, report: Report) -> dict[str, bytes]:
        """Return the contents of the report's files by file name."""
        ...


def list_formats() -> list[str]:
    """List the names of the report formats, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def load_format(name: str) -> ReportFormat:
    """Import a report format's module; ModuleNotFoundError for a name not in `list_formats`."""
    return cast(ReportFormat, import_module(f"{__name__}.{name}"))
