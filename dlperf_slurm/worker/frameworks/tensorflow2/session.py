"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

from typing import Any, Dict, Iterator, List, Sequence, Union

import numpy
import tensorflow as tf

from dlperf_slurm.contract.axes import PARAMETER_SERVER, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import CompletionClock, HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo, tensorflow
from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    count_parameters,
    find_variables,
    to_canonical,
)
from dlperf_slurm.worker.frameworks.tensorflow2.device import (
    load_weights,
    read_device_name,
    read_versions,
    set_up,
)
from dlperf_slurm.worker.frameworks.tensorflow2.loader import Tensors, make_tensors, open_dataset
from dlperf_slurm.worker.frameworks.tensorflow2.parameter_servers import ServerTraining
from dlperf_slurm.worker.frameworks.tensorflow2.training import (
    Differentiation,
    Distribution,
    Training,
    join_ranks,
)
from dlperf_slurm.worker.work import Work

COMPUTE_TYPES = {"amp-bf16": tf.bfloat16, "amp-fp16": tf.float16}


class TensorFlowSession:
    """TensorFlow 2's implementation of `worker.session.Session`."""

    def __init__(self, case: Case, rank_info: RankInfo, distribution: Distribution) -> None:
        work = Work(case, rank_info, tensorflow.__name__)
        with distribution.strategy.scope():
            model = work.builder.Model(
                work.definition, COMPUTE_TYPES.get(case.axes.precision, tf.float32)
            )
        self._parameters = find_variables(model, work.definition.list_parameters())
        load_weights(self._parameters, work.generate_weights())
        tf.random.set_seed(work.dropout_seed)

        self.parameter_count = count_parameters(model)
        self.device_name = read_device_name(case.device)
        self.versions = read_versions(case)
        self._case = case
        self._is_training = case.axes.mode == TRAIN
        self._is_gpu = case.device == "cuda"
        self._model = model
        self._variables = [variable for variable, _ in self._parameters.values()]
        # The strategy's variable holds one variable per local device; there is one, which is
        # updated.
        own = [distribution.strategy.experimental_local_results(v)[0] for v in self._variables]
        # with job and task, because each task of a cluster has a first GPU
        self._device = own[0].device
        self._work = work
        self.load(self.stage(work.make_batch()))
        run = distribution.strategy.run
        self._evaluate = tf.function(lambda batch: run(self._evaluate_batch, args=(batch,)))
        self._predict = tf.function(lambda batch: run(self._infer_batch, args=(batch,)))
        if self._is_training:
            self._prepare_training(case, rank_info, distribution, own)
        else:
            is_compiled = case.axes.compiler == "xla"
            self._compute_logits = tf.function(self._infer_batch, jit_compile=is_compiled)

    def _prepare_training(
        self,
        case: Case,
        rank_info: RankInfo,
        distribution: Distribution,
        own: List[Any],
    ) -> None:
        work = self._work
        differentiation = Differentiation(
            case, self._variables, own, lambda batch: self._compute_loss(batch, training=True)
        )
        self._training: Union[Training, ServerTraining]
        if case.axes.gradient_sync == PARAMETER_SERVER:
            self._training = ServerTraining(case, work, rank_info, own, differentiation)
        else:
            self._training = Training(case, work, distribution, own, differentiation)
        self._loss = tf.constant(float("nan"))

    def _compute_loss(self, batch: Tensors, training: bool) -> tf.Tensor:
        logits = self._run_model(batch, training)
        return self._work.compute_loss(logits, batch)

    def _run_model(self, batch: Tensors, training: bool) -> Any:
        inputs = self._work.take_inputs(batch)
        return self._model(*inputs, training=training)

    def _infer_batch(self, batch: Tensors) -> Any:
        return self._run_model(batch, training=False)

    def _evaluate_batch(self, batch: Tensors) -> tf.Tensor:
        return self._compute_loss(batch, training=False)

    def step(self) -> None:
        """Run one training step; return when it has ended on the CPU, or is queued on a GPU."""
        self._loss = self._training.step(self._batch)

    def accumulate(self) -> None:
        self._loss = self._training.accumulate(self._batch)

    def stage(self, batch: Dict[str, Any]) -> Tensors:
        return make_tensors(batch)

    def load(self, staged: Tensors) -> None:
        """Copy a staged batch, name -> tensor, to the device, for the next steps."""
        with tf.device(self._device):
            self._batch = {name: self._copy(tensor) for name, tensor in staged.items()}

    def _copy(self, tensor: tf.Tensor) -> tf.Tensor:
        # on the CPU tf.identity shares memory, but the case measures a copy
        return tf.identity(tensor) if self._is_gpu else tf.raw_ops.DeepCopy(x=tensor)

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Tensors]:
        return open_dataset(self._case, dataset, order)

    def set_learning_rate(self, learning_rate: float) -> None:
        self._training.set_learning_rate(learning_rate)

    def predict(self, batch: Dict[str, Any]) -> Any:
        """Return logits, float32 [batch, classes]; smaller batches are padded to keep the graph."""
        size = self._case.axes.batch_size
        inputs = {
            name: numpy.resize(values, (size, *values.shape[1:]))
            for name, values in batch.items()
            if name in self._work.inputs
        }
        logits = self._predict(make_tensors(inputs))
        return logits[: len(batch["images"])].numpy().astype(numpy.float32)

    def infer(self) -> None:
        self._logits = self._compute_logits(self._batch)
        if self._is_gpu:
            self.synchronize()

    def synchronize(self) -> None:
        # tf.test.experimental.sync_devices also contacts the other ranks' devices, and fails there
        with tf.device(self._device):
            tf.raw_ops.SyncDevice()

    def make_clock(self, boundaries: int) -> Any:
        """Make a clock for step boundaries.

        TensorFlow has no GPU events: a copy of the loss to the host waits for all queued work.
        """
        if not self._is_gpu:
            return HostClock(boundaries)
        return CompletionClock(
            boundaries,
            take_result=lambda: self._loss,
            wait_for=lambda loss: loss.numpy(),
            is_order_of_requests=True,
        )

    def reset_peak_memory(self) -> None:
        if self._is_gpu:
            tf.config.experimental.reset_memory_stats(self._device)
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of TensorFlow's allocator on a GPU, or of resident memory on the CPU."""
        if not self._is_gpu:
            return host.read_peak_resident_bytes()
        return int(tf.config.experimental.get_memory_info(self._device)["peak"])

    def describe_attention(self) -> str:
        return self._work.describe_attention()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss)
        return float(self._work.compute_loss(self._logits, self._batch))

    def evaluate_loss(self) -> float:
        return float(self._evaluate(self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._case.axes.gradient_accumulation - 1):
            self.accumulate()
        gradients = self._training.compute_gradients(self._batch)
        return {
            name: to_canonical(gradient, axes)
            for (name, (_, axes)), gradient in zip(self._parameters.items(), gradients)
        }

    def read_weights(self) -> Dict[str, Any]:
        return {
            name: to_canonical(variable, axes)
            for name, (variable, axes) in self._parameters.items()
        }

    def close(self) -> None:
        """Do nothing: TensorFlow needs no call to leave the cluster."""


def start_session(case: Case, rank_info: RankInfo) -> TensorFlowSession:
    set_up(case, rank_info)
    return TensorFlowSession(case, rank_info, join_ranks(case, rank_info))
