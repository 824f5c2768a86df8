"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from functools import partial
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

import jax
import numpy
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import CompletionClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.jax.compilation_cache import CompilationCache
from dlperf_slurm.worker.frameworks.jax.device import (
    RANKS,
    Arrays,
    configure_devices,
    join_process_group,
    load_batch,
    make_mesh,
    pin,
    place,
    read_own,
    read_versions,
    take_own,
)
from dlperf_slurm.worker.frameworks.jax.forward import (
    PURE_TYPES,
    Evaluation,
    Forward,
    State,
    make_loss_scale,
    make_state_specs,
)
from dlperf_slurm.worker.frameworks.jax.generation import Generation
from dlperf_slurm.worker.frameworks.jax.layers import LAYOUTS
from dlperf_slurm.worker.frameworks.jax.loader import open_loader, prepare_batch, transpose
from dlperf_slurm.worker.frameworks.jax.sharding import (
    SplitAxes,
    find_split_axis,
    is_sharded,
    make_specs,
)
from dlperf_slurm.worker.frameworks.jax.training import Training
from dlperf_slurm.worker.work import Work

KERNEL_LAYOUT = "OIHW"
# the device's own generator: JAX's default, threefry, is slower
DROPOUT_GENERATOR = "rbg"


class JaxSession:
    """JAX's implementation of `worker.session.Session`.

    JAX has no device events: a step has ended when its losses are available.
    """

    def __init__(
        self, case: Case, rank_info: RankInfo, mesh: Mesh, cache: Optional[CompilationCache]
    ) -> None:
        work = Work(case, rank_info, __package__)
        self._work = work
        self._case = case
        self._image_layout, self._kernel_layout, _ = LAYOUTS[case.axes.memory_format]
        self._classes = work.classes
        self._device = mesh.local_devices[0]
        self._mesh, self._own_mesh = mesh, Mesh([self._device], (RANKS,))
        self.device_name = "" if case.device == "cpu" else str(self._device.device_kind)
        self.versions = read_versions(self._device)
        self._inputs = work.inputs
        weights, self._split_axes = place_weights(case, work, mesh)
        self._state = make_state(case, work, mesh, weights)
        specs = make_state_specs(make_specs(self._split_axes), P())
        self._forward = Forward(case, work, self._split_axes)
        self._evaluation = Evaluation(self._forward, mesh, specs)
        self._prediction = Evaluation(self._forward, self._own_mesh, specs)
        self.parameter_count = sum(values.size for values in self._state.weights.values())
        self.load(self.stage(work.make_batch()))
        self._is_training = case.axes.mode == TRAIN
        if self._is_training:
            self._prepare_training(case, work)
        elif case.axes.is_generation:
            prompts = work.take_inputs(self._batch)[0]
            self._generation = Generation(self._forward, self._state, prompts, case.axes, mesh)
        else:
            self._infer = self._evaluation.infer.lower(self._state, self._batch).compile()
        # whether the programs so far came from JAX's cache; '' without a cache
        self.compilation = cache.describe() if cache else ""

    def _prepare_training(self, case: Case, work: Work) -> None:
        mesh = self._mesh
        self._training = training = Training(case, work, self._forward, mesh, self._split_axes)
        weights, replicated = self._state.weights, NamedSharding(mesh, P())
        loss_scale = make_loss_scale(case)
        self._state = self._state._replace(
            optimizer=training.initialize_optimizer(weights),
            loss_scale=jax.tree.map(lambda values: place(values, replicated), loss_scale),
        )
        self.set_learning_rate(work.rule.learning_rate)
        nan: Any = numpy.full(1, numpy.nan, numpy.float32)
        self._losses = place(nan, NamedSharding(mesh, P(RANKS)))
        if case.axes.gradient_accumulation > 1:
            self._clear_accumulated()
            self._accumulate = training.accumulate.lower(self._state, self._batch).compile()
        self._step = training.step.lower(self._state, self._batch).compile()

    def step(self) -> None:
        self._state, self._losses = self._step(self._state, self._batch)

    def accumulate(self) -> None:
        self._state, self._losses = self._accumulate(self._state, self._batch)

    def _clear_accumulated(self) -> None:
        accumulated = self._training.initialize_accumulated(self._state.weights)
        self._state = self._state._replace(accumulated=accumulated)

    def stage(self, batch: Dict[str, Any]) -> Arrays:
        return pin(prepare_batch(batch, self._image_layout, self._classes), self._device)

    def load(self, staged: Arrays) -> None:
        self._batch = load_batch(staged, self._mesh)

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Arrays]:
        batches = open_loader(self._case, dataset, order, self._image_layout, self._classes)
        return (pin(batch, self._device) for batch in batches)

    def set_learning_rate(self, learning_rate: float) -> None:
        placed = place(numpy.float32(learning_rate), NamedSharding(self._mesh, P()))
        self._state = self._state._replace(learning_rate=placed)

    def predict(self, batch: Dict[str, Any]) -> Any:
        """Return logits, float32 [batch, classes], without the other ranks; pad a smaller batch."""
        size = self._case.axes.batch_size
        padded = {
            name: numpy.resize(batch[name], (size, *batch[name].shape[1:])) for name in self._inputs
        }
        own_batch = load_batch(self.stage(padded), self._own_mesh)
        logits = self._prediction.infer(take_own(self._state.take_forward()), own_batch)
        return numpy.array(logits, numpy.float32)[: len(batch["images"])]

    def infer(self) -> None:
        self._logits = self._infer(self._state, self._batch)
        jax.block_until_ready(self._logits)

    def prefill(self) -> None:
        self._generation.prefill(self._state)

    def decode(self) -> None:
        self._generation.decode(self._state)

    def read_tokens(self) -> Any:
        return self._generation.read_tokens()

    def continue_without_cache(self) -> Any:
        return self._generation.continue_without_cache(self._state)

    def synchronize(self) -> None:
        jax.block_until_ready((self._state, self._batch))

    def make_clock(self, boundaries: int) -> CompletionClock:
        return CompletionClock(boundaries, lambda: self._losses, jax.block_until_ready)

    def reset_peak_memory(self) -> None:
        """Reset the peak of memory on the CPU; on a GPU it counts from the start of the process."""
        if self._device.platform == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of XLA's allocator on a GPU, or of resident memory on the CPU.

        With XLA_PYTHON_CLIENT_ALLOCATOR=platform it is 0, unknown: that allocator counts nothing.
        """
        if self._device.platform == "cpu":
            return host.read_peak_resident_bytes()
        return int((self._device.memory_stats() or {}).get("peak_bytes_in_use", 0))

    def describe_attention(self) -> str:
        return self._forward.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return read_own(self._losses)
        if self._case.axes.is_generation:
            # the loss of the last generated tokens, with each taken as its own label
            logits, labels = self._generation.logits[:, None], {"labels": self._generation.last}
            return read_own(self._evaluation.compute_losses(logits, labels))
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluation.infer(self._state.take_forward(), self._batch))

    def _read_loss_of(self, logits: Any) -> float:
        return read_own(self._evaluation.compute_losses(logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._case.axes.gradient_accumulation - 1):
            self.accumulate()
        self._losses, statistics, gradients = self._training.backpropagate(self._state, self._batch)
        self._state = self._state._replace(statistics=statistics)
        if self._case.axes.gradient_accumulation > 1:
            self._clear_accumulated()
        return self._to_numpy(gradients)

    def read_weights(self) -> Dict[str, Any]:
        return self._to_numpy(self._state.weights)

    def _to_numpy(self, arrays: Dict[str, Array]) -> Dict[str, Any]:
        if is_sharded(self._case):
            arrays = self._gather(arrays)
        # a copy, because the device's memory is donated to the next step
        return {
            name: numpy.array(
                transpose(numpy.asarray(values), self._kernel_layout, KERNEL_LAYOUT), numpy.float32
            )
            for name, values in arrays.items()
        }

    def _gather(self, arrays: Dict[str, Array]) -> Dict[str, Array]:
        whole = NamedSharding(self._mesh, P())
        gathered: Dict[str, Array] = jax.jit(dict, out_shardings=whole)(arrays)
        return gathered

    def close(self) -> None:
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()


def start_session(case: Case, rank_info: RankInfo) -> JaxSession:
    configure_devices(case, rank_info)
    # a program for the CPU depends on the host's kind of CPU, which may differ between nodes
    cache = CompilationCache() if case.device == "cuda" else None
    if rank_info.world_size > 1:
        join_process_group(rank_info)
    return JaxSession(case, rank_info, make_mesh(rank_info), cache)


def place_weights(case: Case, work: Work, mesh: Mesh) -> Tuple[Arrays, SplitAxes]:
    """Return the initial weights on the devices by name, and each one's sharded axis or None."""
    kernel_layout = LAYOUTS[case.axes.memory_format][1]
    weight_type = PURE_TYPES.get(case.axes.precision, numpy.float32)
    weights, axes = {}, {}
    for name, values in work.generate_weights():
        values = transpose(values, KERNEL_LAYOUT, kernel_layout).astype(weight_type)
        axes[name] = find_split_axis(case, values.shape)
        sharding = NamedSharding(mesh, make_specs(axes)[name])
        weights[name] = jax.make_array_from_callback(values.shape, sharding, values.__getitem__)
    return weights, axes


def make_state(case: Case, work: Work, mesh: Mesh, weights: Arrays) -> State:
    """Return the state for a forward pass, on the devices; training adds the other fields."""
    per_rank = NamedSharding(mesh, P(RANKS))
    statistics = {
        statistic.name: place(
            numpy.full((1, *statistic.shape), statistic.mean, numpy.float32), per_rank
        )
        for statistic in work.definition.list_running_statistics()
    }
    key = jax.random.key(work.dropout_seed, impl=DROPOUT_GENERATOR)
    keys = place(numpy.asarray(jax.random.key_data(key))[None], per_rank)
    return State(
        weights=weights,
        statistics=statistics,
        keys=jax.jit(partial(jax.random.wrap_key_data, impl=DROPOUT_GENERATOR))(keys),
    )
