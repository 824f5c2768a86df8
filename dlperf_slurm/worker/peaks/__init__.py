"""A framework and a device -> operations whose sustained rates are the device's peak.

A module here is named as its framework and has `make_product` and `make_copy`; if the framework's
ranks have a collective of their own, also `make_all_reduce`. Peaks of frameworks without a module
are not measured.
"""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Callable, List, cast

from dlperf_slurm.worker.annotations import Protocol


class Operations(Protocol):
    """The functions of a module of this package, which is named as its framework."""

    def make_product(self, setting: "PeakSettings", size: int) -> "Operation":
        """Return the multiplication of a random matrix [size, size] by itself, to be timed.

        Random, because a GPU multiplies constant matrices up to 20 % faster: fewer transistors
        switch.
        """

    def make_copy(self, setting: "PeakSettings", count: int) -> "Operation":
        """Return the copy of an array of `count` float32 numbers on the device, to be timed."""


# modules of this package that are not a framework's
_OTHERS = ("all_reduce", "device_peak", "measure")


@dataclass(frozen=True)
class PeakSettings:
    """Device ("cpu" or "cuda"), number format and CPU threads with which to compute."""

    device: str
    number_format: str
    cpus: int

    @property
    def type_name(self) -> str:
        """The type of the matrices, as all frameworks name it."""
        return {"bf16": "bfloat16", "fp16": "float16"}.get(self.number_format, "float32")


@dataclass(frozen=True)
class Operation:
    """An operation to time: `start` may return before the device is done; `wait` waits for it."""

    start: Callable[[], Any]
    wait: Callable[[Any], None]


def list_measured_frameworks() -> List[str]:
    """Return the frameworks whose peak can be measured: those with a module here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in names if name not in _OTHERS)


def load_operations(framework: str) -> Operations:
    """Import the module here that makes a framework's matrix product and copy, to be timed.

    Raises ModuleNotFoundError if there is none, or the framework is not installed.
    """
    return cast("Operations", import_module(f"{__name__}.{framework}"))
