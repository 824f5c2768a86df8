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
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
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

    from numpy.typing import NDArray

    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.datasets import Dataset

    Batch = Dict[str, NDArray[Any]]
    # the samples of one batch: (epoch, index) of each
    Keys = Sequence[Tuple[int, int]]

    class StepClock(Protocol):
        """Takes the boundaries between steps without disturbing them."""

        name: str

        def mark(self, index: int) -> None:
            """Take boundary `index`, and wait for the device until it is one step behind at most.

            The first is at a fence. The last may wait for the device: after it comes a fence.
            """

        def read_step_seconds(self) -> List[float]:
            """Times between consecutive boundaries; called after the last device sync."""

        def read_ended_seconds(self, steps: int) -> List[float]:
            """Of the first `steps`, all marked, the times of those that the device has ended.

            For a device that may never end the others: it does not wait. In any thread.
            """

    class Session(Protocol):
        """A model on a device, ready to step; everything is built before it is returned.

        Weights are those of `worker.weights` for the case's seed, the batch that of
        `worker.synthetic_batch` for its seed and the rank, both in full precision. In mode "train"
        it is made to `step`; in mode "infer" to `infer`, and has neither optimizer, gradients nor
        other ranks. The three methods before `close` are for proofs, never called beside a
        measurement; their arrays are float32 in host memory, by the names and in the layouts of the
        definition's parameters, the same on all ranks.
        """

        parameter_count: int
        device_name: str
        versions: Dict[str, str]

        def step(self) -> None:
            """One optimizer update over one global batch, without reading anything back.

            Of mode "train" only. It need not wait for the device where the clock does: one of
            events, or of completion.
            Where a case accumulates gradients it is the last batch of those, each with the same
            weight, after as many calls of `accumulate` as there are others.
            """

        def accumulate(self) -> None:
            """The gradients of one batch, kept for `step`: nothing is sent or updated."""

        def stage(self, batch: Batch) -> Any:
            """A batch of `worker.synthetic_batch` in the framework's own arrays in host memory.

            May be called in another thread than `step`, and ahead of it.
            """

        def load(self, staged: Any) -> None:
            """Copy what `stage` or `open_pipeline` made to the device, for the next step.

            It need not wait for the copy where the next step does.
            """

        def open_pipeline(self, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Any]:
            """The framework's own input pipeline: staged batches of these samples, in this order.

            Samples are read by the case's `data_workers` at once, `prefetch_batches` batches ahead.
            """

        def set_learning_rate(self, learning_rate: float) -> None:
            """The learning rate of the next steps."""

        def predict(self, batch: Batch) -> "NDArray[Any]":
            """Logits [batch, classes], float32 in host memory, of a classifier in evaluation mode.

            As `evaluate_loss` computes them; the batch may be smaller than the case's. The batch
            that was loaded stays.
            """

        def infer(self) -> None:
            """One forward pass over this rank's batch; returns when the logits are on the device.

            Of mode "infer" only. Batch normalization uses its running statistics, there is no
            dropout and no loss, and nothing is read back or kept for gradients.
            """

        def synchronize(self) -> None:
            """Wait until the device has done all that was asked of it."""

        def make_clock(self, boundaries: int) -> StepClock:
            """A clock for `boundaries` marks, allocated beforehand."""

        def reset_peak_memory(self) -> None: ...

        def read_peak_memory_bytes(self) -> int: ...

        def name_attention(self) -> str:
            """What computes attention: the framework's own name of a kernel, or WRITTEN_OUT.

            Empty for a model that has none. Called on all ranks alike, and after the window, as it
            may cost a forward pass.
            """

        def read_loss(self) -> float:
            """The last step's loss on this rank, read back from the device.

            It is that of the step's forward pass, before its update; in mode "infer", that of the
            logits which the last `infer` left.
            """

        def evaluate_loss(self) -> float:
            """The loss of this rank's batch at the current weights, in evaluation mode.

            Batch normalization uses its running statistics, there is no dropout, and nothing
            changes.
            """

        def compute_gradients(self) -> "Dict[str, NDArray[Any]]":
            """Gradients as `step` computes them, averaged over the ranks, neither clipped nor used.

            Of mode "train" only. Weight decay and loss scale are not in them. Weights and optimizer
            stay as they are; running statistics move as in a step. To be called on all ranks alike.
            """

        def read_weights(self) -> "Dict[str, NDArray[Any]]":
            """The current weights, the master copy where there is one."""

        def close(self) -> None:
            """Leave the process group; called on success only."""

    class GeneratingSession(Session, Protocol):
        """One whose case is a generation; in place of `infer` it has these.

        Of each batch of prompts, all as long, it continues each greedily, by the word with the
        highest logit, with keys and values of the words before in a cache of constant shape. Each
        call returns when the tokens are on the device.
        """

        def prefill(self) -> None:
            """Begin anew: read the prompts, fill the cache, and take the first token of each."""

        def decode(self) -> None:
            """The next token of each, from the one before."""

        def read_tokens(self) -> "NDArray[Any]":
            """The tokens since the last prefill, int64 [batch, tokens] in host memory."""

        def continue_without_cache(self) -> "NDArray[Any]":
            """All tokens that a generation has, each from a forward pass over all before it.

            For proofs, as `read_tokens` has them.
            """

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
