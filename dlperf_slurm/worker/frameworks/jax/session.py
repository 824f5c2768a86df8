"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

from functools import partial
from importlib import import_module
from typing import Any, Dict

import jax
import numpy
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.jax.devices import (
    RANKS,
    configure_devices,
    join_process_group,
    make_mesh,
    read_device_name,
    read_versions,
)
from dlperf_slurm.worker.frameworks.jax.forward import Evaluation, Forward, State
from dlperf_slurm.worker.frameworks.jax.layers import LAYOUTS
from dlperf_slurm.worker.frameworks.jax.scaling import make_loss_scale
from dlperf_slurm.worker.frameworks.jax.training import Training
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights

# the device's own generator: JAX's default, threefry, is made for other ends and slower
DROPOUT_GENERATOR = "rbg"


class JaxSession:
    """The adapter's Session; a step returns when it is done, since JAX has no device events."""

    def __init__(self, case: Case, placement: Placement, mesh: Mesh) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.jax.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        image_layout, self._kernel_layout, _ = LAYOUTS[case.memory_format]
        per_rank = NamedSharding(mesh, P(RANKS))
        batch = make_batch(definition, case.batch_size_per_device, case.seed, placement.rank)
        if "images" in batch:
            batch["images"] = transpose(batch["images"], "NCHW", image_layout)

        self._device = mesh.local_devices[0]
        self.device_name = read_device_name(self._device)
        self.versions = read_versions(self._device)
        forward = Forward(case, definition, builder)
        self._evaluation = Evaluation(forward, mesh)
        self._state = make_state(case, placement, definition, mesh)
        self.parameter_count = sum(values.size for values in self._state.weights.values())
        self._batch = {name: place(values, per_rank) for name, values in batch.items()}
        self._is_training = case.mode == TRAIN
        if self._is_training:
            self._prepare_training(case, Training(case, definition, builder, forward, mesh), mesh)
        else:
            self._infer = self._evaluation.infer.lower(self._state, self._batch).compile()

    def _prepare_training(self, case: Case, training: Training, mesh: Mesh) -> None:
        replicated, per_rank = NamedSharding(mesh, P()), NamedSharding(mesh, P(RANKS))
        loss_scale = make_loss_scale() if case.precision == "amp-fp16" else None
        initialize = jax.jit(training.initialize_optimizer, out_shardings=replicated)
        self._state = self._state._replace(
            optimizer=initialize(self._state.weights),
            loss_scale=jax.tree.map(lambda values: place(values, replicated), loss_scale),
        )
        self._training = training
        self._losses = place(numpy.full(1, numpy.nan, numpy.float32), per_rank)
        self._step = training.step.lower(self._state, self._batch).compile()

    def step(self) -> None:
        self._state, self._losses = self._step(self._state, self._batch)
        jax.block_until_ready((self._state, self._losses))

    def infer(self) -> None:
        self._logits = self._infer(self._state, self._batch)
        jax.block_until_ready(self._logits)

    def synchronize(self) -> None:
        """Steps and inferences have waited for what they make; this is for what they start from."""
        jax.block_until_ready((self._state, self._batch))

    def make_clock(self, boundaries: int) -> HostClock:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        """On a GPU there is no reset: the peak is that since the start of the process."""
        if self._device.platform == "cpu":
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of XLA's allocator on a GPU; of the whole process on the CPU."""
        if self._device.platform == "cpu":
            return host.read_peak_resident_bytes()
        return int(self._device.memory_stats()["peak_bytes_in_use"])

    def read_loss(self) -> float:
        if self._is_training:
            return read_own(self._losses)
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluation.infer(self._state, self._batch))

    def _read_loss_of(self, logits: Any) -> float:
        return read_own(self._evaluation.compute_losses(logits, self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        self._losses, statistics, gradients = self._training.backpropagate(self._state, self._batch)
        self._state = self._state._replace(statistics=statistics)
        return self._to_numpy(gradients)

    def read_weights(self) -> Dict[str, Any]:
        return self._to_numpy(self._state.weights)

    def _to_numpy(self, arrays: Dict[str, Array]) -> Dict[str, Any]:
        # copied: the device's memory is donated to the next step
        return {
            name: numpy.array(transpose(numpy.asarray(values), self._kernel_layout, "OIHW"))
            for name, values in arrays.items()
        }

    def close(self) -> None:
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()


def start_session(case: Case, placement: Placement) -> JaxSession:
    configure_devices(case, placement)
    if placement.world_size > 1:
        join_process_group(placement)
    return JaxSession(case, placement, make_mesh(placement))


def make_state(case: Case, placement: Placement, definition: Any, mesh: Mesh) -> State:
    """What a forward pass starts from, on the devices; a step needs the rest as well."""
    replicated, per_rank = NamedSharding(mesh, P()), NamedSharding(mesh, P(RANKS))
    kernel_layout = LAYOUTS[case.memory_format][1]
    weights = {
        name: place(transpose(values, "OIHW", kernel_layout), replicated)
        for name, values in generate_weights(definition, case.seed)
    }
    statistics = {
        statistic.name: place(
            numpy.full((1, *statistic.shape), statistic.mean, numpy.float32), per_rank
        )
        for statistic in definition.list_running_statistics()
    }
    # The same weights on all ranks, but dropout of their own.
    key = jax.random.key(case.seed + 1 + placement.rank, impl=DROPOUT_GENERATOR)
    keys = place(numpy.asarray(jax.random.key_data(key))[None], per_rank)
    return State(
        weights=weights,
        statistics=statistics,
        optimizer=None,
        loss_scale=None,
        keys=jax.jit(partial(jax.random.wrap_key_data, impl=DROPOUT_GENERATOR))(keys),
    )


def place(values: Any, sharding: NamedSharding) -> Array:
    """This process's part of an array over all ranks; 64-bit integers become 32-bit ones."""
    return jax.make_array_from_process_local_data(sharding, values)


def transpose(values: Any, layout: str, new_layout: str) -> Any:
    """A view of images or kernels in another layout; other arrays as they are."""
    if values.ndim != len(layout) or layout == new_layout:
        return values
    return values.transpose([layout.index(axis) for axis in new_layout])


def read_own(values: Any) -> float:
    """This rank's value of an array with one value per rank."""
    return float(values.addressable_data(0)[0])
