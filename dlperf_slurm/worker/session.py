"""What a framework's adapter gives to measure: a session, and the clock of its steps.

For type checkers alone, as Python 3.7 has no protocols.
"""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, Tuple

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.typing import NDArray

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
            """The times of those of the first `steps`, all marked, that the device has ended.

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
