"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

from importlib import import_module
from typing import Any, Callable, Dict

import megengine as mge
from megengine import amp, distributed
from megengine.autodiff import GradManager
from megengine.optimizer import clip_grad_norm

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.megengine.devices import (
    choose_gpu,
    read_device_name,
    read_versions,
)
from dlperf_slurm.worker.frameworks.megengine.distribution import MpiAverage, join_process_group
from dlperf_slurm.worker.frameworks.megengine.parameters import (
    count_parameters,
    load_weights,
    read_arrays,
)
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights


class MegEngineSession:
    """The adapter's Session; MegEngine has no device events, so a step returns when it is done."""

    def __init__(self, case: Case, placement: Placement, device: str, server: Any) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.megengine.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        model = builder.build_model(definition)
        # a tied weight once, by its first name
        parameters = dict(model.named_parameters())
        load_weights(parameters, generate_weights(definition, case.seed))
        # The same weights on all ranks, but dropout of their own.
        mge.random.seed(case.seed + 1 + placement.rank)
        # of int64 it makes int32
        batch = {
            name: mge.Tensor(values)
            for name, values in make_batch(
                definition, case.batch_size_per_device, case.seed, placement.rank
            ).items()
        }

        self.parameter_count = count_parameters(parameters)
        self.device_name = read_device_name(device)
        self.versions = read_versions(case)
        self._is_training = case.mode == TRAIN
        self._is_cuda = case.device == "cuda"
        self._server = server
        self._model = model
        self._parameters = parameters
        self._is_mixed = case.precision == "amp-fp16"
        self._definition = definition
        self._builder = builder
        self._inputs = [batch[name] for name in builder.INPUTS]
        self._batch = batch
        if self._is_training:
            self._prepare_training(case, placement)
        else:
            self._prepare_inference(case)

    def _prepare_training(self, case: Case, placement: Placement) -> None:
        definition, parameters = self._definition, self._parameters
        self._optimizer = self._builder.make_optimizer(
            definition, parameters, case.global_batch_size
        )
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        # It reads the overflow flag back in every step.
        self._scaler = amp.GradScaler() if self._is_mixed else None
        is_distributed = placement.world_size > 1
        self._mpi_average = None
        callbacks = []
        if is_distributed and case.distribution == "mpi":
            self._mpi_average = MpiAverage(list(parameters.values()))
        elif is_distributed:
            callbacks.append(distributed.make_allreduce_cb("mean"))
        self._manager = GradManager().attach(list(parameters.values()), callbacks)
        self._differentiate = self._differentiate_batch
        self._update = self._update_weights
        if case.compiler == "trace":
            self._compile()
        self._loss = mge.Tensor(float("nan"))

    def _prepare_inference(self, case: Case) -> None:
        self._model.eval()
        self._compute_logits: Callable[[], Any] = self._run_model
        if case.compiler == "trace":
            self._compute_logits = mge.jit.trace(
                self._run_model, symbolic=True, symbolic_shape=False
            )
            # it records the first call and compiles in the second
            for _ in range(2):
                self.infer()

    def _compile(self) -> None:
        """A trace records its first call and compiles in its second: make both, and undo them."""
        self._differentiate = mge.jit.trace(
            self._differentiate_batch, symbolic=True, symbolic_shape=False
        )
        self._update = mge.jit.trace(self._update_weights, symbolic=True, symbolic_shape=False)
        model_state = self._model.state_dict()
        optimizer_state = self._optimizer.state_dict()
        for _ in range(2):
            self.step()
        self._model.load_state_dict(model_state)
        self._optimizer.load_state_dict(optimizer_state)

    def step(self) -> None:
        self._backpropagate()
        self._update()
        self.synchronize()

    def _backpropagate(self) -> None:
        """Set the loss and the gradients, which are averaged over the ranks and scaled."""
        self._loss = self._differentiate()
        if self._mpi_average is not None:
            self._mpi_average.average()

    def _differentiate_batch(self) -> mge.Tensor:
        """The loss; the gradients of this rank go to the parameters."""
        self._optimizer.clear_grad()
        with self._manager:
            loss = self._compute_loss(self._run_model())
            if self._scaler is None:
                self._manager.backward(loss)
            else:
                self._scaler.backward(self._manager, loss, unscale_grad=False)
        return loss

    def _run_model(self) -> Any:
        with amp.autocast(enabled=self._is_mixed):
            return self._model(*self._inputs)

    def _compute_loss(self, logits: Any) -> mge.Tensor:
        with amp.autocast(enabled=self._is_mixed):
            return self._builder.compute_loss(self._definition, logits, self._batch)

    def _update_weights(self) -> None:
        if self._scaler is not None:
            # after an overflow it leaves no gradients, and the optimizer passes over the weights
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
        """Of MegEngine's tensors on a GPU; of the whole process on the CPU."""
        if self._is_cuda:
            return int(mge.get_max_allocated_memory())
        return host.read_peak_resident_bytes()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.numpy())
        return float(self._compute_loss(self._logits).numpy())

    def evaluate_loss(self) -> float:
        self._model.eval()
        loss = self._compute_loss(self._run_model())
        self._model.train(self._is_training)
        return float(loss.numpy())

    def compute_gradients(self) -> Dict[str, Any]:
        self._backpropagate()
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        scale = 1.0 if self._scaler is None else self._scaler.scale_factor
        arrays = read_arrays(gradients, self._definition.list_parameters())
        return {name: values / scale for name, values in arrays.items()}

    def read_weights(self) -> Dict[str, Any]:
        return read_arrays(self._parameters, self._definition.list_parameters())

    def close(self) -> None:
        if distributed.is_distributed():
            # none may still need the server when rank 0 ends it
            distributed.group_barrier()


def start_session(case: Case, placement: Placement) -> MegEngineSession:
    if case.device == "cpu":
        # One thread computes, and the interpreter's wait beside it. MegEngine's "multithread"
        # devices are for inference: there, the backward pass of a convolution took more CPU time
        # and no less time.
        mge.set_default_device("cpu0")
        return MegEngineSession(case, placement, "cpu0", None)
    index = choose_gpu(placement)
    device = f"gpu{index}"
    mge.set_default_device(device)
    mge.config.benchmark_kernel = True
    server = join_process_group(placement, index) if placement.world_size > 1 else None
    return MegEngineSession(case, placement, device, server)
