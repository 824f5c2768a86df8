"""The adapters: one module (file or package) per framework, named as in `axes.framework`.

At module top an adapter imports the standard library only, so that the login node can ask what the
adapter supports without having the framework installed.
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
        # supported values of each axis, and of "model" and "device"; see OF_ALL and ANY
        SUPPORTED: Mapping[str, Any]
        OUT_OF_MEMORY_MESSAGES: Tuple[str, ...]

        def find_unsupported(self, case: "Case") -> Optional[str]:
            """Return why this framework cannot run the case, or None if it can.

            Uses the standard library only.
            """

        def start(self, case: "Case", placement: "Placement") -> Session:
            """Join the process group and build model, optimizer and batch on the device.

            Mode "infer" has no process group and no optimizer, and `placement` has a world size of
            1.
            """

        def is_out_of_memory(self, error: BaseException) -> bool: ...


@dataclass(frozen=True)
class Placement:
    """A rank's position in the job and the addresses for the framework's rendezvous.

    `master_address` and `master_port` belong to rank 0. `rank_addresses` has "address:port" of each
    rank, for frameworks in which every rank listens; the first is rank 0's. `server_addresses` has
    "address:port" of each rank with local_rank 0 and "" of the others, for frameworks that run one
    server per node. Addresses are IPv4, as the other nodes resolve them.
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
        """Return the index of this rank's GPU among the `visible` GPUs."""
        # Under srun --gpus-per-task=1 each rank sees only its own GPU, as index 0.
        return 0 if visible == 1 else self.local_rank


# packages that hold code shared by several adapters and are no adapters themselves
SHARED = {"tensorflow"}

# in SUPPORTED: any value of that axis
ANY = None

# Default of each adapter's SUPPORTED, in which the adapter overrides axes. For an axis that is not
# in an adapter's SUPPORTED, that adapter accepts the axis's default value only.
OF_ALL: Mapping[str, Any] = {
    "framework": ANY,
    "device": ("cpu", "cuda"),
    "topology": ANY,
    "batch_size_per_device": ANY,
    "memory_format": ("default",),
    "gradient_sync": ("native",),
    "clip_global_norm": (False, True),
    "mode": (TRAIN, INFER),
    # external scripts run without an adapter
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
    """Return which values of a case its adapter does not support, and what it supports, or None."""
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
    """Return the message that a precision needs a GPU; `instead` names what the CPU has."""
    return (
        f"{case.axes.framework}: precision {case.axes.precision!r} needs device 'cuda'; "
        f"on the CPU use {instead}"
    )


def find_lack_of_images(case: "Case") -> Optional[str]:
    """Return why memory_format must be 'default' (the model has no image input), or None."""
    if case.axes.memory_format == "default" or load_model(case.model).INPUT == "images":
        return None
    return (
        f"{case.axes.framework}: memory_format {case.axes.memory_format!r} needs images; "
        f"use 'default' for {case.model!r}"
    )


def find_twice_moved_statistics(case: "Case") -> Optional[str]:
    """Return why activation checkpointing would change the training result, or None.

    Recomputing a forward pass updates batch normalization's running statistics a second time.
    """
    if not (case.axes.activation_checkpointing and load_model(case.model).HAS_BATCH_STATISTICS):
        return None
    return (
        f"{case.axes.framework}: activation_checkpointing would move the running statistics of "
        f"{case.model!r} twice a step, as it computes forward passes twice"
    )


def is_memory_error(
    error: BaseException, kinds: Tuple[Type[BaseException], ...], messages: Iterable[str]
) -> bool:
    """Return whether `error` means out of memory.

    True for MemoryError, and for an exception of one of `kinds` whose text contains one of
    `messages`.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, kinds) and any(message in str(error) for message in messages)
    )


def list_builders(path: Iterable[str]) -> List[str]:
    """Return the models for which the adapter package with this `__path__` has a builder module."""
    return [module.name for module in pkgutil.iter_modules(path) if module.name in list_models()]


def join_reasons(reasons: Iterable[Optional[str]]) -> Optional[str]:
    """Join the reasons that are not empty into one text; None if there are none."""
    return "; also: ".join(filter(None, reasons)) or None


def list_frameworks() -> List[str]:
    """Return the names of the adapters in this package, sorted."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} - SHARED)


def load_adapter(framework: str) -> "Adapter":
    """Import an adapter.

    Raises ModuleNotFoundError for a name that is not in `list_frameworks`.
    """
    return cast("Adapter", import_module(f"{__name__}.{framework}"))
