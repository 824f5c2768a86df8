"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

import os
from importlib import import_module
from typing import Any, Dict

import paddle
from paddle import distributed, nn
from paddle.base import core

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.paddle.clocks import CudaEventClock
from dlperf_slurm.worker.frameworks.paddle.devices import (
    allow_tf32,
    check_overflow_message,
    choose_device,
    read_device_name,
    read_versions,
)
from dlperf_slurm.worker.frameworks.paddle.parameters import (
    count_parameters,
    list_trained,
    load_weights,
    read_arrays,
)
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights

AUTOCAST_TYPES = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}
DATA_FORMATS = {"default": "NCHW", "channels_last": "NHWC"}


class PaddleSession:
    """The adapter's Session."""

    def __init__(self, case: Case, placement: Placement) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.paddle.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        model = builder.build_model(definition, DATA_FORMATS[case.memory_format])
        load_weights(model, generate_weights(definition, case.seed))
        # The same weights on all ranks, but dropout of their own.
        paddle.seed(case.seed + 1 + placement.rank)
        batch = {
            name: paddle.to_tensor(values)
            for name, values in make_batch(
                definition, case.batch_size_per_device, case.seed, placement.rank
            ).items()
        }
        if case.memory_format == "channels_last":
            batch["images"] = batch["images"].transpose((0, 2, 3, 1)).contiguous()

        self.parameter_count = count_parameters(model)
        self.device_name = read_device_name(case)
        self.versions = read_versions(case)
        self._is_training = case.mode == TRAIN
        self._is_cuda = case.device == "cuda"
        self._plain_model = model
        self._parameters = list_trained(model)
        self._precision = case.precision
        self._definition = definition
        self._builder = builder
        self._inputs = [batch[name] for name in builder.INPUTS]
        self._batch = batch
        if self._is_training:
            self._prepare_training(case, placement)
        else:
            self._prepare_inference(case)

    def _prepare_training(self, case: Case, placement: Placement) -> None:
        definition, model = self._definition, self._plain_model
        # Paddle scales by largest / max(norm, largest); torch adds 1e-6 to the norm.
        clip = nn.ClipGradByGlobalNorm(definition.CLIP_GLOBAL_NORM)
        self._optimizer = self._builder.make_optimizer(
            definition, model, case.global_batch_size, clip if case.clip_global_norm else None
        )
        # Paddle reads the overflow flag back in every step.
        self._scaler = paddle.amp.GradScaler(enable=case.precision == "amp-fp16")
        self._compute_loss = self._builder.compute_loss
        if case.compiler != "none":
            model, self._compute_loss = (
                compile_graph(part, case.compiler) for part in (model, self._compute_loss)
            )
        self._model = model if placement.world_size == 1 else paddle.DataParallel(model)
        self._loss = paddle.full((), float("nan"))

    def _prepare_inference(self, case: Case) -> None:
        self._model = self._plain_model
        self._model.eval()
        if case.compiler != "none":
            self._model = compile_graph(self._model, case.compiler)

    def step(self) -> None:
        """Returns when it is done, on the CPU; the optimizer clips what the scaler unscaled."""
        self._backpropagate()
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _backpropagate(self) -> None:
        """Set the loss and the gradients, which are averaged over the ranks and scaled."""
        self._optimizer.clear_grad(set_to_zero=False)
        with self._autocast():
            logits = self._model(*self._inputs)
            loss = self._compute_loss(self._definition, logits, self._batch)
        self._scaler.scale(loss).backward()
        self._loss = loss.detach()

    def _autocast(self) -> Any:
        # of one use each
        dtype = AUTOCAST_TYPES.get(self._precision)
        return paddle.amp.auto_cast(dtype is not None, level="O1", dtype=dtype or "float16")

    def infer(self) -> None:
        """On the CPU the model returns when it is done."""
        with paddle.no_grad(), self._autocast():
            self._logits = self._model(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        if self._is_cuda:
            paddle.device.synchronize()

    def make_clock(self, boundaries: int) -> Any:
        if self._is_cuda:
            return CudaEventClock(boundaries)
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._is_cuda:
            paddle.device.cuda.reset_max_memory_allocated()
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of Paddle's tensors on a GPU; of the whole process on the CPU."""
        if self._is_cuda:
            return int(paddle.device.cuda.max_memory_allocated())
        return host.read_peak_resident_bytes()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss)
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        # neither distributed, which has nothing to average, nor compiled, which would begin anew
        self._plain_model.eval()
        paddle.jit.enable_to_static(False)
        with paddle.no_grad(), self._autocast():
            logits = self._plain_model(*self._inputs)
        paddle.jit.enable_to_static(True)
        if self._is_training:
            self._plain_model.train()
        return self._read_loss_of(logits)

    def _read_loss_of(self, logits: Any) -> float:
        with paddle.no_grad(), self._autocast():
            return float(self._builder.compute_loss(self._definition, logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        self._backpropagate()
        scale = self._scaler.state_dict().get("scale", 1.0)
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        arrays = read_arrays(self._plain_model, gradients)
        return {name: values / scale for name, values in arrays.items()}

    def read_weights(self) -> Dict[str, Any]:
        return read_arrays(self._plain_model, self._parameters)

    def close(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def start_session(case: Case, placement: Placement) -> PaddleSession:
    core.set_num_threads(case.cpus_per_rank)
    choose_device(case, placement)
    if case.device == "cuda":
        allow_tf32(case.precision == "tf32")
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})
    else:
        # A static graph's operators one after the other in this thread: others would not have its
        # number of threads.
        paddle.set_flags({"FLAGS_enable_pir_in_executor_trace_run": True})
    if case.device == "cpu" and case.nodes == 1:
        # Gloo looks for the interface of this host's name, which need not resolve to one
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if case.precision == "amp-fp16":
        check_overflow_message()
    if placement.world_size > 1:
        join_process_group(case, placement)
    return PaddleSession(case, placement)


def compile_graph(part: Any, compiler: str) -> Any:
    """A layer (which is changed) or a function as one static graph, without or with CINN."""
    if compiler == "cinn" and not paddle.is_compiled_with_cinn():
        raise RuntimeError("this build of Paddle has no CINN; use compiler 'to_static'")
    # The default of `backend` is CINN.
    backend = "CINN" if compiler == "cinn" else None
    return paddle.jit.to_static(part, full_graph=True, backend=backend)


def join_process_group(case: Case, placement: Placement) -> None:
    os.environ.update(
        PADDLE_TRAINER_ID=str(placement.rank),
        PADDLE_TRAINERS_NUM=str(placement.world_size),
        PADDLE_TRAINER_ENDPOINTS=",".join(placement.rank_addresses),
        PADDLE_CURRENT_ENDPOINT=placement.rank_addresses[placement.rank],
        # These two go before the endpoints, and a site may have set them.
        MASTER_ADDR=placement.master_address,
        MASTER_PORT=str(placement.master_port),
        PADDLE_DISTRI_BACKEND="nccl" if case.device == "cuda" else "gloo",
    )
    distributed.init_parallel_env()
