"""The adapters: one module (file or folder) per framework, named as in `axes.framework`.

An adapter's top level imports the standard library only, so that the login side can ask it what
it supports without the framework being there.
"""

import json
import pkgutil
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    cast,
)

from dlperf_slurm.contract.axes import (
    DEFAULT_OPTIMIZER,
    FOLDER,
    INFER,
    ON_DEVICE,
    ON_HOST,
    PIPELINE,
    PYTHON_QUEUE,
    TRAIN,
    ZMQ,
)
from dlperf_slurm.worker.models import list_models, load_model
from dlperf_slurm.worker.update_rule import ADAMW, MOMENTUM, SGD

if TYPE_CHECKING:
    from typing import Protocol

    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.session import Session

    class Adapter(Protocol):
        # by axis, "model" and "device", the values that it has; see OF_ALL and ANY
        SUPPORTED: Mapping[str, Any]
        OUT_OF_MEMORY_MESSAGES: Tuple[str, ...]

        def find_unsupported(self, case: "Case") -> Optional[str]:
            """Why this framework cannot run the case, or None. Standard library only."""

        def start(self, case: "Case", placement: "Placement") -> Session:
            """Join the process group, build model, optimizer and batch on the device.

            In mode "infer" there is neither group nor optimizer, and `placement` is in a world of
            one.
            """

        def is_out_of_memory(self, error: BaseException) -> bool: ...


@dataclass(frozen=True)
class Placement:
    """Where a rank stands, and where the ranks wait for the framework's own rendezvous.

    Rank 0 has `master_address` and `master_port`; frameworks whose ranks all listen take
    `rank_addresses`, "address:port" by rank, of which the first is rank 0's. Those that have a
    server on each node take `server_addresses`, by rank too, of the ranks with local_rank 0 and ""
    of the others. Addresses are IPv4, as the other nodes see them.
    """

    rank: int
    local_rank: int
    world_size: int
    host: str
    master_address: str
    master_port: int
    rank_addresses: Tuple[str, ...] = ()
    server_addresses: Tuple[str, ...] = ()

    def choose_gpu(self, visible: int) -> int:
        """The number of this rank's GPU among those that it sees."""
        # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
        return 0 if visible == 1 else self.local_rank


# no adapters, but what those of one framework's versions share
SHARED = {"tensorflow"}

# each value that an axis can have
ANY = None

# What all adapters support; after it each says what else it does, or that it has other values. A
# case is refused that is not at the default of an axis of which its adapter says nothing.
OF_ALL: Mapping[str, Any] = {
    "framework": ANY,
    "device": ("cpu", "cuda"),
    "topology": ANY,
    "batch_size_per_device": ANY,
    "memory_format": ("default",),
    "gradient_sync": ("native",),
    "clip_global_norm": (False, True),
    "mode": (TRAIN, INFER),
    # other scripts run without an adapter
    "script": ANY,
    "data": (ON_DEVICE, ON_HOST, PYTHON_QUEUE, PIPELINE, ZMQ, FOLDER),
    "data_workers": ANY,
    "prefetch_batches": ANY,
    "optimizer": (DEFAULT_OPTIMIZER, SGD, MOMENTUM, ADAMW),
    "gradient_accumulation": ANY,
    "activation_checkpointing": (False,),
    "loss_scale": ANY,
    "prompt_length": ANY,
    "output_tokens": (0,),
}


def find_unknown_values(case: "Case") -> Optional[str]:
    """Values of a case that its framework's adapter does not list, with those it does, or None."""
    framework = case.axes.framework
    supported = load_adapter(framework).SUPPORTED
    defaults = {axis.name: axis.default for axis in fields(case.axes)}
    values = {"model": case.model, "device": case.device, **asdict(case.axes)}
    reasons = []
    for axis, value in values.items():
        known = supported.get(axis, (defaults.get(axis),))
        if known is ANY or value in known:
            continue
        if axis in supported:
            listed = ", ".join(map(str, known))
            reasons.append(f"{framework} has no {axis} {value!r}; it has: {listed}")
        else:
            default = json.dumps(defaults[axis])
            reasons.append(
                f"{framework} does not support {axis} = {json.dumps(value)}: its adapter knows "
                f"nothing of that axis; use {default}"
            )
    return join_reasons(reasons)


def find_lack_of_gpu(case: "Case", instead: str) -> str:
    """Why the CPU does not have the precision of a case, with what it has."""
    return (
        f"{case.axes.framework}: precision {case.axes.precision!r} needs device 'cuda'; "
        f"on the CPU use {instead}"
    )


def find_lack_of_images(case: "Case") -> Optional[str]:
    """Why the model has no other order of dimensions than the default, or None."""
    if case.axes.memory_format == "default" or load_model(case.model).INPUT == "images":
        return None
    return (
        f"{case.axes.framework}: memory_format {case.axes.memory_format!r} needs images; "
        f"use 'default' for {case.model!r}"
    )


def find_twice_moved_statistics(case: "Case") -> Optional[str]:
    """Why a second forward pass of its blocks would change what the case trains, or None."""
    if not (case.axes.activation_checkpointing and load_model(case.model).HAS_BATCH_STATISTICS):
        return None
    return (
        f"{case.axes.framework}: activation_checkpointing would move the running statistics of "
        f"{case.model!r} twice a step, as it computes forward passes twice"
    )


def is_memory_error(
    error: BaseException, kinds: Tuple[Type[BaseException], ...], messages: Iterable[str]
) -> bool:
    """Whether it says that memory was too small: by its type, or by a message if of these kinds."""
    return isinstance(error, MemoryError) or (
        isinstance(error, kinds) and any(message in str(error) for message in messages)
    )


def list_builders(path: Iterable[str]) -> List[str]:
    """Names of the models for which an adapter's package, at this `__path__`, has a builder."""
    return [module.name for module in pkgutil.iter_modules(path) if module.name in list_models()]


def join_reasons(reasons: Iterable[Optional[str]]) -> Optional[str]:
    """All that stands in a case's way, in one text; None for nothing."""
    return "; also: ".join(filter(None, reasons)) or None


def list_frameworks() -> List[str]:
    """Names of the adapters in this package, sorted."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} - SHARED)


def load_adapter(framework: str) -> "Adapter":
    """The adapter module; ModuleNotFoundError for a name not in `list_frameworks`."""
    return cast("Adapter", import_module(f"{__name__}.{framework}"))
