"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

import gc
import os
from importlib import import_module
from typing import Any, Dict

import mxnet as mx
from mxnet import autograd
from mxnet.contrib import amp
from mxnet.gluon.utils import clip_global_norm

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.mxnet.distribution import end_servers, join_ranks
from dlperf_slurm.worker.frameworks.mxnet.parameters import (
    count_parameters,
    find_parameters,
    load_weights,
)
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights

# oneDNN's casts, which AMP places in a hybridized model, do not know int64
INPUT_TYPES = {"float32": "float32", "int64": "int32"}
AMP_TYPES = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}


class MXNetSession:
    """The adapter's Session; MXNet has no device events, so that a step returns when it is done."""

    def __init__(self, case: Case, placement: Placement, device: mx.Context) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.mxnet.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        model = builder.build_model(definition)
        self._parameters = find_parameters(model)
        self._is_training = case.mode == TRAIN
        if not self._is_training:
            for parameter in self._parameters.values():
                # else it would have room for a gradient
                parameter.grad_req = "null"
        model.initialize(mx.init.Zero(), ctx=device)
        load_weights(self._parameters, generate_weights(definition, case.seed))
        # The same weights on all ranks, but dropout of their own.
        mx.random.seed(case.seed + 1 + placement.rank)
        self._batch = {
            name: mx.nd.array(values, ctx=device, dtype=INPUT_TYPES[values.dtype.name])
            for name, values in make_batch(
                definition, case.batch_size_per_device, case.seed, placement.rank
            ).items()
        }
        if case.compiler == "hybridize":
            model.hybridize(static_alloc=True, static_shape=True)

        self.parameter_count = count_parameters(self._parameters)
        self.device_name = read_device_name(device)
        self.versions = read_versions(case)
        self._device = device
        self._definition = definition
        self._builder = builder
        self._model = model
        self._inputs = [self._batch[name] for name in builder.INPUTS]
        if self._is_training:
            self._prepare_training(case, placement)

    def _prepare_training(self, case: Case, placement: Placement) -> None:
        definition, parameters = self._definition, self._parameters
        optimizer = self._builder.make_optimizer(
            definition, list(parameters.values()), case.global_batch_size
        )
        self._trainer, self._servers = join_ranks(case, placement, parameters, optimizer)
        self._is_scaled = case.precision == "amp-fp16"
        if self._is_scaled:
            amp.init_trainer(self._trainer)
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        self._loss = mx.nd.full((1,), float("nan"))

    def step(self) -> None:
        self._backpropagate()
        if self._clip_global_norm is not None:
            # The gradients are sums, and scaled; without the check it does not read the norm back.
            # It adds 1e-8 to the norm that it divides by, PyTorch 1e-6.
            clip_global_norm(
                [parameter.grad() for parameter in self._parameters.values()],
                self._clip_global_norm / self._trainer._scale,
                check_isfinite=False,
            )
        self._trainer.update(1)
        self.synchronize()

    def _backpropagate(self) -> None:
        """Set the loss and the gradients; times the trainer's scale they are the ranks' mean."""
        with autograd.record():
            loss = self._compute_loss(self._model(*self._inputs))
            if self._is_scaled:
                with amp.scale_loss(loss, self._trainer) as scaled:
                    autograd.backward(scaled)
            else:
                loss.backward()
        self._trainer.allreduce_grads()
        self._loss = loss.detach()

    def _compute_loss(self, logits: Any) -> mx.nd.NDArray:
        return self._builder.compute_loss(self._definition, logits, self._batch)

    def infer(self) -> None:
        """Outside of autograd.record, MXNet is in evaluation mode."""
        self._logits = self._model(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        mx.nd.waitall()

    def make_clock(self, boundaries: int) -> HostClock:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        """On a GPU there is no reset: MXNet's pool never gives back what it once had."""
        if self._device.device_type == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of the whole device on a GPU; of the whole process on the CPU."""
        if self._device.device_type == "cpu":
            return host.read_peak_resident_bytes()
        free, total = mx.context.gpu_memory_info(self._device.device_id)
        return int(total - free)

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.asscalar())
        return float(self._compute_loss(self._logits).asscalar())

    def evaluate_loss(self) -> float:
        return float(self._compute_loss(self._model(*self._inputs)).asscalar())

    def compute_gradients(self) -> Dict[str, Any]:
        self._backpropagate()
        scale = self._trainer._scale
        return {name: p.grad().asnumpy() * scale for name, p in self._parameters.items()}

    def read_weights(self) -> Dict[str, Any]:
        return {name: p.data().asnumpy() for name, p in self._parameters.items()}

    def close(self) -> None:
        if not self._is_training:
            return
        # KVStore leaves, and tells its servers to end, when it is freed; it is in a cycle.
        del self._trainer, self._parameters, self._model
        gc.collect()
        end_servers(self._servers)


def start_session(case: Case, placement: Placement) -> MXNetSession:
    device = choose_device(case, placement)
    # cuBLAS and cuDNN, whatever MXNet asks for
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if case.precision == "tf32" else "0"
    if case.precision in AMP_TYPES:
        # puts casts into MXNet's operators, for the whole process
        amp.init(AMP_TYPES[case.precision])
    return MXNetSession(case, placement, device)


def choose_device(case: Case, placement: Placement) -> mx.Context:
    if case.device == "cpu":
        return mx.cpu()
    count = mx.context.num_gpus()
    if count == 0:
        raise RuntimeError("MXNet sees no GPU; its wheel for GPUs has the name of a CUDA version")
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    return mx.gpu(0 if count == 1 else placement.local_rank)


def read_device_name(device: mx.Context) -> str:
    if device.device_type == "cpu":
        return host.read_cpu_name()
    return str(device)


def read_versions(case: Case) -> Dict[str, str]:
    """`features` is what MXNet says of its build."""
    features = mx.runtime.Features()
    versions = {
        "mxnet": str(mx.__version__),
        "features": " ".join(sorted(name for name in features if features.is_enabled(name))),
    }
    if case.distribution == "horovod":
        import horovod

        versions["horovod"] = str(horovod.__version__)
    return versions
