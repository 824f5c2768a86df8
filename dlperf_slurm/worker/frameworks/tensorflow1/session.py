"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

from typing import Any, Dict

import tensorflow as tf

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow1.devices import (
    make_config,
    read_device_name,
    read_versions,
)
from dlperf_slurm.worker.frameworks.tensorflow1.distribution import join_ranks
from dlperf_slurm.worker.frameworks.tensorflow1.graph import (
    build_forward,
    build_inference,
    build_training,
)
from dlperf_slurm.worker.frameworks.tensorflow1.parameters import (
    count_parameters,
    load_values,
    load_weights,
    to_canonical,
)
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights


class TensorFlowSession:
    """The adapter's Session."""

    def __init__(self, case: Case, placement: Placement) -> None:
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        batch = make_batch(definition, case.batch_size_per_device, case.seed, placement.rank)
        if "images" in batch:
            batch["images"] = batch["images"].transpose(0, 2, 3, 1)
        config = make_config(case, placement)
        distribution = join_ranks(case, placement, config)
        graph = tf.Graph()
        with graph.as_default(), tf.device(distribution.device):
            # The same weights on all ranks, but dropout of their own.
            tf.compat.v1.set_random_seed(case.seed + 1 + placement.rank)
            forward = build_forward(case, definition, batch)
            if case.mode == TRAIN:
                self._program: Any = build_training(case, forward, distribution.average)
            else:
                self._program = build_inference(forward)
            initializer = tf.compat.v1.global_variables_initializer()
            self._peak_memory = make_peak_memory(case.device)
        # what a step needed to add would be built anew in it
        graph.finalize()
        session = tf.compat.v1.Session(distribution.target, graph=graph, config=config)
        session.run(initializer)
        load_weights(session, forward.parameters, generate_weights(definition, case.seed))
        load_values(session, forward.batch, batch)

        self.parameter_count = count_parameters(forward.model)
        self.device_name = read_device_name(case.device, config)
        self.versions = read_versions(case)
        self._session = session
        self._parameters = forward.parameters
        # looks up what to run once, not in each step
        if case.mode == TRAIN:
            self._step = session.make_callable(self._program.step)
        else:
            self._infer = session.make_callable(self._program.infer)

    def step(self) -> None:
        self._step()

    def infer(self) -> None:
        self._infer()

    def synchronize(self) -> None:
        """A run returns when its device is done, GPUs too: TF_SYNC_ON_FINISH is its default."""

    def make_clock(self, boundaries: int) -> Any:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        """On a GPU, none: TensorFlow 1 keeps the peak since the start."""
        if self._peak_memory is None:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of TensorFlow's allocator on a GPU; of the whole process on the CPU."""
        if self._peak_memory is None:
            return host.read_peak_resident_bytes()
        return int(self._session.run(self._peak_memory))

    def read_loss(self) -> float:
        return float(self._session.run(self._program.loss))

    def evaluate_loss(self) -> float:
        return float(self._session.run(self._program.evaluation_loss))

    def compute_gradients(self) -> Dict[str, Any]:
        gradients, _ = self._session.run((self._program.gradients, self._program.moved))
        return {
            name: to_canonical(gradient, axes)
            for (name, (_, axes)), gradient in zip(self._parameters.items(), gradients)
        }

    def read_weights(self) -> Dict[str, Any]:
        parameters = self._parameters
        weights = self._session.run({name: variable for name, (variable, _) in parameters.items()})
        return {name: to_canonical(weights[name], axes) for name, (_, axes) in parameters.items()}

    def close(self) -> None:
        self._session.close()


def start_session(case: Case, placement: Placement) -> TensorFlowSession:
    # deprecations, of which this is all made
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return TensorFlowSession(case, placement)


def make_peak_memory(device: str) -> Any:
    """What reads the peak of the allocator of the default device; None on the CPU."""
    if device == "cpu":
        return None
    from tensorflow.contrib.memory_stats import MaxBytesInUse

    return MaxBytesInUse()
