"""A framework and a device -> operations whose sustained rates are the device's peak.

A module here is named as its framework, and has `make_product` and `make_copy`; one whose ranks
have a collective of their own has `make_all_reduce` too. Frameworks without a module are not
measured.
"""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, List, cast

if TYPE_CHECKING:
    from typing import Protocol

    class Operations(Protocol):
        """The module of a framework."""

        def make_product(self, setting: "Setting", size: int) -> "Operation":
            """Multiply a matrix [size, size] of random numbers by itself, in this format.

            Of equal numbers a GPU multiplies up to a fifth more, as they switch fewer transistors.
            """

        def make_copy(self, setting: "Setting", count: int) -> "Operation":
            """All of an array of `count` fp32 numbers is read, and as much is written."""


# not the package's other modules
_OTHERS = ("all_reduce", "device_peak", "measure")


@dataclass(frozen=True)
class Setting:
    """Where and in what numbers to compute: `device` is cpu or cuda, on `cpus` threads."""

    device: str
    number_format: str
    cpus: int


@dataclass(frozen=True)
class Operation:
    """`start` need not wait for the device; `wait` does, for the last of what was started."""

    start: Callable[[], Any]
    wait: Callable[[Any], None]


def list_measured_frameworks() -> List[str]:
    """The frameworks that have a module here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in names if name not in _OTHERS)


def load_operations(framework: str) -> "Operations":
    """Raises ModuleNotFoundError for a framework that has no module here, or is not installed."""
    return cast("Operations", import_module(f"{__name__}.{framework}"))
