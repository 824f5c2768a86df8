"""tensorpack's trainers with this package's models; runs in the tensorflow1 environment."""

from dataclasses import dataclass
from typing import Tuple

from dlperf_slurm.contract.axes import (
    ON_DEVICE,
    ON_HOST,
    PARAMETER_SERVER,
    PIPELINE,
    PYTHON_QUEUE,
    ZMQ,
)
from dlperf_slurm.worker.models.resnet50 import Definition

# a queue without staging, which the worker does not have
PYTHON = "python"
DATA = (ON_DEVICE, ON_HOST, PYTHON, PYTHON_QUEUE, PIPELINE, ZMQ)
REPLICATED = "replicated"
HOROVOD = "horovod"
UPDATES = (REPLICATED, PARAMETER_SERVER, HOROVOD)


@dataclass(frozen=True)
class Settings:
    """The settings of a training; `devices` is the number of devices of this process.

    There are `epochs` of `epoch_steps` steps each, since the log has one time per epoch. `device`
    is "cpu" or "cuda".
    """

    definition: Definition
    batch_size_per_device: int
    data: str
    update: str
    device: str
    devices: int
    cpus_per_device: int
    epoch_steps: int
    epochs: int

    @property
    def is_horovod(self) -> bool:
        """Whether this is one of several processes with one device each."""
        return self.update == HOROVOD

    @property
    def data_format(self) -> str:
        """The layout of images, "channels_first" (NCHW) on GPUs, "channels_last" (NHWC) on CPUs.

        TensorFlow 1 needs NHWC on CPUs, and is faster with NCHW on GPUs.
        """
        return "channels_first" if self.device == "cuda" else "channels_last"

    @property
    def image_shape(self) -> Tuple[int, int, int, int]:
        """The shape of a device's batch from the data loader, in NHWC."""
        size = self.definition.image_size
        return (self.batch_size_per_device, size, size, self.definition.IMAGE_CHANNELS)
