"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from typing import Any, Dict, Iterator, Sequence, Union

import numpy
import tensorflow as tf

from dlperf_slurm.contract.axes import PARAMETER_SERVER, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo, tensorflow
from dlperf_slurm.worker.frameworks.tensorflow.layers import count_parameters, to_canonical
from dlperf_slurm.worker.frameworks.tensorflow.loader import Arrays
from dlperf_slurm.worker.frameworks.tensorflow1.device import (
    load_values,
    load_weights,
    make_config,
    make_loader,
    make_peak_memory,
    read_device_name,
    read_versions,
)
from dlperf_slurm.worker.frameworks.tensorflow1.graph import (
    build_forward,
    build_inference,
    build_training,
)
from dlperf_slurm.worker.frameworks.tensorflow1.loader import arrange, open_dataset
from dlperf_slurm.worker.frameworks.tensorflow1.parameter_servers import (
    ParameterServers,
    join_parameter_servers,
)
from dlperf_slurm.worker.frameworks.tensorflow1.training import Distribution, join_ranks
from dlperf_slurm.worker.work import Work


class TensorFlowSession:
    """TensorFlow 1's implementation of `worker.session.Session`."""

    def __init__(self, case: Case, rank_info: RankInfo) -> None:
        work = Work(case, rank_info, tensorflow.__name__)
        self._work = work
        self._case = case
        self._classes = work.classes
        batch = self.stage(work.make_batch())
        self._config = make_config(case, rank_info)
        config = make_config(case, rank_info)
        distribution = join(case, rank_info, config)
        graph = tf.Graph()
        with graph.as_default(), tf.device(distribution.device):
            tf.compat.v1.set_random_seed(work.dropout_seed)
            with distribution.place_variables():
                forward = build_forward(case, work, batch)
            if case.axes.mode == TRAIN:
                self._program: Any = build_training(case, forward, distribution)
            else:
                self._program = build_inference(forward)
            own = [v for v in tf.compat.v1.global_variables() if distribution.is_owner(v)]
            initializer = tf.compat.v1.variables_initializer(own)
            start = distribution.build_start()
            self._peak_memory = make_peak_memory(case.device)
        # raises if a step adds operations, which would rebuild the graph in each step
        graph.finalize()
        session = tf.compat.v1.Session(distribution.target, graph=graph, config=config)
        session.run(initializer)
        load_weights(
            session,
            {n: v for n, v in forward.parameters.items() if distribution.is_owner(v.variable)},
            work.generate_weights(),
        )
        session.run(start)

        self.parameter_count = count_parameters(forward.model)
        self.device_name = read_device_name(case.device, config)
        self.versions = read_versions(case)
        self._session = session
        self._distribution = distribution
        self._parameters = forward.parameters
        self._batch = forward.batch
        # a callable looks up what to run once, not in each step
        self._load = make_loader(session, forward.batch)
        self.load(batch)
        if case.axes.mode == TRAIN:
            self._step = session.make_callable(self._program.step)
            self._accumulate = session.make_callable(self._program.accumulate)
        else:
            self._infer = session.make_callable(self._program.infer)

    def step(self) -> None:
        self._step()

    def accumulate(self) -> None:
        self._accumulate()

    def stage(self, batch: Dict[str, Any]) -> Arrays:
        return arrange(batch, self._classes)

    def load(self, staged: Arrays) -> None:
        self._load(*[staged[name] for name in self._batch])

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Arrays]:
        return open_dataset(self._case, dataset, order, self._batch, self._classes, self._config)

    def set_learning_rate(self, learning_rate: float) -> None:
        rate = {"rate": self._program.learning_rate}
        load_values(self._session, rate, {"rate": learning_rate})

    def predict(self, batch: Dict[str, Any]) -> Any:
        """Return logits, float32 [batch, classes]; pad a smaller batch, as shapes are fixed."""
        evaluation = self._program.evaluation
        inputs = {
            evaluation.inputs[name]: numpy.resize(values, evaluation.inputs[name].shape.as_list())
            for name, values in self.stage(batch).items()
            if name in evaluation.inputs
        }
        logits = self._session.run(evaluation.logits, inputs)
        return logits[: len(batch["images"])].astype(numpy.float32)

    def infer(self) -> None:
        self._infer()

    def synchronize(self) -> None:
        """Do nothing: a run returns when its device has finished (TF_SYNC_ON_FINISH on GPUs)."""

    def make_clock(self, boundaries: int) -> Any:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        """Reset the peak of memory on the CPU; on a GPU it counts from the start of the process."""
        if self._peak_memory is None:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of TensorFlow's allocator on a GPU, or of resident memory on the CPU."""
        if self._peak_memory is None:
            return host.read_peak_resident_bytes()
        return int(self._session.run(self._peak_memory))

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        return float(self._session.run(self._program.loss))

    def evaluate_loss(self) -> float:
        return float(self._session.run(self._program.evaluation.loss))

    def compute_gradients(self) -> Dict[str, Any]:
        program = self._program
        for _ in range(self._case.axes.gradient_accumulation - 1):
            self.accumulate()
        gradients, *_ = self._session.run((program.gradients, program.moved, program.clear))
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


def start_session(case: Case, rank_info: RankInfo) -> TensorFlowSession:
    # TensorFlow 1.15 warns of nearly all that is used here as deprecated
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return TensorFlowSession(case, rank_info)


def join(
    case: Case, rank_info: RankInfo, config: tf.compat.v1.ConfigProto
) -> Union[Distribution, ParameterServers]:
    """Join the ranks by parameter servers, if the case trains with these, or by collectives.

    May add settings to `config`, with which the session must be created.
    """
    if case.axes.mode == TRAIN and case.axes.gradient_sync == PARAMETER_SERVER:
        return join_parameter_servers(case, rank_info, config)
    return join_ranks(case, rank_info, config)
