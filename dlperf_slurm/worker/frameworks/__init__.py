"""The adapters: one package per framework, named as in `axes.framework`.

At module top an adapter imports the standard library only, so that the login node can ask what the
adapter supports without having the framework installed.
"""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Tuple, cast

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
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Protocol
from dlperf_slurm.worker.models import list_models
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.session import Session
from dlperf_slurm.worker.update_rule import ADAMW, MOMENTUM, SGD

if TYPE_CHECKING:
    from dlperf_slurm.worker.support import Unsupported


class Adapter(Protocol):
    """The names that a framework's adapter, a package here, must define."""

    # supported values of each axis, and of "model" and "device"; see OF_ALL and ANY
    SUPPORTED: Mapping[str, Any]
    # combinations of supported values that the framework does not run, and unsupported values
    # of which there is more to say; of several that apply the first is reported
    UNSUPPORTED: "Tuple[Unsupported, ...]"
    OUT_OF_MEMORY: OutOfMemory


@dataclass(frozen=True)
class RankInfo:
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
        """Return the index of this rank's GPU: 0 if the rank sees only one, else the local rank."""
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
    # only sets batch_size_per_device, which adapters read
    "global_batch_size": ANY,
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


def list_builders(path: Iterable[str]) -> List[str]:
    """Return the models for which the adapter package with this `__path__` has a builder module."""
    return [module.name for module in pkgutil.iter_modules(path) if module.name in list_models()]


def list_frameworks() -> List[str]:
    """Return the names of the adapters in this package, sorted."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} - SHARED)


def load_adapter(framework: str) -> Adapter:
    """Import a framework's adapter, the package of that name, without the framework itself.

    Raises ModuleNotFoundError for a name that is not in `list_frameworks`.
    """
    return cast("Adapter", import_module(f"{__name__}.{framework}"))


def start_session(case: Case, rank_info: "RankInfo") -> Session:
    """Join the process group and build model, optimizer and batch on the device.

    Imports the framework, after the adapter's `prepare` if it has one: it sets what the framework
    reads when it is imported. Mode "infer" has no process group and no optimizer, and `rank_info`
    has a world size of 1.
    """
    adapter = f"{__name__}.{case.axes.framework}"
    prepare = getattr(import_module(adapter), "prepare", None)
    if prepare is not None:
        prepare(case, rank_info)
    module = import_module(f"{adapter}.session")
    return cast("Session", module.start_session(case, rank_info))
