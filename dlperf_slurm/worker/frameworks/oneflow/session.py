"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

from contextlib import nullcontext
from importlib import import_module
from typing import Any, Callable, Dict, Optional

import oneflow as flow
from oneflow import nn

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.oneflow.distribution import (
    distribute,
    make_global,
    read_loss,
    to_numpy,
)
from dlperf_slurm.worker.frameworks.oneflow.graphs import (
    AMP_TYPES,
    Batch,
    InferenceGraph,
    TrainingGraph,
)
from dlperf_slurm.worker.frameworks.oneflow.parameters import count_parameters, load_weights
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights


class OneFlowSession:
    """The adapter's Session; OneFlow has no device events, so that a step returns when it is done.

    On the CPU as on a GPU, it computes in a thread of its own while Python goes on.
    """

    def __init__(self, case: Case, placement: Placement, device: flow.device) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.oneflow.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        model = builder.build_model(definition, device)
        load_weights(model, generate_weights(definition, case.seed))
        # The same weights on all ranks, but dropout of their own.
        flow.manual_seed(case.seed + 1 + placement.rank)
        batch = {
            name: flow.from_numpy(values).to(device)
            for name, values in make_batch(
                definition, case.batch_size_per_device, case.seed, placement.rank
            ).items()
        }
        is_graph = case.compiler == "graph"
        if placement.world_size > 1 and is_graph:
            batch = make_global(model, batch, device.type)

        self.parameter_count = count_parameters(model)
        self.device_name = read_device_name(device)
        self.versions = read_versions(device)
        self._is_training = case.mode == TRAIN
        self._device = device
        self._model = model
        self._parameters = dict(model.named_parameters())
        self._precision = case.precision
        self._definition = definition
        self._builder = builder
        self._inputs = [batch[name] for name in builder.INPUTS]
        self._batch = batch
        if self._is_training:
            self._prepare_training(case, placement, is_graph)
        else:
            self._prepare_inference(is_graph)

    def _prepare_training(self, case: Case, placement: Placement, is_graph: bool) -> None:
        definition, model = self._definition, self._model
        self._optimizer = self._builder.make_optimizer(definition, model, case.global_batch_size)
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        self._graph: Optional[TrainingGraph] = None
        if is_graph:
            self._graph = TrainingGraph(model, self._compute_loss, self._optimizer, case.precision)
            self._graph._compile(self._batch)
        elif placement.world_size > 1:
            self._model = distribute(model)
        self._loss = flow.tensor(float("nan"))

    def _prepare_inference(self, is_graph: bool) -> None:
        self._model.eval()
        self._compute_logits: Callable[..., Any] = self._run_model
        if is_graph:
            graph = InferenceGraph(self._model, self._precision)
            graph._compile(*self._inputs)
            self._compute_logits = graph

    def step(self) -> None:
        if self._graph is not None:
            self._loss = self._graph(self._batch)
        else:
            self._backpropagate()
            if self._clip_global_norm is not None:
                nn.utils.clip_grad_norm_(self._parameters.values(), self._clip_global_norm)
            self._optimizer.step()
        self.synchronize()

    def _backpropagate(self) -> None:
        """Set the loss and the gradients, which are averaged over the ranks, without the graph."""
        # DDP's buffers must be zero; what a graph's compilation leaves has no numbers to be zeroed.
        self._optimizer.zero_grad(set_to_none=self._graph is not None)
        with self._autocast():
            loss = self._compute_loss(self._model, self._batch)
        loss.backward()
        self._loss = loss.detach()

    def _compute_loss(self, model: Any, batch: Batch) -> flow.Tensor:
        logits = model(*(batch[name] for name in self._builder.INPUTS))
        return self._builder.compute_loss(self._definition, logits, batch)

    def _run_model(self, *inputs: flow.Tensor) -> Any:
        with self._autocast():
            return self._model(*inputs)

    def _autocast(self) -> Any:
        # left out where it is off: on the CPU OneFlow warns that it has none
        if self._precision not in AMP_TYPES:
            return nullcontext()
        return flow.autocast(self._device.type, AMP_TYPES[self._precision])

    def infer(self) -> None:
        with flow.no_grad():
            self._logits = self._compute_logits(*self._inputs)
        self.synchronize()

    def synchronize(self) -> None:
        flow._oneflow_internal.eager.Sync()
        if self._device.type == "cuda":
            flow.cuda.synchronize(self._device)

    def make_clock(self, boundaries: int) -> HostClock:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        """On a GPU there is no reset: OneFlow's pool never gives back what it once had."""
        if self._device.type == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of the whole device on a GPU, in steps of 1 MiB; of the whole process on the CPU."""
        if self._device.type == "cpu":
            return host.read_peak_resident_bytes()
        return int(flow._oneflow_internal.GetCUDAMemoryUsed()) * 2**20

    def read_loss(self) -> float:
        if self._is_training:
            return read_loss(self._loss)
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        self._model.eval()
        with flow.no_grad():
            logits = self._run_model(*self._inputs)
        self._model.train(self._is_training)
        return self._read_loss_of(logits)

    def _read_loss_of(self, logits: Any) -> float:
        with flow.no_grad(), self._autocast():
            return read_loss(self._builder.compute_loss(self._definition, logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        """Without the graph, which does not give them away; its updates show what it had."""
        self._backpropagate()
        return {name: to_numpy(parameter.grad) for name, parameter in self._parameters.items()}

    def read_weights(self) -> Dict[str, Any]:
        return {name: to_numpy(parameter) for name, parameter in self._parameters.items()}

    def close(self) -> None:
        """OneFlow leaves its process group when Python ends."""


def start_session(case: Case, placement: Placement) -> OneFlowSession:
    flow.set_num_threads(case.cpus_per_rank)
    return OneFlowSession(case, placement, choose_device(case, placement))


def choose_device(case: Case, placement: Placement) -> flow.device:
    if case.device == "cpu":
        return flow.device("cpu")
    count = flow.cuda.device_count()
    if count <= placement.local_rank:
        raise RuntimeError(
            f"OneFlow numbers GPUs by the local rank, and rank {placement.rank} with local rank "
            f"{placement.local_rank} sees {count}: let each rank see all GPUs of its node"
        )
    return flow.device("cuda", placement.local_rank)


def read_device_name(device: flow.device) -> str:
    if device.type == "cuda":
        return str(flow.cuda.get_device_name(device))
    return host.read_cpu_name()


def read_versions(device: flow.device) -> Dict[str, str]:
    versions = {"oneflow": str(flow.__version__), "oneflow_commit": str(flow.__git_commit__)}
    if device.type == "cuda":
        versions["cuda"] = str(flow.sysconfig.get_cuda_version())
    return versions
