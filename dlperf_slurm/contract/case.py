"""A case: one array task's work, as the worker reads it from case.json."""

import dataclasses
from typing import Dict, Tuple, Union

from dlperf_slurm.contract.axes import DEFAULT_OPTIMIZER, ON_DEVICE, TRAIN

CASE_FILE = "case.json"
# of a case that runs somebody else's script
SCRIPT_FILE = "script.sh"


CONSTANT = "constant"
COSINE = "cosine"
SCHEDULES = (CONSTANT, COSINE)

ModelParameter = Union[int, float, bool, str, Tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Training:
    """A training to accuracy: `epochs` over the data, or fewer if `target_top1` is reached.

    `learning_rate` 0 is the model's own for the global batch size. Over `warmup_epochs` it rises
    from 0, then it stays, or falls to 0 by half a cosine. `mixup_alpha` is that of Zhang et al.
    2017, 0 is none. `target_top1` is a fraction of the validation samples, 0 is none.
    """

    epochs: int
    target_top1: float = 0.0
    learning_rate: float = 0.0
    schedule: str = CONSTANT
    warmup_epochs: float = 0.0
    mixup_alpha: float = 0.0


# of a case that is measured over its steps
NO_TRAINING = Training(epochs=0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One array task's work: a point of the matrix, with its repeat and attempt.

    `mode` "train" is steps of the optimizer, "val" forward passes in evaluation mode. `source` is
    the format of somebody else's log that the figures are from, empty for our own worker, and
    `source_rule` the name of its publisher's rule, empty for the one by which such figures were
    published.
    A case whose batch size is still to be found has `batch_ladder`, the sizes to try from the
    largest down, or `is_largest_batch`, to search for the largest one in steps of
    `batch_granularity`; `batch_size_per_device` is then 0. `memory_limit_bytes` per rank is what
    the search may use where the device itself sets no limit; 0 is none.
    A step is one update of the optimizer, from `gradient_accumulation` batches of
    `batch_size_per_device` on each rank. `loss_scale` 0 is a dynamic one. `data` is one of
    DATA_SOURCES; `data_dir` has the real files of the last two. A case whose `training` has epochs
    trains over them, and is measured over all of its steps. A sample of the hosts and devices is
    taken every `telemetry_interval_seconds`; 0 is none at all.
    """

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    framework: str
    model: str
    model_parameters: Dict[str, ModelParameter]
    nodes: int
    devices_per_node: int
    device: str
    cpus_per_rank: int
    batch_size_per_device: int
    precision: str
    compiler: str
    memory_format: str
    distribution: str
    clip_global_norm: bool
    warmup_steps: int
    measured_steps: int
    seed: int
    mode: str = TRAIN
    source: str = ""
    source_rule: str = ""
    batch_ladder: Tuple[int, ...] = ()
    is_largest_batch: bool = False
    batch_granularity: int = 1
    memory_limit_bytes: int = 0
    data: str = ON_DEVICE
    data_workers: int = 1
    prefetch_batches: int = 2
    data_dir: str = ""
    optimizer: str = DEFAULT_OPTIMIZER
    gradient_accumulation: int = 1
    loss_scale: int = 0
    training: Training = NO_TRAINING
    telemetry_interval_seconds: float = 0.5

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def global_batch_size(self) -> int:
        """Samples of one step on all ranks."""
        return self.batch_size_per_device * self.gradient_accumulation * self.world_size

    @property
    def is_to_accuracy(self) -> bool:
        return self.training.epochs > 0
