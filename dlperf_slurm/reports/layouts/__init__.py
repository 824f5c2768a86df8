"""Published table layouts: one module each, `lay_out(figures)` -> a document, named by its file."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from dlperf_slurm.reports.layouts.document import Document
    from dlperf_slurm.reports.layouts.figures import LayoutFigure

LAYOUTS = ("dlperf", "nvidia", "tensorpack")
# not a module here: the tables of `reports`
DEFAULT_LAYOUT = "default"


class Layout(Protocol):
    def lay_out(self, figures: "Sequence[LayoutFigure]") -> "Document": ...


def load_layout(name: str) -> Layout:
    """The module of a layout; ModuleNotFoundError for an unknown one."""
    return cast(Layout, import_module(f"{__name__}.{name}"))
