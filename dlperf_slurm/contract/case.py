"""A case: one array task's work, as the worker reads it from case.json."""

import dataclasses
from typing import Dict, Optional, Tuple, Union

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.topology import parse_topology

CASE_FILE = "case.json"
# the file of a case that runs somebody else's script
SCRIPT_FILE = "script.sh"


CONSTANT = "constant"
COSINE = "cosine"

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


# the training of a case that is measured over its steps
NO_TRAINING = Training(epochs=0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One array task's work: a point of the matrix, with its repeat and attempt.

    `log_format` is the format of somebody else's log that the figures are from, and `log_rule` the
    name of its publisher's rule; None for the one by which such figures were published. Both are
    None for our own worker.
    A case whose batch size is still to be found is searched for it in steps of
    `batch_size_step`, unless its axes have a ladder of sizes; the record has the axes with the
    size that was found. `memory_limit_bytes` per rank is what the search may use where the device
    itself sets no limit; 0 is none.
    `data_dir` has the real files of the data sources "folder" and "dali". A case whose `training`
    has epochs trains over them, and is measured over all of its steps. A sample of the hosts and
    devices is taken every `telemetry_interval_seconds`; 0 is none at all. Ranks that end no step
    for `stall_seconds` fail as stalled; None leaves it to the pace of the warm-up, 0 is no watch.
    """

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    axes: Axes
    model: str
    model_parameters: Dict[str, ModelParameter]
    device: str
    cpus_per_rank: int
    warmup_steps: int
    measured_steps: int
    seed: int
    log_format: Optional[str] = None
    log_rule: Optional[str] = None
    batch_size_step: int = 1
    memory_limit_bytes: int = 0
    data_dir: str = ""
    training: Training = NO_TRAINING
    telemetry_interval_seconds: float = 0.5
    stall_seconds: Optional[float] = None

    @property
    def nodes(self) -> int:
        return parse_topology(self.axes.topology).nodes

    @property
    def devices_per_node(self) -> int:
        return parse_topology(self.axes.topology).devices_per_node

    @property
    def world_size(self) -> int:
        return self.axes.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of one step on all ranks; raises ValueError before the batch size is found."""
        return self.axes.global_batch_size

    @property
    def is_to_accuracy(self) -> bool:
        """Whether the case trains over epochs, instead of a number of steps."""
        return self.training.epochs > 0
