"""The values of a case on the axes of a matrix, and the values that the code refers to.

Loads on Python 3.7 with only the standard library.
"""

import dataclasses
from typing import Optional, Sequence, Tuple, Union

from dlperf_slurm.contract.topology import parse_topology

TRAIN = "train"
INFER = "infer"
MODES = (TRAIN, INFER)

# data sources of the batches
ON_DEVICE = "device"
ON_HOST = "host"
PYTHON_QUEUE = "python-queue"
PIPELINE = "dataset"
ZMQ = "zmq"
FOLDER = "folder"
DALI = "dali"
DATA_SOURCES = (ON_DEVICE, ON_HOST, PYTHON_QUEUE, PIPELINE, ZMQ, FOLDER, DALI)

# the model's own optimizer
DEFAULT_OPTIMIZER = "default"
OPTIMIZERS = (DEFAULT_OPTIMIZER, "sgd", "momentum", "adamw")

PARAMETER_SERVER = "parameter_server"
HOROVOD = "horovod"
# weights, gradients and optimizer state are sharded over the ranks
SHARDED = "sharded"

# the name of our own worker on the axis `script`
WORKER = "worker"

# a loss scale adapted to the gradients at run time, as by GradScaler
DYNAMIC = "dynamic"

# the job searches for the largest batch size
LARGEST = "max"
_LADDER_ARROW = " -> "


def format_ladder(sizes: Sequence[int]) -> str:
    """Format batch sizes to try, largest first, as a value of the axis: "256 -> 224 -> 196"."""
    return _LADDER_ARROW.join(map(str, sizes))


@dataclasses.dataclass(frozen=True)
class Axes:
    """The values of a case on all axes of a matrix; matrix/axes.py describes each axis.

    `batch_size_per_device` is "max" or a ladder such as "256 -> 224 -> 196" until the job has found
    the number. `global_batch_size`, if not 0, is the same on all topologies, and
    `batch_size_per_device` its share of a device. In mode "train" a step is one optimizer update
    from `gradient_accumulation` batches on each rank; in mode "infer" it is a forward pass in
    evaluation mode or, with `output_tokens`, the generation of that many tokens after prompts of
    `prompt_length` tokens.
    """

    framework: str
    topology: str
    batch_size_per_device: Union[int, str]
    precision: str = "fp32"
    compiler: str = "none"
    memory_format: str = "default"
    gradient_sync: str = "native"
    clip_global_norm: bool = False
    mode: str = TRAIN
    script: str = WORKER
    data: str = ON_DEVICE
    data_workers: int = 1
    prefetch_batches: int = 2
    optimizer: str = DEFAULT_OPTIMIZER
    gradient_accumulation: int = 1
    activation_checkpointing: bool = False
    loss_scale: Union[int, str] = DYNAMIC
    output_tokens: int = 0
    prompt_length: int = 128
    global_batch_size: int = 0

    @property
    def is_generation(self) -> bool:
        """Whether a step generates tokens: prefill of a batch of prompts, then decoding."""
        return self.mode == INFER and self.output_tokens > 0

    @property
    def batch_size(self) -> int:
        """The batch size per device; raises ValueError if the job has not found it yet."""
        if isinstance(self.batch_size_per_device, int):
            return self.batch_size_per_device
        raise ValueError(
            f"batch_size_per_device is {self.batch_size_per_device!r}: the batch size is known "
            "only after the job has searched for it"
        )

    @property
    def has_batch_search(self) -> bool:
        """Whether the job searches for the largest batch size that fits, of all or of a ladder."""
        return isinstance(self.batch_size_per_device, str)

    @property
    def batch_ladder(self) -> Tuple[int, ...]:
        """The batch sizes to try, largest first; empty if the axis has no ladder."""
        size = self.batch_size_per_device
        if isinstance(size, int) or size == LARGEST:
            return ()
        return tuple(int(part) for part in size.split(_LADDER_ARROW))

    @property
    def is_largest_batch(self) -> bool:
        """Whether the job searches for the largest batch size that fits."""
        return self.batch_size_per_device == LARGEST

    @property
    def world_size(self) -> int:
        """The number of ranks, one per device."""
        return parse_topology(self.topology).world_size

    @property
    def samples_per_step(self) -> int:
        """The samples of one step on all ranks; raises ValueError if the batch size is unknown."""
        return self.batch_size * self.gradient_accumulation * self.world_size

    @property
    def constant_loss_scale(self) -> Optional[int]:
        """The loss scale if it is a number; None if it is dynamic."""
        return self.loss_scale if isinstance(self.loss_scale, int) else None
