"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

import os
from contextlib import nullcontext
from typing import Any, Dict, Iterator, Sequence

import paddle
from paddle import distributed
from paddle.base import core

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import EventClock, HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.paddle.device import (
    allow_tf32,
    choose_device,
    list_trained,
    load_weights,
    read_arrays,
    read_versions,
)
from dlperf_slurm.worker.frameworks.paddle.loader import Tensors, make_tensors, open_loader
from dlperf_slurm.worker.frameworks.paddle.training import (
    checkpoint_blocks,
    compile_graph,
    join_process_group,
    make_optimizer,
    make_scaler,
)
from dlperf_slurm.worker.work import Work

AUTOCAST_TYPES = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}
DATA_FORMATS = {"default": "NCHW", "channels_last": "NHWC"}


class PaddleSession:
    """Paddle's implementation of `worker.session.Session`."""

    def __init__(self, case: Case, rank_info: RankInfo) -> None:
        work = Work(case, rank_info, __package__)
        model = work.builder.Model(work.definition, DATA_FORMATS[case.axes.memory_format])
        load_weights(model, work.generate_weights())
        paddle.seed(work.dropout_seed)
        self._is_training = case.axes.mode == TRAIN
        self._case = case
        self._is_cuda = case.device == "cuda"
        self._host_memory = paddle.CUDAPinnedPlace() if self._is_cuda else paddle.CPUPlace()
        self._plain_model = model
        self._parameters = list_trained(model)
        self.parameter_count = sum(int(p.size) for p in self._parameters.values())
        self.device_name = str(paddle.device.cuda.get_device_name()) if self._is_cuda else ""
        self.versions = read_versions(case)
        self._work = work
        self.load(self.stage(work.make_batch()))
        if self._is_training:
            self._prepare_training(case, rank_info)
        else:
            self._prepare_inference(case)

    def _prepare_training(self, case: Case, rank_info: RankInfo) -> None:
        work, model = self._work, self._plain_model
        self._optimizer = make_optimizer(work.rule, model, work.largest_norm)
        self._scaler = make_scaler(case, list(self._parameters.values()))
        self._batches_per_step = case.axes.gradient_accumulation
        self._compute_loss = work.builder.compute_loss
        if case.axes.activation_checkpointing:
            checkpoint_blocks(model)
        if case.axes.compiler != "none":
            model, self._compute_loss = (
                compile_graph(part, case.axes.compiler) for part in (model, self._compute_loss)
            )
        # context in which a backward pass keeps its gradients on the rank, to be added to the next
        self._without_mean: Any = nullcontext
        if rank_info.world_size > 1:
            model = paddle.DataParallel(model)
            self._without_mean = model.no_sync
        self._model = model
        self._loss = paddle.full((), float("nan"))

    def _prepare_inference(self, case: Case) -> None:
        self._model = self._plain_model
        self._model.eval()
        if case.axes.compiler != "none":
            self._model = compile_graph(self._model, case.axes.compiler)

    def step(self) -> None:
        """Run one training step; on the CPU, return when it has ended.

        The scaler unscales the gradients, then the optimizer clips them.
        """
        self._backpropagate()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.clear_grad(set_to_zero=False)

    def accumulate(self) -> None:
        with self._without_mean():
            self._backpropagate()

    def _backpropagate(self) -> None:
        """Set the loss, and add the batch's scaled gradients to those of the step's other batches.

        Gradients are then averaged over the ranks, except within `_without_mean`.
        """
        with self._autocast():
            logits = self._model(*self._inputs)
            loss = self._compute_loss(self._work.definition, logits, self._batch)
        self._loss = loss.detach()
        if self._batches_per_step > 1:
            loss = loss / self._batches_per_step
        self._scaler.scale(loss).backward()

    def _autocast(self) -> Any:
        # a context of auto_cast can be used only once
        dtype = AUTOCAST_TYPES.get(self._case.axes.precision)
        return paddle.amp.auto_cast(dtype is not None, level="O1", dtype=dtype or "float16")

    def stage(self, batch: Dict[str, Any]) -> Tensors:
        return make_tensors(batch, self._host_memory)

    def load(self, staged: Tensors) -> None:
        """Copy a staged batch to the device; on the CPU too, as the case measures this copy."""
        self._batch = {name: self._copy(tensor) for name, tensor in staged.items()}
        self._inputs = self._work.take_inputs(self._batch)

    def _copy(self, tensor: paddle.Tensor) -> paddle.Tensor:
        copy = tensor._copy_to(paddle.framework._current_expected_place(), False)
        if tensor.ndim == 4 and self._case.axes.memory_format == "channels_last":
            return copy.transpose((0, 2, 3, 1)).contiguous()
        return copy

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Tensors]:
        return open_loader(self._case, dataset, order, self._host_memory)

    def set_learning_rate(self, learning_rate: float) -> None:
        self._optimizer.set_lr(learning_rate)

    def predict(self, batch: Dict[str, Any]) -> Any:
        tensors = self.stage(batch)
        logits = self._evaluate([self._copy(tensor) for tensor in self._work.take_inputs(tensors)])
        return logits.astype("float32").numpy()

    def infer(self) -> None:
        """Run one forward pass, and wait for the device; on the CPU the call itself waits."""
        with paddle.no_grad(), self._autocast():
            self._logits = self._model(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        if self._is_cuda:
            paddle.device.synchronize()

    def make_clock(self, boundaries: int) -> Any:
        if self._is_cuda:
            events = [paddle.device.cuda.Event(enable_timing=True) for _ in range(boundaries)]
            return EventClock(events, paddle.device.cuda.current_stream())
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._is_cuda:
            paddle.device.cuda.reset_max_memory_allocated()
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of Paddle's tensors on a GPU, or of resident memory on the CPU."""
        if self._is_cuda:
            return int(paddle.device.cuda.max_memory_allocated())
        return host.read_peak_resident_bytes()

    def describe_attention(self) -> str:
        return self._work.describe_attention("scaled_dot_product_attention")

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss)
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluate(self._inputs))

    def _evaluate(self, inputs: Sequence[paddle.Tensor]) -> Any:
        # without DataParallel, which has nothing to average here, and not compiled, as to_static
        # would compile the model again for evaluation
        self._plain_model.eval()
        paddle.jit.enable_to_static(False)
        with paddle.no_grad(), self._autocast():
            logits = self._plain_model(*inputs)
        paddle.jit.enable_to_static(True)
        if self._is_training:
            self._plain_model.train()
        return logits

    def _read_loss_of(self, logits: Any) -> float:
        with paddle.no_grad(), self._autocast():
            return float(self._work.compute_loss(logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._batches_per_step - 1):
            self.accumulate()
        self._backpropagate()
        scale = self._scaler.state_dict()["scale"]
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        arrays = read_arrays(self._plain_model, gradients)
        self._optimizer.clear_grad(set_to_zero=False)
        return {name: values / scale for name, values in arrays.items()}

    def read_weights(self) -> Dict[str, Any]:
        return read_arrays(self._plain_model, self._parameters)

    def close(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def start_session(case: Case, rank_info: RankInfo) -> PaddleSession:
    core.set_num_threads(case.cpus_per_rank)
    choose_device(case, rank_info)
    if case.device == "cuda":
        allow_tf32(case.axes.precision == "tf32")
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})
    else:
        # run a static graph's operators one after the other in this thread: other threads would not
        # have its number of compute threads
        paddle.set_flags({"FLAGS_enable_pir_in_executor_trace_run": True})
    if case.device == "cpu" and case.nodes == 1:
        # Gloo binds to the interface of this host's name, which may not resolve to any
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if rank_info.world_size > 1:
        join_process_group(case, rank_info)
    return PaddleSession(case, rank_info)
