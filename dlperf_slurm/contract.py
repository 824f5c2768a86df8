"""What the login side and the worker share: case.json in, record.json out.

Loads on Python 3.7 with nothing but the standard library, because the worker runs inside each
framework's own Python.
"""

import dataclasses
import math
from datetime import datetime, timezone
from typing import Dict, Tuple, Union

CASE_FILE = "case.json"
RECORD_FILE = "record.json"
STEP_SECONDS_FILE = "step_seconds.npy"
WARMUP_STEP_SECONDS_FILE = "warmup_step_seconds.npy"
# [ranks, measured steps], of a case whose batches come from somewhere
DATA_WAIT_SECONDS_FILE = "data_wait_seconds.npy"
PARITY_FILE = "parity.json"
# of a case that runs somebody else's script
SCRIPT_FILE = "script.sh"
LOG_FILE = "log"
FAILURES_DIR = "failures"

OK = "ok"
FAILED = "failed"
OUT_OF_MEMORY = "oom"
STATUSES = (OK, FAILED, OUT_OF_MEMORY)

TRAIN = "train"
VAL = "val"
MODES = (TRAIN, VAL)

# where the batch of a step comes from (DESIGN: data source)
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

CONSTANT = "constant"
COSINE = "cosine"
SCHEDULES = (CONSTANT, COSINE)

# what a matrix calls our own worker among the sources of figures
WORKER = "worker"

# `Telemetry.device` of what is not one device's
HOST = -1

# `RankResult.rank` of a log that tells the whole job's figures only, and of a failure of the job
WHOLE_JOB = -1

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


@dataclasses.dataclass(frozen=True)
class RankResult:
    """What one rank measured; rank -1 is the job as a whole, of a log that tells no ranks apart.

    `data_wait_seconds` of the window its host stood still for the next batch.
    """

    rank: int
    local_rank: int
    host: str
    device_name: str
    window_seconds: float
    peak_memory_bytes: int
    final_loss: float
    data_wait_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Failure:
    """How one rank failed; rank -1 is the job itself (launcher, time limit, killed process)."""

    rank: int
    host: str
    error: str
    message: str
    traceback: str
    is_out_of_memory: bool


@dataclasses.dataclass(frozen=True)
class Clock:
    """Where step times come from, and what taking one boundary costs."""

    name: str
    boundary_seconds: float


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One pass over the training data, and the validation after it.

    `top1` is the fraction of all validation samples that were right. `training_seconds` are of the
    pass alone, `elapsed_seconds` since the start of the first one, validations included.
    """

    number: int
    top1: float
    validation_loss: float
    training_loss: float
    training_seconds: float
    elapsed_seconds: float


@dataclasses.dataclass(frozen=True)
class Telemetry:
    """What a sampler beside the window saw of one device, or of a host; 0 where it cannot know.

    `device` is the local rank that drives it, HOST the host itself. `interval_seconds` is between
    samples, `cpu_seconds` what the process that took them used of a CPU, for all its devices
    together. Averages are over the window's samples; `energy_joules` is the device's counter, or
    power over time where it has none. `peak_memory_bytes` is of the whole device or host, whoever
    uses it. `stolen_share`, of a host, is the part of the time in which its CPUs had something to
    run that a hypervisor gave to others.
    """

    host: str
    device: int
    name: str
    samples: int
    interval_seconds: float
    cpu_seconds: float
    energy_joules: float
    mean_power_watts: float
    mean_utilization: float
    mean_clock_mhz: float
    least_clock_mhz: float
    peak_temperature_celsius: float
    peak_memory_bytes: int
    throttle_reasons: Tuple[str, ...] = ()
    stolen_share: float = 0.0


@dataclasses.dataclass(frozen=True)
class HostPlatform:
    """The facts of a host that are not those of `Record.platform`; "" for one that it lacks."""

    host: str
    facts: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class BatchTrial:
    """A batch size that was tried in processes of its own, before the one that was measured."""

    batch_size_per_device: int
    is_out_of_memory: bool
    peak_memory_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Record:
    """The raw outcome of one array task; statistics are computed later, from these.

    `platform` is that of rank 0's host, `hosts` has the others that differ from it. Of somebody
    else's log it also has the figure by its publisher's own rule.
    """

    status: str
    reason: str
    case: Case
    started_at: str
    ended_at: str
    parameter_count: int
    clock: Clock
    ranks: Tuple[RankResult, ...]
    failures: Tuple[Failure, ...]
    versions: Dict[str, str]
    platform: Dict[str, str]
    job: Dict[str, str]
    batch_trials: Tuple[BatchTrial, ...] = ()
    publisher_rule: str = ""
    publisher_samples_per_s: float = 0.0
    epochs: Tuple[Epoch, ...] = ()
    trained_samples: int = 0
    telemetry: Tuple[Telemetry, ...] = ()
    hosts: Tuple[HostPlatform, ...] = ()

    @property
    def window_seconds(self) -> float:
        """Wall time of the measured steps on the slowest rank."""
        return max(rank.window_seconds for rank in self.ranks)

    @property
    def measured_samples(self) -> int:
        """What all ranks together worked through in the window."""
        return self.trained_samples or self.case.global_batch_size * self.case.measured_steps

    @property
    def samples_per_s(self) -> float:
        """Global throughput: samples of the measured steps / the slowest rank's window."""
        return self.measured_samples / self.window_seconds

    @property
    def computed_samples_per_s(self) -> float:
        """Global throughput without the time that the ranks' hosts waited for data.

        Only of steps that the host waits for is it without what their devices waited.
        """
        return self.measured_samples / max(
            rank.window_seconds - rank.data_wait_seconds for rank in self.ranks
        )

    @property
    def stolen_share(self) -> float:
        """Of the CPU time that was needed, on the host where hypervisors took most of it."""
        return max((one.stolen_share for one in self.telemetry), default=0.0)


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far arrays are from those expected, for the parameter where it is most.

    The norm of the difference relative to that of what was expected.
    """

    relative: float
    parameter: str


@dataclasses.dataclass(frozen=True)
class Parity:
    """What a case computes, whatever its speed: to be the same in every framework.

    Losses are means over the ranks, in training mode but where it says evaluation; "trained" is
    after three steps. `updates` compares what these steps did with the model's update rule on the
    framework's own gradients, `ranks` the weights of all ranks with each other. `gradients` holds
    one comparison with a reference, or none.
    """

    case: Case
    parameter_count: int
    initial_loss: float
    initial_evaluation_loss: float
    gradient_norm: float
    trained_loss: float
    trained_evaluation_loss: float
    updates: Difference
    ranks: Difference
    gradients: Tuple[Difference, ...]
    versions: Dict[str, str]


def format_now() -> str:
    """The time in UTC, to the second, as it stands in every file of a run."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """What `format_now` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def find_record_problem(record: Record) -> str:
    """Why an "ok" record is not to be trusted; empty when it is sound."""
    case = record.case
    if record.status not in STATUSES:
        return f"status {record.status!r} is none of {', '.join(STATUSES)}"
    if record.status != OK:
        return ""
    found = sorted(rank.rank for rank in record.ranks)
    if case.source and found == [WHOLE_JOB]:
        return _find_rank_problem(record)
    if found != list(range(case.world_size)):
        missing = sorted(set(range(case.world_size)) - set(found))
        if missing:
            return f"ranks {missing} of {case.world_size} are missing from the record"
        return f"has ranks {found}, the topology asks for {case.world_size}"
    hosts = {rank.host for rank in record.ranks}
    if len(hosts) != case.nodes:
        return f"ran on {len(hosts)} hosts, the topology asks for {case.nodes}"
    return _find_rank_problem(record)


def _find_rank_problem(record: Record) -> str:
    for rank in record.ranks:
        if not (math.isfinite(rank.window_seconds) and rank.window_seconds > 0):
            return f"rank {rank.rank} has a window of {rank.window_seconds} seconds"
        if not math.isfinite(rank.final_loss):
            return f"rank {rank.rank} ended with a loss of {rank.final_loss}"
    return ""
