"""tensorpack's trainers, with the models' definitions: runs in the environment of tensorflow1."""

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

# a queue that is not staged; the worker has no such source
PYTHON = "python"
DATA = (ON_DEVICE, ON_HOST, PYTHON, PYTHON_QUEUE, PIPELINE, ZMQ)
REPLICATED = "replicated"
HOROVOD = "horovod"
UPDATES = (REPLICATED, PARAMETER_SERVER, HOROVOD)


@dataclass(frozen=True)
class Settings:
    """What to train, and how; `devices` is how many this process drives.

    `epochs` of `epoch_steps` each: the log has one time per epoch. `device` is "cpu" or "cuda".
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
        """Whether this is one of several processes, with a device each."""
        return self.update == HOROVOD

    @property
    def data_format(self) -> str:
        """Convolutions of TensorFlow 1 know one order on CPUs and are faster in the other on
        GPUs."""
        return "channels_first" if self.device == "cuda" else "channels_last"

    @property
    def image_shape(self) -> Tuple[int, int, int, int]:
        """The shape of a device's batch, as a data loader hands it over."""
        size = self.definition.image_size
        return (self.batch_size_per_device, size, size, self.definition.IMAGE_CHANNELS)
