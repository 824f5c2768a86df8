"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from pathlib import Path
from typing import Any, Dict, Iterator, Sequence, Tuple

import mindspore as ms
from mindspore import Tensor
from mindspore.graph.api import _pynative_executor

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import ending, host
from dlperf_slurm.worker.clock import EventClock, HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import spread_labels
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.mindspore.device import (
    find_parameters,
    load_weights,
    to_numpy,
)
from dlperf_slurm.worker.frameworks.mindspore.loader import open_loader
from dlperf_slurm.worker.frameworks.mindspore.training import (
    Batch,
    Gradients,
    Training,
    join_ranks,
    make_forward,
    meet_ranks,
)
from dlperf_slurm.worker.work import Work


class MindSporeSession:
    """MindSpore's implementation of `worker.session.Session`."""

    def __init__(self, case: Case, rank_info: RankInfo) -> None:
        work = Work(case, rank_info, __package__)
        # dropout layers read the seed when they are built
        ms.set_seed(work.dropout_seed)
        model = work.builder.Model(work.definition)
        self._parameters = find_parameters(model)
        load_weights(self._parameters, work.generate_weights())
        self._work = work
        self._case = case
        self._classes = work.classes
        self._is_cuda = case.device == "cuda"
        self._inputs = work.inputs
        self.load(self.stage(work.make_batch()))

        self.parameter_count = sum(parameter.size for parameter in self._parameters.values())
        self.device_name = ""
        if self._is_cuda:
            self.device_name = str(ms.hal.get_device_name(ms.get_context("device_id")))
        self.versions = read_versions()
        self._model = model
        self._forward = make_forward(case, work, model)
        self._is_training = case.axes.mode == TRAIN
        model.set_train(self._is_training)
        if self._is_training:
            parameters = list(self._parameters.values())
            self._training = Training(case, work, self._forward, parameters)
            self.set_learning_rate(work.rule.learning_rate)
            self._gradients: Gradients = ()
            self._have_met = rank_info.world_size == 1
            self._loss = Tensor(float("nan"), ms.float32)
        else:
            self._prepare_inference(case)

    def _prepare_inference(self, case: Case) -> None:
        compute_logits = self._forward.compute_logits

        def infer(batch: Batch) -> Any:
            return compute_logits(batch)

        self._compute_logits = ms.jit(infer) if case.axes.compiler == "graph" else infer

    def step(self) -> None:
        """Run one training step; on the CPU, return when it has ended."""
        earlier = self._take_accumulated()
        self._meet_once()
        self._loss = self._training.step(self._batch, self._learning_rate, *earlier)
        if not self._is_cuda:
            self.synchronize()

    def accumulate(self) -> None:
        self._loss, self._gradients = self._training.accumulate(
            self._batch, *self._take_accumulated()
        )

    def _meet_once(self) -> None:
        """Synchronize the ranks before the first collective.

        Ranks get there at different times, from compiling and from loading data. On the CPU
        MindSpore's collective fails if another rank is half a minute late, whatever
        MS_RECEIVE_MSG_TIMEOUT says (MindSpore 2.10).
        """
        if not self._have_met:
            meet_ranks()
            self._have_met = True

    def _take_accumulated(self) -> Tuple[Gradients, ...]:
        """Return the summed gradients of the step's earlier batches, and forget them.

        A tuple of one tuple of arrays, or () without earlier batches.
        """
        arguments = (ms.mutable(self._gradients),) if self._gradients else ()
        self._gradients = ()
        return arguments

    def stage(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        """Return the batch as NumPy arrays: a MindSpore tensor is copied to a device only once."""
        return spread_labels(batch, self._classes)

    def load(self, staged: Dict[str, Any]) -> None:
        """Make a batch's tensors: copied now on the CPU, on a GPU when the next step reads them."""
        make = Tensor.from_numpy if self._is_cuda else Tensor
        # mutable: otherwise a graph takes the batch as a constant and is compiled for each batch
        self._batch = ms.mutable({name: make(values) for name, values in staged.items()})

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Dict[str, Any]]:
        return map(self.stage, open_loader(self._case, dataset, order))

    def set_learning_rate(self, learning_rate: float) -> None:
        self._learning_rate = Tensor(learning_rate, ms.float32)

    def predict(self, batch: Dict[str, Any]) -> Any:
        return to_numpy(self._evaluate({name: Tensor(batch[name]) for name in self._inputs}))

    def infer(self) -> None:
        self._logits = self._compute_logits(self._batch)
        self.synchronize()

    def synchronize(self) -> None:
        if self._is_cuda:
            ms.runtime.synchronize()
        else:
            # ms.runtime.synchronize is for GPUs only
            _pynative_executor.sync()

    def make_clock(self, boundaries: int) -> Any:
        if self._is_cuda:
            events = [ms.runtime.Event(enable_timing=True) for _ in range(boundaries)]
            return EventClock(events)
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._is_cuda:
            ms.runtime.reset_max_memory_allocated()
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of MindSpore's tensors on a GPU, or of resident memory on the CPU."""
        if self._is_cuda:
            return int(ms.runtime.max_memory_allocated())
        return host.read_peak_resident_bytes()

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.asnumpy())
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluate(self._batch))

    def _evaluate(self, batch: Batch) -> Any:
        self._model.set_train(False)
        logits = self._forward.compute_logits(batch)
        self._model.set_train(self._is_training)
        return logits

    def _read_loss_of(self, logits: Any) -> float:
        return float(self._forward.compute_loss(logits, self._batch).asnumpy())

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._case.axes.gradient_accumulation - 1):
            self.accumulate()
        earlier = self._take_accumulated()
        self._meet_once()
        self._loss, gradients = self._training.backpropagate(self._batch, *earlier)
        return dict(zip(self._parameters, map(to_numpy, gradients)))

    def read_weights(self) -> Dict[str, Any]:
        return {name: to_numpy(parameter) for name, parameter in self._parameters.items()}

    def close(self) -> None:
        """Let the process exit at once if there are several ranks.

        MindSpore has no call to leave its process group, and leaving at exit may crash: one of its
        threads reads from a connection that another has closed (2.10; every third time on busy
        cores).
        """
        ending.is_at_once = self._case.world_size > 1


def start_session(case: Case, rank_info: RankInfo) -> MindSporeSession:
    choose_device(case, rank_info)
    ms.set_context(runtime_num_threads=case.cpus_per_rank)
    if rank_info.world_size > 1:
        join_ranks(rank_info)
    return MindSporeSession(case, rank_info)


def choose_device(case: Case, rank_info: RankInfo) -> None:
    if case.device == "cpu":
        ms.set_device("CPU")
        return
    gpu = ms.device_context.gpu
    ms.set_device("GPU", rank_info.choose_gpu(gpu.device_count()))
    # MindSpore's own default allows TF32 in convolutions only
    gpu.op_precision.conv_allow_tf32(case.axes.precision == "tf32")
    gpu.op_precision.matmul_allow_tf32(case.axes.precision == "tf32")


def read_versions() -> Dict[str, str]:
    """Return {"mindspore": version, "mindspore_build": commit}; MindSpore reports no others."""
    build = Path(ms.__file__).with_name(".commit_id").read_text(encoding="utf-8")
    return {"mindspore": str(ms.__version__), "mindspore_build": build.split("'")[1]}
