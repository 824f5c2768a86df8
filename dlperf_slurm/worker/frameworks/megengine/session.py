"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from typing import Any, Callable, Dict, Iterator, Sequence

import megengine as mge
import numpy
from megengine import amp, distributed
from megengine.autodiff import GradManager
from megengine.optimizer import clip_grad_norm

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import narrow_integers, spread_labels
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.megengine.device import (
    choose_gpu,
    load_weights,
    read_arrays,
    read_versions,
)
from dlperf_slurm.worker.frameworks.megengine.loader import make_tensors
from dlperf_slurm.worker.frameworks.megengine.training import (
    join_process_group,
    make_average,
    make_optimizer,
    make_scaler,
)
from dlperf_slurm.worker.work import Work


class MegEngineSession:
    """MegEngine's implementation of `worker.session.Session`.

    MegEngine has no device events, so `step` returns when the step has ended.
    """

    def __init__(self, case: Case, rank_info: RankInfo, device_name: str, server: Any) -> None:
        work = Work(case, rank_info, __package__)
        model = work.builder.Model(work.definition)
        # a tied weight occurs once, under its first name
        parameters = dict(model.named_parameters())
        load_weights(parameters, work.generate_weights())
        mge.random.seed(work.dropout_seed)
        self._case = case
        self._classes = work.classes
        self._batch = make_tensors(self.stage(work.make_batch()))

        self.parameter_count = sum(int(numpy.prod(p.shape)) for p in parameters.values())
        self.device_name = device_name
        self.versions = read_versions(case)
        self._is_training = case.axes.mode == TRAIN
        self._is_cuda = case.device == "cuda"
        self._server = server
        self._model = model
        self._parameters = parameters
        self._is_mixed = case.axes.precision == "amp-fp16"
        self._work = work
        self._inputs = work.take_inputs(self._batch)
        if self._is_training:
            self._prepare_training(case, rank_info)
        else:
            self._prepare_inference(case)

    def _prepare_training(self, case: Case, rank_info: RankInfo) -> None:
        work, parameters = self._work, self._parameters
        self._optimizer = make_optimizer(work.rule, parameters, work.definition.list_parameters())
        self._clip_global_norm = work.largest_norm
        self._scaler = make_scaler(case)
        self._batches_per_step = case.axes.gradient_accumulation
        self._is_first_batch = True
        self._average, callbacks = make_average(case, rank_info, list(parameters.values()))
        self._manager = GradManager().attach(list(parameters.values()), callbacks)
        self._differentiate = self._differentiate_batch
        self._differentiate_more = self._add_gradients
        self._update = self._update_weights
        if case.axes.compiler == "trace":
            self._compile()
        self._loss = mge.Tensor(float("nan"))

    def _prepare_inference(self, case: Case) -> None:
        self._model.eval()
        self._compute_logits: Callable[[], Any] = self._run_model
        if case.axes.compiler == "trace":
            self._compute_logits = mge.jit.trace(
                self._run_model, symbolic=True, symbolic_shape=False
            )
            # a trace records its first call and compiles in its second
            for _ in range(2):
                self.infer()

    def _compile(self) -> None:
        """Compile the training step: run each trace twice, then restore model and optimizer.

        A trace records its first call and compiles in its second.
        """
        self._differentiate, self._differentiate_more, self._update = (
            mge.jit.trace(function, symbolic=True, symbolic_shape=False)
            for function in (self._differentiate_batch, self._add_gradients, self._update_weights)
        )
        model_state = self._model.state_dict()
        optimizer_state = self._optimizer.state_dict()
        for _ in range(2):
            for _ in range(self._batches_per_step - 1):
                self.accumulate()
            self.step()
        self._model.load_state_dict(model_state)
        self._optimizer.load_state_dict(optimizer_state)

    def step(self) -> None:
        self._compute_mean()
        self._update()
        self.synchronize()

    def accumulate(self) -> None:
        self._loss = self._differentiate() if self._is_first_batch else self._differentiate_more()
        self._is_first_batch = False

    def _compute_mean(self) -> None:
        """Backpropagate a step's last batch: gradients are then averaged over batches and ranks.

        They are still scaled. Also sets the loss.
        """
        self.accumulate()
        self._is_first_batch = True
        self._average()

    def _differentiate_batch(self) -> mge.Tensor:
        """Backpropagate a step's first batch and return the loss; replaces the rank's gradients."""
        self._optimizer.clear_grad()
        return self._add_gradients()

    def _add_gradients(self) -> mge.Tensor:
        """Backpropagate a batch and return the loss; adds to the rank's gradients."""
        with self._manager:
            loss = self._compute_loss(self._run_model())
            share = loss if self._batches_per_step == 1 else loss / self._batches_per_step
            if self._scaler is None:
                self._manager.backward(share)
            else:
                self._scaler.backward(self._manager, share, unscale_grad=False)
        return loss

    def stage(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        """Return NumPy arrays with 32-bit integers: MegEngine has no host arrays of its own."""
        return narrow_integers(spread_labels(batch, self._classes))

    def load(self, staged: Dict[str, Any]) -> None:
        """Copy a staged batch, name -> array, into the tensors that a compiled trace uses."""
        for name, tensor in make_tensors(staged).items():
            self._batch[name][...] = tensor

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Dict[str, Any]]:
        # the loader module needs Plasma
        from dlperf_slurm.worker.frameworks.megengine.loader import open_loader

        return map(self.stage, open_loader(self._case, dataset, order))

    def set_learning_rate(self, learning_rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"][...] = mge.Tensor(numpy.float32(learning_rate))

    def predict(self, batch: Dict[str, Any]) -> Any:
        tensors = make_tensors(self.stage(batch))
        logits = self._evaluate(self._work.take_inputs(tensors))
        return numpy.array(logits.numpy(), numpy.float32)

    def _run_model(self) -> Any:
        return self._run_model_on(self._inputs)

    def _run_model_on(self, inputs: Sequence[mge.Tensor]) -> Any:
        with amp.autocast(enabled=self._is_mixed):
            return self._model(*inputs)

    def _compute_loss(self, logits: Any) -> mge.Tensor:
        with amp.autocast(enabled=self._is_mixed):
            return self._work.compute_loss(logits, self._batch)

    def _update_weights(self) -> None:
        if self._scaler is not None:
            # After an overflow GradScaler removes the gradients, and the optimizer skips the
            # weights. A constant scale is neither checked nor updated.
            self._scaler.unscale(self._parameters.values())
            self._scaler.update()
        if self._clip_global_norm is not None:
            clip_grad_norm(self._parameters.values(), self._clip_global_norm)
        self._optimizer.step()

    def infer(self) -> None:
        self._logits = self._compute_logits()
        self.synchronize()

    def synchronize(self) -> None:
        mge._full_sync()

    def make_clock(self, boundaries: int) -> HostClock:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._is_cuda:
            mge.reset_max_memory_stats()
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of MegEngine's tensors on a GPU, or of resident memory on the CPU."""
        if self._is_cuda:
            return int(mge.get_max_allocated_memory())
        return host.read_peak_resident_bytes()

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.numpy())
        return float(self._compute_loss(self._logits).numpy())

    def evaluate_loss(self) -> float:
        return float(self._compute_loss(self._evaluate(self._inputs)).numpy())

    def _evaluate(self, inputs: Sequence[mge.Tensor]) -> Any:
        self._model.eval()
        logits = self._run_model_on(inputs)
        self._model.train(self._is_training)
        return logits

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._batches_per_step - 1):
            self.accumulate()
        self._compute_mean()
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        scale = 1.0 if self._scaler is None else self._scaler.scale_factor
        arrays = read_arrays(gradients, self._work.definition.list_parameters())
        return {name: values / scale for name, values in arrays.items()}

    def read_weights(self) -> Dict[str, Any]:
        return read_arrays(self._parameters, self._work.definition.list_parameters())

    def close(self) -> None:
        if distributed.is_distributed():
            # no rank may still need the server when rank 0 ends it
            distributed.group_barrier()


def start_session(case: Case, rank_info: RankInfo) -> MegEngineSession:
    if case.device == "cpu":
        # One thread computes while the interpreter's thread waits. MegEngine's "multithread"
        # devices are for inference: with them the backward pass of a convolution took more CPU time
        # and was no faster.
        mge.set_default_device("cpu0")
        return MegEngineSession(case, rank_info, "", None)
    index = choose_gpu(rank_info)
    mge.set_default_device(f"gpu{index}")
    mge.config.benchmark_kernel = True
    server = join_process_group(rank_info, index) if rank_info.world_size > 1 else None
    name = str(mge.device.get_cuda_device_property(index).name)
    return MegEngineSession(case, rank_info, name, server)
