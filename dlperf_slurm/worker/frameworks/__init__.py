"""The adapters: one module (file or folder) per framework, named as in `axes.framework`.

An adapter's top level imports the standard library only, so that the login side can ask it what
it supports without the framework being there.
"""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, cast

if TYPE_CHECKING:
    from typing import Protocol

    from dlperf_slurm.contract import Case

    class StepClock(Protocol):
        """Takes the boundaries between steps without disturbing them."""

        name: str

        def mark(self, index: int) -> None:
            """Take boundary `index`; neither waits for the device nor allocates."""

        def read_step_seconds(self) -> List[float]:
            """Times between consecutive boundaries; called after the last device sync."""

    class Session(Protocol):
        """A model on a device, ready to step; everything is built before it is returned."""

        parameter_count: int
        device_name: str
        versions: Dict[str, str]

        def step(self) -> None:
            """One optimizer update over one global batch, without reading anything back."""

        def synchronize(self) -> None:
            """Wait until the device has done all that was asked of it."""

        def make_clock(self, boundaries: int) -> StepClock:
            """A clock for `boundaries` marks, allocated beforehand."""

        def reset_peak_memory(self) -> None: ...

        def read_peak_memory_bytes(self) -> int: ...

        def read_loss(self) -> float:
            """The last step's loss on this rank, read back from the device."""

        def close(self) -> None:
            """Leave the process group; called on success only."""

    class Adapter(Protocol):
        PRECISIONS: Any
        COMPILERS: Any
        MEMORY_FORMATS: Any
        DISTRIBUTIONS: Any

        def find_unsupported(self, case: "Case") -> Optional[str]:
            """Why this framework cannot run the case, or None. Standard library only."""

        def start(self, case: "Case", placement: "Placement") -> Session:
            """Join the process group, build model, optimizer and batch on the device."""

        def is_out_of_memory(self, error: BaseException) -> bool: ...


@dataclass(frozen=True)
class Placement:
    """Where a rank stands, and where the ranks wait for the framework's own rendezvous.

    Rank 0 has `master_address` and `master_port`; frameworks whose ranks all listen take
    `rank_addresses`, "host:port" by rank, of which the first is rank 0's.
    """

    rank: int
    local_rank: int
    world_size: int
    host: str
    master_address: str
    master_port: int
    rank_addresses: Tuple[str, ...] = ()


def list_frameworks() -> List[str]:
    """Names of the adapters in this package, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_adapter(framework: str) -> "Adapter":
    """The adapter module; ModuleNotFoundError for a name not in `list_frameworks`."""
    return cast("Adapter", import_module(f"{__name__}.{framework}"))
