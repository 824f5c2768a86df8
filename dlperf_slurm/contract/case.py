"""A case: the work of one array task, as the worker reads it from case.json."""

import dataclasses
from typing import Dict, Optional, Tuple, Union

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.files.reading import ARRAY_LIMIT_BYTES

# size of a time in an .npy file, and the maximum size of the file's header
TIME_BYTES = 8
ARRAY_HEADER_BYTES = 1024
CASE_FILE = "case.json"
# the external script of a case that has one
SCRIPT_FILE = "script.sh"
# in the command of a profiler, the folder that it writes to
FOLDER_MARK = "@profile@"
# the variable with the site's command that prints the energy or power of a node
ENERGY_VARIABLE = "DLPERF_SLURM_ENERGY_COMMAND"

CONSTANT = "constant"
COSINE = "cosine"

ModelParameter = Union[int, float, bool, str, Tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Training:
    """Training to accuracy over `epochs` passes, or fewer if `target_top1` is reached.

    `learning_rate` 0 is the model's own for the global batch size. The rate rises from 0 over
    `warmup_epochs`, then stays constant or falls to 0 along half a cosine. `mixup_alpha` (Zhang et
    al. 2017) 0 disables mixup. `target_top1` is a fraction of the validation samples; 0 is none.
    """

    epochs: int
    target_top1: float = 0.0
    learning_rate: float = 0.0
    schedule: str = CONSTANT
    warmup_epochs: float = 0.0
    mixup_alpha: float = 0.0


# the training of a case that measures a number of steps
NO_TRAINING = Training(epochs=0)


@dataclasses.dataclass(frozen=True)
class Case:
    """The work of one array task: one repeat of a point of the matrix, in one attempt.

    `repeat` counts the measurements of the point, `attempt` the tries of one repeat after failures.
    `log_format` is the log format of an external script, and `log_rule` the rule by which its
    publisher computes the result (None for the format's default); both are None for our worker. If
    the script has a model of its own, `tokens_per_sample` and `flops_per_sample` (of the forward
    pass) are those of that model; 0 is unknown. A search for the largest batch size goes in steps
    of `batch_size_step`, within `memory_limit_bytes` per rank (0 is no limit); the record has the
    axes with the size found. `data_dir` contains the files of the data sources "folder" and "dali".
    A case whose `training` has epochs measures all of their steps; others take more than
    `warmup_steps` and `measured_steps` until both phases last their least seconds. Telemetry is
    sampled every `telemetry_interval_seconds`; 0 is never. Ranks that finish no step for
    `stall_seconds` fail as stalled; None derives the limit from the steps so far, 0 is no limit.
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
    tokens_per_sample: int = 0
    flops_per_sample: float = 0.0
    batch_size_step: int = 1
    memory_limit_bytes: int = 0
    data_dir: str = ""
    training: Training = NO_TRAINING
    telemetry_interval_seconds: float = 0.5
    stall_seconds: Optional[float] = None
    min_warmup_seconds: float = 0.0
    min_measured_seconds: float = 0.0

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
        """The samples of one step on all ranks; raises ValueError if the batch size is unknown."""
        return self.axes.samples_per_step

    @property
    def is_to_accuracy(self) -> bool:
        """Whether the case trains over epochs instead of measuring a number of steps."""
        return self.training.epochs > 0


def find_most_steps(axes: Axes) -> int:
    """Return for how many steps, or generations, all ranks' times fit the size limit of a file."""
    per_step = axes.world_size * (axes.output_tokens if axes.is_generation else 1)
    return (ARRAY_LIMIT_BYTES - ARRAY_HEADER_BYTES) // (TIME_BYTES * per_step)
