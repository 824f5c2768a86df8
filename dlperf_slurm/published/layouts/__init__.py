"""Published table layouts: one module each, found by listing; what they share is a package."""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pandas import DataFrame

    from dlperf_slurm.published.layouts.parts.document import Document

# not a module here: the tables of `reports`
DEFAULT_LAYOUT = "default"


class Layout(Protocol):
    def lay_out(self, figures: "DataFrame") -> "Document":
        """Make the tables of figures, as `parts.figures` has them."""


def list_layouts() -> list[str]:
    """Names of the layouts, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def load_layout(name: str) -> Layout:
    """The module of a layout; ModuleNotFoundError for a name not in `list_layouts`."""
    return cast(Layout, import_module(f"{__name__}.{name}"))
