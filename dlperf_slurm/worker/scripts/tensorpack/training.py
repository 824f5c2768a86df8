"""Settings -> a training with a trainer of tensorpack, which logs the time of each epoch."""

import logging
import os

import tensorflow as tf
from tensorpack.callbacks import RunUpdateOps, ScalarPrinter, ThroughputTracker
from tensorpack.tfutils.sesscreate import NewSessionCreator
from tensorpack.train import (
    HorovodTrainer,
    SimpleTrainer,
    SingleCostTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
)
from tensorpack.utils import logger

from dlperf_slurm.contract.axes import PARAMETER_SERVER, ZMQ
from dlperf_slurm.worker.scripts.tensorpack import Settings
from dlperf_slurm.worker.scripts.tensorpack.inputs import find_missing_operators, make_input
from dlperf_slurm.worker.scripts.tensorpack.model import ResNet50


def find_missing(settings: Settings) -> str:
    """Describe what this machine or environment lacks for these settings; "" if nothing."""
    # with Horovod, no process may list GPUs before it has selected its own
    if settings.device == "cuda" and not settings.is_horovod:
        found = len(tf.config.experimental.list_physical_devices("GPU"))
        if found < settings.devices:
            return f"--devices {settings.devices}: TensorFlow sees {found} GPUs"
    return find_missing_operators() if settings.data == ZMQ else ""


def train(settings: Settings) -> None:
    """Train ResNet-50; raises RuntimeError if the model does not match its definition."""
    # no deprecation warnings, of which tensorpack causes many
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    trainer = _make_trainer(settings)
    devices, local_rank = settings.devices, 0
    if isinstance(trainer, HorovodTrainer):
        devices, local_rank = trainer.hvd.size(), trainer.hvd.local_rank()
        if not trainer.is_chief:
            logger.setLevel(logging.ERROR)
    if settings.device == "cpu":
        _keep_to_cpus(settings, local_rank)
    global_batch_size = devices * settings.batch_size_per_device
    # the wording of tensorpack's ImageNet examples
    logger.info(
        f"Running on {devices} towers. Batch size per tower: {settings.batch_size_per_device}"
    )
    model = ResNet50(settings, global_batch_size)
    trainer.setup_graph(
        model.get_input_signature(), make_input(settings), model.build_graph, model.get_optimizer
    )
    _check_parameter_count(settings)
    trainer.train_with_defaults(
        callbacks=[ThroughputTracker(global_batch_size)],
        # the other default callbacks write summaries and draw a progress bar
        extra_callbacks=[RunUpdateOps()],
        monitors=[ScalarPrinter()],
        session_creator=_SessionCreator(settings),
        steps_per_epoch=settings.epoch_steps,
        max_epoch=settings.epochs,
    )


def _make_trainer(settings: Settings) -> SingleCostTrainer:
    if settings.is_horovod:
        trainer = HorovodTrainer()
        trainer.BROADCAST_EVERY_EPOCH = False
    elif settings.devices == 1:
        trainer = SimpleTrainer()
    elif settings.update == PARAMETER_SERVER:
        trainer = SyncMultiGPUTrainerParameterServer(settings.devices, ps_device="cpu")
    else:
        trainer = SyncMultiGPUTrainerReplicated(settings.devices)
        trainer.BROADCAST_EVERY_EPOCH = False
    return trainer


class _SessionCreator(NewSessionCreator):
    """tensorpack's session creator, with the thread counts of CPU devices.

    Without GPUs, TensorFlow places operations for a GPU on the CPU.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def create_session(self) -> tf.compat.v1.Session:
        """Create the session; thread counts are set here to override those of HorovodTrainer."""
        if self._settings.device == "cpu":
            threads = self._settings.cpus_per_device * self._settings.devices
            self.config.device_count["GPU"] = 0
            self.config.intra_op_parallelism_threads = threads
            # each tower has two blocking operations: dequeue a batch, and stage it
            waiting = 2 * self._settings.devices
            self.config.inter_op_parallelism_threads = threads + waiting
        return super().create_session()


def _keep_to_cpus(settings: Settings, local_rank: int) -> None:
    """Bind this process to as many CPUs as its devices have (`cpus_per_device` each).

    This changes nothing if the launcher has bound the processes already; otherwise each local rank
    takes its own consecutive CPUs.
    """
    count = settings.cpus_per_device * settings.devices
    free = sorted(os.sched_getaffinity(0))
    own = free[local_rank * count :][:count]
    if len(own) == count:
        os.sched_setaffinity(0, own)


def _check_parameter_count(settings: Settings) -> None:
    """Raise RuntimeError unless the first tower has the parameter count of the definition."""
    # only the variables of replicas have names that begin with "tower"
    found = sum(
        variable.shape.num_elements()
        for variable in tf.compat.v1.trainable_variables()
        if not variable.op.name.startswith("tower")
    )
    expected = settings.definition.parameter_count
    if found != expected:
        raise RuntimeError(
            f"the model has {found} parameters, but its definition has {expected} parameters"
        )
