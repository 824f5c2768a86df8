"""The axes of a matrix: where a case stands on each, and values that mean something to the code.

Loads on Python 3.7 with nothing but the standard library, as the contract does.
"""

import dataclasses
from typing import Optional, Sequence, Tuple, Union

from dlperf_slurm.contract.topology import parse_topology

TRAIN = "train"
INFER = "infer"
MODES = (TRAIN, INFER)

# data sources: where the batch of a step comes from
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
# each rank keeps a part of the weights, of their gradients and of the optimizer's state
SHARDED = "sharded"

# our own worker's name among the scripts that may measure a case
WORKER = "worker"

# a loss scale that GradScaler and its like adapt to the gradients
DYNAMIC = "dynamic"

# a batch size that the job finds
LARGEST = "max"
_LADDER_ARROW = " -> "


def format_ladder(sizes: Sequence[int]) -> str:
    """The batch sizes to try as an axis has them: "256 -> 224 -> 196"."""
    return _LADDER_ARROW.join(map(str, sizes))


@dataclasses.dataclass(frozen=True)
class Axes:
    """Where a case stands on every axis of a matrix; what it is called, matrix/axes.py says.

    `topology` is "2n8g". `batch_size_per_device` is a number; as long as the job has to find it,
    what the matrix says of it: "max", or a ladder such as "256 -> 224 -> 196". `mode` "train" is
    steps of the optimizer, "infer" forward passes in evaluation mode. `script` is whose script
    measures, WORKER our own. `data` is one of DATA_SOURCES, read by `data_workers` at once,
    `prefetch_batches` ahead. A step is one update of the optimizer, from `gradient_accumulation`
    batches of `batch_size_per_device` on each rank. `loss_scale` is a number or DYNAMIC.
    With `output_tokens`, mode "infer" is generations: each continues prompts of `prompt_length`
    tokens by so many; 0 is a forward pass.
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

    @property
    def is_generation(self) -> bool:
        """Whether a step is the prefill of a batch of prompts, and the decoding of its tokens."""
        return self.mode == INFER and self.output_tokens > 0

    @property
    def batch_size(self) -> int:
        """The batch size per device; raises ValueError where the job still has to find it."""
        if isinstance(self.batch_size_per_device, int):
            return self.batch_size_per_device
        raise ValueError(f"batch size {self.batch_size_per_device!r} is to be found by the job")

    @property
    def has_batch_search(self) -> bool:
        """Whether the job finds the batch size."""
        return isinstance(self.batch_size_per_device, str)

    @property
    def batch_ladder(self) -> Tuple[int, ...]:
        """The sizes to try from the largest down; empty where there is no ladder."""
        size = self.batch_size_per_device
        if isinstance(size, int) or size == LARGEST:
            return ()
        return tuple(int(part) for part in size.split(_LADDER_ARROW))

    @property
    def is_largest_batch(self) -> bool:
        """Whether the job finds the largest batch size of all."""
        return self.batch_size_per_device == LARGEST

    @property
    def world_size(self) -> int:
        """The number of ranks, one per device."""
        return parse_topology(self.topology).world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of one step on all ranks; raises ValueError as `batch_size` does."""
        return self.batch_size * self.gradient_accumulation * self.world_size

    @property
    def constant_loss_scale(self) -> Optional[int]:
        """The loss scale where it is a number; None for a dynamic one."""
        return self.loss_scale if isinstance(self.loss_scale, int) else None
