"""The interface of a framework's session and of the clock that measures its steps."""

from typing import Any, Dict, Iterator, List, Sequence, Tuple

from dlperf_slurm.worker.annotations import Array, Arrays, Protocol
from dlperf_slurm.worker.datasets import Dataset

# the samples of one batch, each as (epoch, index)
Keys = Sequence[Tuple[int, int]]


class StepClock(Protocol):
    """Takes the times of step boundaries without disturbing the steps.

    The time of a step is that between two boundaries.
    """

    name: str

    def mark(self, index: int) -> None:
        """Take the time of boundary `index`; wait until the device is at most one step behind.

        All ranks are synchronized before the first boundary. The last one may wait for the
        device, which is synchronized after it anyway.
        """

    def read_step_seconds(self) -> List[float]:
        """Return the seconds between consecutive boundaries, after a device synchronization."""

    def read_ended_seconds(self, steps: int) -> List[float]:
        """Return the seconds of those of the first `steps` steps that the device has finished.

        All `steps` steps must have their boundaries. Does not wait, so that it can be called
        (in any thread) for a device that hangs.
        """


class Session(Protocol):
    """A model on a device, ready to step; building it includes all preparation.

    Initial weights are those of `worker.weights` for the case's seed. The batch is that of
    `worker.synthetic_batch` for its seed and the rank. Both are made in full precision. In mode
    "train", `step` is called. In mode "infer", `infer` is called, and there is no optimizer, no
    gradient and no other rank. `compute_gradients` and `evaluate_loss` are for verification,
    never called in a measurement, and `read_weights` only after one: arrays are float32 in host
    memory, with the names and layouts of the definition's parameters, and the same on all
    ranks.
    """

    parameter_count: int
    # of the GPU; empty on CPUs
    device_name: str
    versions: Dict[str, str]

    def step(self) -> None:
        """Run one optimizer update over one global batch, without reading anything back.

        For mode "train" only. Need not wait for the device if the clock does, by events or by
        completion of a result. With gradient accumulation this is a step's last batch, after a
        call of `accumulate` for each earlier one; all batches have the same weight.
        """

    def accumulate(self) -> None:
        """Add the gradients of one batch to those kept for `step`; no update, no collective."""

    def stage(self, batch: Arrays) -> Any:
        """Convert a batch of `worker.synthetic_batch` to the framework's arrays in host memory.

        May be called ahead of `step` and in another thread.
        """

    def load(self, staged: Any) -> None:
        """Copy a batch from `stage` or `open_pipeline` to the device, for the next step.

        Need not wait for the copy if the next step does.
        """

    def open_pipeline(self, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Any]:
        """Open the framework's own input pipeline over samples; yields staged batches in order.

        The case's `data_workers` read samples in parallel, `prefetch_batches` batches ahead.
        """

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""

    def predict(self, batch: Arrays) -> Array:
        """Return a classifier's logits, float32 [batch, classes] on the host.

        The model is in evaluation mode, as in `evaluate_loss`. The batch may be smaller than
        the case's; the loaded batch is not replaced.
        """

    def infer(self) -> None:
        """Run one forward pass over this rank's batch, until the logits are on the device.

        For mode "infer" only. Batch normalization uses its running statistics, there is no
        dropout and no loss, and nothing is read back or kept for gradients.
        """

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""

    def make_clock(self, boundaries: int) -> StepClock:
        """Make a clock for `boundaries` step boundaries, with all memory allocated."""

    def reset_peak_memory(self) -> None:
        """Let `read_peak_memory_bytes` count from now on, if the framework can."""

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of this process's memory on its device; 0 if unknown.

        On GPUs it is what the framework's allocator handed out, if that is counted; on CPUs the
        largest resident memory. The caller handles exceptions.
        """

    def describe_attention(self) -> str:
        """Return the framework's name of the attention kernel; or UNFUSED.

        Empty for a model without attention. Called on all ranks, after the measured steps,
        because it may cost a forward pass.
        """

    def read_loss(self) -> float:
        """Read back the last step's loss on this rank.

        It is the loss of the step's forward pass, before the update; in mode "infer", that of
        the logits of the last `infer`.
        """

    def evaluate_loss(self) -> float:
        """Return the loss of this rank's batch at the current weights, in evaluation mode.

        Batch normalization uses its running statistics, there is no dropout, and nothing is
        changed.
        """

    def compute_gradients(self) -> Arrays:
        """Return the gradients of a step, averaged over the ranks, before clipping; no update.

        Float32 arrays on the host, by the definition's parameter names. For mode "train" only;
        all ranks must call this. Weight decay and loss scale are not included. Weights and
        optimizer state stay unchanged; running statistics are updated as in a step.
        """

    def read_weights(self) -> Arrays:
        """Return the current weights, or their master copy: float32, by parameter name.

        All ranks must call this if weights are sharded.
        """

    def close(self) -> None:
        """Leave the process group; called after success only."""


class GeneratingSession(Session, Protocol):
    """A session for a generation case; `prefill` and `decode` replace `infer`.

    All prompts of a batch have the same length. Each is continued greedily (highest logit),
    with the keys and values of earlier tokens in a cache of fixed shape. Each call returns when
    the tokens are on the device.
    """

    def prefill(self) -> None:
        """Process the prompts: fill the cache anew and choose each sequence's first token."""

    def decode(self) -> None:
        """Generate the next token of each sequence from the token before it."""

    def read_tokens(self) -> Array:
        """Return the tokens since the last prefill, int64 [batch, tokens] in host memory."""

    def continue_without_cache(self) -> Array:
        """Return all tokens of a generation, each by a forward pass over all tokens before it.

        For verification; the format is that of `read_tokens`.
        """
