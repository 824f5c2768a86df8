"""Published table layouts, one module each, found by listing this package."""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pandas import DataFrame

    from dlperf_slurm.published.layouts.parts.document import Document

# not a module of this package: the tables of `reports`
DEFAULT_LAYOUT = "default"


class Layout(Protocol):
    """A module of this package, named as in `report --layout`."""

    def lay_out(self, figures: "DataFrame") -> "Document":
        """Return the tables of a frame of figures, which has the columns in `parts.figures`."""


def list_layouts() -> list[str]:
    """Return the sorted names of all published layouts, such as "dlperf"."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def load_layout(name: str) -> Layout:
    """Return the module of a layout; raises ModuleNotFoundError for an unknown name."""
    return cast(Layout, import_module(f"{__name__}.{name}"))
