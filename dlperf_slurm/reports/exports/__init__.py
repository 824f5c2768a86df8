"""The formats of other programs, which `report --format` prints: one plug-in module each."""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from dlperf_slurm.reports.summarize import Summary


class Export(Protocol):
    """The interface of a module."""

    def serialize(self, summary: "Summary") -> str:
        """Return the text of a run's export in this format."""
        ...


def list_exports() -> list[str]:
    """List the names of the export formats, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_export(name: str) -> Export:
    """Import an export format's module; ModuleNotFoundError for a name not in `list_exports`."""
    return cast(Export, import_module(f"{__name__}.{name}"))
