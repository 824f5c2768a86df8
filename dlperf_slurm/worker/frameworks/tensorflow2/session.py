"""A case on this rank -> a model and its batch on the device, ready to step or to infer."""

from importlib import import_module
from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from dlperf_slurm.contract import TRAIN, Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow2.distribution import Distribution, join_ranks
from dlperf_slurm.worker.frameworks.tensorflow2.optimizers import LossScale, NoLossScale
from dlperf_slurm.worker.frameworks.tensorflow2.parameters import (
    count_parameters,
    find_variables,
    load_weights,
    to_numpy,
)
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.weights import generate_weights

COMPUTE_TYPES = {"amp-bf16": tf.bfloat16, "amp-fp16": tf.float16}

Batch = Dict[str, tf.Tensor]


class TensorFlowSession:
    """The adapter's Session."""

    def __init__(self, case: Case, placement: Placement, distribution: Distribution) -> None:
        builder = import_module(f"dlperf_slurm.worker.frameworks.tensorflow2.{case.model}")
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        with distribution.strategy.scope():
            model = builder.build_model(definition, COMPUTE_TYPES.get(case.precision, tf.float32))
        self._parameters = find_variables(model, definition.list_parameters())
        load_weights(self._parameters, generate_weights(definition, case.seed))
        # The same weights on all ranks, but dropout of their own.
        tf.random.set_seed(case.seed + 1 + placement.rank)
        batch = make_batch(definition, case.batch_size_per_device, case.seed, placement.rank)
        if "images" in batch:
            batch["images"] = batch["images"].transpose(0, 2, 3, 1)

        self.parameter_count = count_parameters(model)
        self.device_name = read_device_name(case.device)
        self.versions = read_versions(case)
        self._is_training = case.mode == TRAIN
        self._is_gpu = case.device == "cuda"
        self._model = model
        self._variables = [variable for variable, _ in self._parameters.values()]
        # The strategy's variables hold one per local device; there is one, and it is updated.
        own = [distribution.strategy.experimental_local_results(v)[0] for v in self._variables]
        # with job and task, since a cluster has a first GPU in each
        self._device = own[0].device
        self._definition = definition
        self._builder = builder
        # An argument of the step, never a constant that could be folded into it.
        self._batch: Batch = {name: tf.constant(values) for name, values in batch.items()}
        run = distribution.strategy.run
        self._evaluate = tf.function(lambda batch: run(self._evaluate_batch, args=(batch,)))
        if self._is_training:
            self._prepare_training(case, distribution, own)
        else:
            is_compiled = case.compiler == "xla"
            self._compute_logits = tf.function(self._infer_batch, jit_compile=is_compiled)

    def _prepare_training(self, case: Case, distribution: Distribution, own: List[Any]) -> None:
        definition = self._definition
        self._optimizer = self._builder.make_optimizer(definition, own, case.global_batch_size)
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        self._loss_scale = LossScale() if case.precision == "amp-fp16" else NoLossScale()
        self._average = distribution.average

        # XLA compiles what lies before and after the all-reduce, which it does not know.
        is_compiled = case.compiler == "xla"
        self._differentiate = tf.function(self._differentiate_batch, jit_compile=is_compiled)
        self._update = tf.function(self._update_weights, jit_compile=is_compiled)
        run = distribution.strategy.run
        self._step = tf.function(lambda batch: run(self._train, args=(batch,)))
        self._compute_gradients = tf.function(lambda batch: run(self._average_batch, args=(batch,)))
        self._loss = tf.constant(float("nan"))

    def _train(self, batch: Batch) -> tf.Tensor:
        loss, gradients = self._differentiate(batch)
        self._update(self._average(gradients))
        return loss

    def _differentiate_batch(self, batch: Batch) -> Tuple[tf.Tensor, List[tf.Tensor]]:
        """The loss and this rank's own gradients, which are scaled."""
        with tf.GradientTape() as tape:
            loss = self._compute_loss(batch, training=True)
            scaled = self._loss_scale.scale(loss)
        return loss, tape.gradient(scaled, self._variables)

    def _compute_loss(self, batch: Batch, training: bool) -> tf.Tensor:
        logits = self._run_model(batch, training)
        return self._builder.compute_loss(self._definition, logits, batch)

    def _run_model(self, batch: Batch, training: bool) -> Any:
        inputs = [batch[name] for name in self._builder.INPUTS]
        return self._model(*inputs, training=training)

    def _update_weights(self, gradients: List[tf.Tensor]) -> None:
        self._loss_scale.apply(gradients, self._clip_and_apply)

    def _clip_and_apply(self, gradients: Sequence[tf.Tensor]) -> None:
        if self._clip_global_norm is not None:
            # exactly to the norm; PyTorch adds 1e-6 to what it divides by
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_global_norm)
        self._optimizer.apply(gradients)

    def _average_batch(self, batch: Batch) -> List[tf.Tensor]:
        _, gradients = self._differentiate(batch)
        return self._loss_scale.unscale(self._average(gradients))

    def _infer_batch(self, batch: Batch) -> Any:
        return self._run_model(batch, training=False)

    def _evaluate_batch(self, batch: Batch) -> tf.Tensor:
        return self._compute_loss(batch, training=False)

    def step(self) -> None:
        self._loss = self._step(self._batch)
        # On the CPU a function returns when it is done; TensorFlow has no events for GPUs.
        if self._is_gpu:
            self.synchronize()

    def infer(self) -> None:
        self._logits = self._compute_logits(self._batch)
        if self._is_gpu:
            self.synchronize()

    def synchronize(self) -> None:
        # tf.test.experimental.sync_devices asks the other ranks' devices too, and fails there.
        with tf.device(self._device):
            tf.raw_ops.SyncDevice()

    def make_clock(self, boundaries: int) -> Any:
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._is_gpu:
            tf.config.experimental.reset_memory_stats(self._device)
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Of TensorFlow's allocator on a GPU; of the whole process on the CPU."""
        if self._is_gpu:
            return int(tf.config.experimental.get_memory_info(self._device)["peak"])
        return host.read_peak_resident_bytes()

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss)
        return float(self._builder.compute_loss(self._definition, self._logits, self._batch))

    def evaluate_loss(self) -> float:
        return float(self._evaluate(self._batch))

    def compute_gradients(self) -> Dict[str, Any]:
        gradients = self._compute_gradients(self._batch)
        return {
            name: to_numpy(gradient, axes)
            for (name, (_, axes)), gradient in zip(self._parameters.items(), gradients)
        }

    def read_weights(self) -> Dict[str, Any]:
        return {
            name: to_numpy(variable, axes) for name, (variable, axes) in self._parameters.items()
        }

    def close(self) -> None:
        """Nothing to do."""


def start_session(case: Case, placement: Placement) -> TensorFlowSession:
    tf.config.threading.set_intra_op_parallelism_threads(case.cpus_per_rank)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    choose_device(case, placement)
    tf.config.experimental.enable_tensor_float_32_execution(case.precision == "tf32")
    return TensorFlowSession(case, placement, join_ranks(case, placement))


def choose_device(case: Case, placement: Placement) -> None:
    """Let TensorFlow see one GPU at most; it would reserve memory on all of them."""
    gpus = tf.config.list_physical_devices("GPU")
    if case.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return
    if not gpus:
        raise RuntimeError("TensorFlow sees no GPU")
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    gpu = gpus[0] if len(gpus) == 1 else gpus[placement.local_rank]
    tf.config.set_visible_devices([gpu], "GPU")
    # leaves room for NCCL's buffers
    tf.config.experimental.set_memory_growth(gpu, True)


def read_device_name(device: str) -> str:
    if device == "cuda":
        gpu = tf.config.get_visible_devices("GPU")[0]
        return str(tf.config.experimental.get_device_details(gpu)["device_name"])
    return host.read_cpu_name()


def read_versions(case: Case) -> Dict[str, str]:
    versions = {"tensorflow": str(tf.__version__)}
    build = tf.sysconfig.get_build_info()
    for name, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version")):
        if case.device == "cuda" and key in build:
            versions[name] = str(build[key])
    if case.distribution == "horovod":
        import horovod

        versions["horovod"] = str(horovod.__version__)
    return versions
