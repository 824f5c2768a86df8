"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from contextlib import nullcontext
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import oneflow as flow
from oneflow import nn

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import CompletionClock, HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.oneflow.device import (
    choose_device,
    copy_value,
    load_weights,
    read_versions,
    to_numpy,
    wait_for_all,
)
from dlperf_slurm.worker.frameworks.oneflow.loader import Batch, make_tensors, open_loader
from dlperf_slurm.worker.frameworks.oneflow.training import (
    AMP_TYPES,
    InferenceGraph,
    SkippedMean,
    TrainingGraph,
    make_global,
    make_optimizer,
    read_loss,
)
from dlperf_slurm.worker.nvml import read_own_memory_bytes
from dlperf_slurm.worker.work import Work


class OneFlowSession:
    """OneFlow's implementation of `worker.session.Session`.

    OneFlow has no device events: on a GPU a step has ended when its updated weights are available.
    On the CPU, OneFlow computes in a thread of its own while Python goes on, and `step` waits for
    that thread: waiting for one value costs CPU time, and running ahead saved none.
    """

    def __init__(self, case: Case, rank_info: RankInfo, device: flow.device) -> None:
        work = Work(case, rank_info, __package__)
        model = work.builder.Model(work.definition, device)
        load_weights(model, work.generate_weights())
        flow.manual_seed(work.dropout_seed)
        is_graph = case.axes.compiler == "graph"
        self._is_global = is_graph and rank_info.world_size > 1
        if self._is_global:
            # a graph over several ranks takes global tensors only; batch normalization still uses a
            # rank's own samples
            model.to_global(placement=flow.placement.all(device.type), sbp=flow.sbp.broadcast)

        self.parameter_count = sum(parameter.numel() for parameter in model.parameters())
        is_cuda = device.type == "cuda"
        self.device_name = str(flow.cuda.get_device_name(device)) if is_cuda else ""
        self.versions = read_versions(device)
        self._is_training = case.axes.mode == TRAIN
        self._device = device
        self._model = model
        self._parameters = dict(model.named_parameters())
        self._case = case
        self._work = work
        self.load(self.stage(work.make_batch()))
        if self._is_training:
            self._prepare_training(case, rank_info, is_graph)
        else:
            self._prepare_inference(is_graph)

    def _prepare_training(self, case: Case, rank_info: RankInfo, is_graph: bool) -> None:
        work, model = self._work, self._model
        self._optimizer = make_optimizer(work.rule, model)
        self._clip_global_norm = work.largest_norm
        self._loss_scale = case.axes.constant_loss_scale or 1
        self._batches_per_step = case.axes.gradient_accumulation
        self._graph: Optional[TrainingGraph] = None
        self._without_mean: Callable[[], Any] = nullcontext
        if is_graph:
            self._graph = TrainingGraph(model, self._compute_loss, self._optimizer, case)
            self._graph._compile(self._batch)
            # the gradient tensors that compiling leaves have no values
            self._optimizer.zero_grad(set_to_none=True)
        elif rank_info.world_size > 1:
            # Running statistics stay per rank, as in the other frameworks: training does not read
            # them, and broadcasting them would be one more collective in each step. The gradients
            # become parts of shared buffers, which must be zero before the next step.
            self._model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
            self._without_mean = SkippedMean(self._model).pause
        self._loss = flow.tensor(float("nan"))

    def _prepare_inference(self, is_graph: bool) -> None:
        self._model.eval()
        self._compute_logits: Callable[..., Any] = self._run_model
        if is_graph:
            graph = InferenceGraph(self._model, self._case.axes.precision)
            graph._compile(*self._inputs)
            self._compute_logits = graph

    def step(self) -> None:
        if self._graph is not None:
            self._loss = self._graph(self._batch)
        else:
            self._backpropagate()
            self._unscale()
            if self._clip_global_norm is not None:
                nn.utils.clip_grad_norm_(self._parameters.values(), self._clip_global_norm)
            self._optimizer.step()
            self._forget_gradients()
        if self._device.type == "cpu":
            self.synchronize()

    def accumulate(self) -> None:
        with self._without_mean():
            self._backpropagate()

    def _backpropagate(self) -> None:
        """Set the loss, and add the batch's gradients to those of the step's other batches.

        For eager mode only. Gradients are multiplied by the loss scale and divided by the number of
        batches; DistributedDataParallel averages them over the ranks in `backward`.
        """
        with self._autocast():
            loss = self._compute_loss(self._model, self._batch)
        self._loss = loss.detach()
        scale = self._loss_scale / self._batches_per_step
        (loss if scale == 1 else loss * scale).backward()

    def _unscale(self) -> None:
        if self._loss_scale != 1:
            for parameter in self._parameters.values():
                parameter.grad.mul_(1 / self._loss_scale)

    def _forget_gradients(self) -> None:
        # zeroed in place: DDP adds to the same buffers
        self._optimizer.zero_grad(set_to_none=False)

    def _compute_loss(self, model: Any, batch: Batch) -> flow.Tensor:
        logits = model(*self._work.take_inputs(batch))
        return self._work.compute_loss(logits, batch)

    def _run_model(self, *inputs: flow.Tensor) -> Any:
        with self._autocast():
            return self._model(*inputs)

    def _autocast(self) -> Any:
        # not flow.autocast(enabled=False): on the CPU OneFlow would warn that it has no autocast
        if self._case.axes.precision not in AMP_TYPES:
            return nullcontext()
        return flow.autocast(self._device.type, AMP_TYPES[self._case.axes.precision])

    def stage(self, batch: Dict[str, Any]) -> Batch:
        tensors = make_tensors(batch)
        if self._device.type == "cuda":
            return {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return tensors

    def load(self, staged: Batch) -> None:
        """Copy a staged batch to the device; on the CPU too, as the case measures this copy."""
        batch = self._copy(staged)
        self._batch = make_global(batch, self._device.type) if self._is_global else batch
        self._inputs = self._work.take_inputs(self._batch)

    def _copy(self, batch: Batch) -> Batch:
        return {name: tensor.to(self._device, copy=True) for name, tensor in batch.items()}

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Batch]:
        return open_loader(self._case, dataset, order, is_pinned=self._device.type == "cuda")

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps, except in a graph, where it is compiled in."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate

    def predict(self, batch: Dict[str, Any]) -> Any:
        tensors = self._copy(make_tensors(batch))
        return to_numpy(self._evaluate(self._work.take_inputs(tensors)))

    def infer(self) -> None:
        with flow.no_grad():
            self._logits = self._compute_logits(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        flow._oneflow_internal.eager.Sync()
        if self._device.type == "cuda":
            flow.cuda.synchronize(self._device)

    def make_clock(self, boundaries: int) -> Any:
        if self._device.type == "cpu":
            return HostClock(boundaries)
        return CompletionClock(boundaries, self._copy_updated, wait_for_all)

    def _copy_updated(self) -> List[flow.Tensor]:
        """Start copies of a value of the first and of the last weight, as the step leaves them.

        These show the end of a step: the gradient of the first weight comes last, while the loss is
        ready before any gradient.
        """
        first, *_, last = self._parameters.values()
        return [copy_value(weight) for weight in (first, last)]

    def reset_peak_memory(self) -> None:
        """Reset the peak of memory on the CPU; on a GPU OneFlow's memory pool never shrinks."""
        if self._device.type == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the GPU memory that this process uses now, or on the CPU its peak resident memory.

        On a GPU OneFlow reports neither a peak nor its own memory, but its pool never shrinks.
        """
        if self._device.type == "cpu":
            return host.read_peak_resident_bytes()
        return read_own_memory_bytes(self._device.index)

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return read_loss(self._loss)
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluate(self._inputs))

    def _evaluate(self, inputs: Sequence[flow.Tensor]) -> Any:
        self._model.eval()
        with flow.no_grad():
            logits = self._run_model(*inputs)
        self._model.train(self._is_training)
        return logits

    def _read_loss_of(self, logits: Any) -> float:
        with flow.no_grad(), self._autocast():
            return read_loss(self._work.compute_loss(logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        """Return a step's mean float32 gradients by name, in eager mode, as a graph returns none.

        Verification compares the graph's updates of the weights instead.
        """
        for _ in range(self._batches_per_step - 1):
            self.accumulate()
        self._backpropagate()
        self._unscale()
        gradients = {name: to_numpy(p.grad) for name, p in self._parameters.items()}
        self._forget_gradients()
        return gradients

    def read_weights(self) -> Dict[str, Any]:
        return {name: to_numpy(parameter) for name, parameter in self._parameters.items()}

    def close(self) -> None:
        """Do nothing: OneFlow leaves its process group when Python exits."""


def start_session(case: Case, rank_info: RankInfo) -> OneFlowSession:
    flow.set_num_threads(case.cpus_per_rank)
    return OneFlowSession(case, rank_info, choose_device(case, rank_info))
