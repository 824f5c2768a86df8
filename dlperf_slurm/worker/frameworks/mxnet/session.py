"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

import gc
from typing import Any, Dict, Iterator, List, Sequence

import mxnet as mx
from mxnet import autograd
from mxnet.contrib import amp

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import CompletionClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.mxnet.device import (
    choose_device,
    find_parameters,
    load_weights,
    read_versions,
)
from dlperf_slurm.worker.frameworks.mxnet.loader import Arrays, make_arrays, open_loader
from dlperf_slurm.worker.frameworks.mxnet.training import (
    clip_gradients,
    join_ranks,
    make_optimizer,
    set_learning_rate,
)
from dlperf_slurm.worker.nvml import read_own_memory_bytes
from dlperf_slurm.worker.work import Work

AMP_TYPES = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}


class MXNetSession:
    """MXNet's implementation of `worker.session.Session`.

    MXNet has no device events: a step has ended when its updated weights are available.
    """

    def __init__(self, case: Case, rank_info: RankInfo, device: mx.Context) -> None:
        work = Work(case, rank_info, __package__)
        model = work.builder.Model(work.definition)
        self._parameters = find_parameters(model)
        self._is_training = case.axes.mode == TRAIN
        for parameter in self._parameters.values():
            parameter.grad_req = choose_gradient_kind(case)
        model.initialize(mx.init.Zero(), ctx=device)
        load_weights(self._parameters, work.generate_weights())
        mx.random.seed(work.dropout_seed)
        if case.axes.compiler == "hybridize":
            model.hybridize(static_alloc=True, static_shape=True)

        self.parameter_count = sum(p.data().size for p in self._parameters.values())
        self.device_name = "" if device.device_type == "cpu" else str(device)
        self.versions = read_versions(case)
        self._case = case
        self._device = device
        self._work = work
        self._model = model
        self.load(self.stage(work.make_batch()))
        if self._is_training:
            self._prepare_training(case, rank_info)

    def _prepare_training(self, case: Case, rank_info: RankInfo) -> None:
        work, parameters = self._work, self._parameters
        self._batches_per_step = case.axes.gradient_accumulation
        self._loss_scale = case.axes.constant_loss_scale or 1
        optimizer = make_optimizer(
            work.rule,
            list(parameters.values()),
            1 / (self._batches_per_step * self._loss_scale),
        )
        self._trainer, self._sum_gradients, self._servers = join_ranks(
            case, rank_info, parameters, optimizer
        )
        self._is_dynamic = case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale
        if self._is_dynamic:
            amp.init_trainer(self._trainer)
        self._clip_global_norm = work.largest_norm
        self._loss = mx.nd.full((1,), float("nan"))

    def step(self) -> None:
        self._backpropagate()
        if self._clip_global_norm is None:
            self._trainer.step(1)
        else:
            self._trainer.allreduce_grads()
            # the gradients are sums over batches and ranks, times the loss scale
            clip_gradients(self._list_gradients(), self._clip_global_norm / self._trainer._scale)
            self._trainer.update(1)
        self._forget_gradients()

    def accumulate(self) -> None:
        self._backpropagate()

    def _backpropagate(self) -> None:
        """Set the loss, and set or add to the gradients; the trainer's scale averages them."""
        with autograd.record():
            loss = self._compute_loss(self._model(*self._inputs))
            if self._is_dynamic:
                with amp.scale_loss(loss, self._trainer) as scaled:
                    autograd.backward(scaled)
            elif self._loss_scale != 1:
                (loss * self._loss_scale).backward()
            else:
                loss.backward()
        self._loss = loss.detach()

    def _list_gradients(self) -> List[mx.nd.NDArray]:
        return [parameter.grad() for parameter in self._parameters.values()]

    def _forget_gradients(self) -> None:
        """Set the gradients to zero if backward passes add to them (gradient accumulation)."""
        if self._batches_per_step > 1:
            gradients = self._list_gradients()
            mx.nd.reset_arrays(*gradients, num_arrays=len(gradients))

    def _compute_loss(self, logits: Any) -> mx.nd.NDArray:
        return self._work.compute_loss(logits, self._batch)

    def stage(self, batch: Dict[str, Any]) -> Arrays:
        is_cpu = self._device.device_type == "cpu"
        return make_arrays(batch, mx.cpu() if is_cpu else mx.cpu_pinned(self._device.device_id))

    def load(self, staged: Arrays) -> None:
        """Copy a staged batch to the device; on the CPU too, as the case measures this copy."""
        self._batch = {name: array.copyto(self._device) for name, array in staged.items()}
        self._inputs = self._work.take_inputs(self._batch)

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Arrays]:
        return open_loader(self._case, dataset, order)

    def set_learning_rate(self, learning_rate: float) -> None:
        set_learning_rate(self._trainer, learning_rate)

    def predict(self, batch: Dict[str, Any]) -> Any:
        arrays = make_arrays(batch, self._device)
        logits = self._model(*self._work.take_inputs(arrays))
        return logits.astype("float32", copy=False).asnumpy()

    def infer(self) -> None:
        """Run one forward pass; outside of autograd.record MXNet is in evaluation mode."""
        self._logits = self._model(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        mx.nd.waitall()

    def make_clock(self, boundaries: int) -> CompletionClock:
        return CompletionClock(boundaries, self._copy_updated, wait_for_all)

    def _copy_updated(self) -> List[mx.nd.NDArray]:
        """Copy a row of the first and of the last weight, as the step leaves them.

        These show the end of a step: the gradient of the first weight comes last, while the loss is
        ready before any gradient. They are copies, because the weights themselves become ready only
        after the next step.
        """
        first, *_, last = (parameter.data() for parameter in self._parameters.values())
        return [copy_row(weight) for weight in (first, last)]

    def reset_peak_memory(self) -> None:
        """Reset the peak of memory on the CPU; on a GPU MXNet's memory pool never shrinks."""
        if self._device.device_type == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the GPU memory that this process uses now, or on the CPU its peak resident memory.

        On a GPU MXNet reports neither a peak nor its own memory, but its pool never shrinks.
        """
        if self._device.device_type == "cpu":
            return host.read_peak_resident_bytes()
        return read_own_memory_bytes(self._device.device_id)

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.asscalar())
        return float(self._compute_loss(self._logits).asscalar())

    def evaluate_loss(self) -> float:
        return float(self._compute_loss(self._model(*self._inputs)).asscalar())

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._batches_per_step):
            self._backpropagate()
        self._sum_gradients()
        scale = self._trainer._scale
        gradients = {name: p.grad().asnumpy() * scale for name, p in self._parameters.items()}
        self._forget_gradients()
        return gradients

    def read_weights(self) -> Dict[str, Any]:
        return {name: p.data().asnumpy() for name, p in self._parameters.items()}

    def close(self) -> None:
        if not self._is_training:
            return
        self._servers.release()
        # KVStore leaves, and stops its servers, when it is freed; it is in a reference cycle
        del self._trainer, self._sum_gradients, self._parameters, self._model
        gc.collect()
        self._servers.end()


def start_session(case: Case, rank_info: RankInfo) -> MXNetSession:
    device = choose_device(case, rank_info)
    if case.axes.precision in AMP_TYPES:
        # inserts casts into MXNet's operators, for the whole process
        amp.init(AMP_TYPES[case.axes.precision])
    return MXNetSession(case, rank_info, device)


def copy_row(array: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return a copy of an array's first row, made by one operation; indexing would return a view.

    `mx.nd.slice` kills the process with a division by zero if oneDNN has changed the array's
    layout, as it does for convolution kernels (MXNet 1.9).
    """
    return mx.nd.slice_axis(array, axis=0, begin=0, end=1)


def wait_for_all(arrays: List[mx.nd.NDArray]) -> None:
    for array in arrays:
        array.wait_to_read()


def choose_gradient_kind(case: Case) -> str:
    """Return Gluon's grad_req: "null" for inference, "add" to sum over batches, else "write"."""
    if case.axes.mode != TRAIN:
        return "null"
    return "add" if case.axes.gradient_accumulation > 1 else "write"
