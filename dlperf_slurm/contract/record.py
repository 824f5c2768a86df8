"""A record: the raw result of one array task, as the worker writes it to record.json."""

import dataclasses
import math
from typing import Dict, Sequence, Tuple

from dlperf_slurm.contract.case import Case

RECORD_FILE = "record.json"
STEP_SECONDS_FILE = "step_seconds.npy"
WARMUP_STEP_SECONDS_FILE = "warmup_step_seconds.npy"
# seconds [ranks, measured steps] of waiting for data, for cases with a data loader
DATA_WAIT_SECONDS_FILE = "data_wait_seconds.npy"
# seconds [ranks, measured steps, tokens] of each token; the first token includes the prefill
TOKEN_SECONDS_FILE = "token_seconds.npy"
# seconds [ranks, steps] of the measured steps of a failed attempt; NaN for a step that its rank did
# not finish or report
PARTIAL_STEP_SECONDS_FILE = "partial_step_seconds.npy"

LOG_FILE = "log"
FAILURES_DIR = "failures"

OK = "ok"

FAILED = "failed"
OUT_OF_MEMORY = "oom"
STATUSES = (OK, FAILED, OUT_OF_MEMORY)

# `Telemetry.device` for values of the host's CPUs and memory, and of the whole node
HOST = -1
NODE = -2


# the `error` of a job whose ranks were ended by a signal well before the time limit
TERMINATED = "Terminated"

# `RankResult.rank` for a log with figures of the whole job only, and `Failure.rank` of the job
WHOLE_JOB = -1

# largest relative difference of the weights of two ranks: that of `parity`
WEIGHT_TOLERANCE = 1e-6
MOST_NAMED_RANKS = 4


@dataclasses.dataclass(frozen=True)
class RankResult:
    """The measurements of one rank; rank -1 is the whole job, for a log without ranks.

    `window_seconds` is the time of the measured steps: from a synchronization of all ranks after
    the warm-up until this rank's device has finished its last step. `data_wait_seconds` is the part
    of it that the rank waited for its next batch. `weight_sum` is the sum of the absolute values of
    all weights after the last step; 0 if they were not read.
    """

    rank: int
    local_rank: int
    host: str
    device_name: str
    window_seconds: float
    peak_memory_bytes: int
    final_loss: float
    data_wait_seconds: float = 0.0
    weight_sum: float = 0.0


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure of one rank; rank -1 is the job itself (launcher, time limit, killed process)."""

    rank: int
    host: str
    error: str
    message: str
    traceback: str
    is_out_of_memory: bool


@dataclasses.dataclass(frozen=True)
class Clock:
    """The clock of the step times; `boundary_seconds` is the overhead of one time stamp."""

    name: str
    boundary_seconds: float


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One pass over the training data, and the validation after it.

    `top1` is the fraction of validation samples that were classified correctly. `training_seconds`
    is the time of the pass alone, `elapsed_seconds` the time since the start of the first pass,
    validations included.
    """

    number: int
    top1: float
    validation_loss: float
    training_loss: float
    training_seconds: float
    elapsed_seconds: float


@dataclasses.dataclass(frozen=True)
class DeviceState:
    """The state of a GPU at one end of the measured steps; 0 for values that are not available."""

    clock_mhz: float = 0.0
    power_limit_watts: float = 0.0
    throttle_reasons: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Telemetry:
    """Samples of one device or host during the measured steps; 0 for values that are not available.

    `device` is the local rank that uses the device, HOST or NODE. `interval_seconds` is the time
    between samples, `cpu_seconds` the CPU time of the sampling process for all its devices. Means
    are over these samples; `energy_joules` is from the device's counter, or else the integral of
    power. `peak_memory_bytes` is of the whole device or host, all processes included.
    `stolen_share`, for a host, is steal time as a share of the time in which its CPUs had work.
    `errors` has the error counters that grew from before the warm-up until the end, such as those
    of ECC, and by how much.
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
    at_start: DeviceState = DeviceState()
    at_end: DeviceState = DeviceState()
    errors: Dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class HostPlatform:
    """The facts of a host, such as its CPU, that differ from `Record.platform`; "" if missing."""

    host: str
    facts: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class BatchTrial:
    """A trial of a batch size search, which ran in separate processes before the measurement."""

    batch_size_per_device: int
    is_out_of_memory: bool
    peak_memory_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Record:
    """The raw result of one array task, from which statistics are computed later.

    `platform` is that of rank 0's host; `hosts` has the facts of other hosts that differ. For the
    log of an external script, `publisher_samples_per_s` is the result by its publisher's rule, and
    `printed` has other figures that the log prints, such as the MFU, by unit. For a failed attempt,
    `partial_steps` is the number of measured steps that all reporting ranks finished; their times
    are in PARTIAL_STEP_SECONDS_FILE, and in no result. `warmup_steps` and `measured_steps` are set
    if the case's least seconds took more steps than it asks for.
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
    printed: Dict[str, float] = dataclasses.field(default_factory=dict)
    epochs: Tuple[Epoch, ...] = ()
    trained_samples: int = 0
    telemetry: Tuple[Telemetry, ...] = ()
    hosts: Tuple[HostPlatform, ...] = ()
    partial_steps: int = 0
    warmup_steps: int = 0
    measured_steps: int = 0

    @property
    def window_seconds(self) -> float:
        """The wall time of the measured steps on the slowest rank, in seconds."""
        return max(rank.window_seconds for rank in self.ranks)

    @property
    def steps(self) -> int:
        """The number of measured steps of a case without epochs."""
        return self.measured_steps or self.case.measured_steps

    @property
    def measured_samples(self) -> int:
        """The number of samples that all ranks together processed in the measured steps."""
        return self.trained_samples or self.case.global_batch_size * self.steps

    @property
    def samples_per_s(self) -> float:
        """Global throughput: measured samples divided by the slowest rank's `window_seconds`."""
        return self.measured_samples / self.window_seconds

    @property
    def computed_samples_per_s(self) -> float:
        """Global throughput without the time that ranks waited for data.

        The devices' own idle time is excluded only if the host waits for each step to finish.
        """
        return self.measured_samples / max(
            rank.window_seconds - rank.data_wait_seconds for rank in self.ranks
        )

    @property
    def stolen_share(self) -> float:
        """The largest `Telemetry.stolen_share` (time taken by a hypervisor) of all hosts."""
        return max((one.stolen_share for one in self.telemetry), default=0.0)


def find_record_problem(record: Record) -> str:
    """Return why a record is not valid, or ''; of a failed record only the status is checked.

    An OK record needs the ranks and hosts of its case's topology (from a log, the whole job is
    enough), finite windows above 0, finite losses, and weights, where they were read, that are
    finite and the same on all ranks.
    """
    case = record.case
    if record.status not in STATUSES:
        return f"status is {record.status!r}; allowed: {', '.join(STATUSES)}"
    if record.status != OK:
        return ""
    found = sorted(rank.rank for rank in record.ranks)
    if case.log_format and found == [WHOLE_JOB]:
        return _find_rank_problem(record)
    if found != list(range(case.world_size)):
        missing = sorted(set(range(case.world_size)) - set(found))
        if missing:
            return f"ranks {missing} of {case.world_size} are missing in the record"
        return f"has ranks {found}, but the topology needs ranks 0 to {case.world_size - 1}"
    hosts = {rank.host for rank in record.ranks}
    if len(hosts) != case.nodes:
        return f"ran on {len(hosts)} host(s), but the topology needs {case.nodes}"
    return _find_rank_problem(record)


def _find_rank_problem(record: Record) -> str:
    for rank in record.ranks:
        if not (math.isfinite(rank.window_seconds) and rank.window_seconds > 0):
            return f"rank {rank.rank}: window_seconds is {rank.window_seconds}; allowed: above 0"
        if not math.isfinite(rank.final_loss):
            return f"rank {rank.rank} ended with a loss of {rank.final_loss}, which is not finite"
        if not math.isfinite(rank.weight_sum):
            return f"rank {rank.rank} ended with weights that are not finite"
    return _find_weight_problem([rank for rank in record.ranks if rank.weight_sum])


def _find_weight_problem(ranks: Sequence[RankResult]) -> str:
    """Return that the weights differ, and those of which ranks if most others agree, or ''."""
    usual = sorted(rank.weight_sum for rank in ranks)[len(ranks) // 2] if ranks else 0.0
    other = [
        f"rank {rank.rank} on {rank.host}"
        for rank in ranks
        if abs(rank.weight_sum - usual) > WEIGHT_TOLERANCE * usual
    ]
    if not other:
        return ""
    difference = "differ between the ranks"
    if 2 * len(other) < len(ranks):
        more = f" and {len(other) - MOST_NAMED_RANKS} more" if len(other) > MOST_NAMED_RANKS else ""
        named = ", ".join(other[:MOST_NAMED_RANKS])
        difference = f"of {named}{more} differ from those of the other ranks"
    return (
        f"after the last step, the weights {difference}: gradients were not averaged, or a device "
        "computes wrongly"
    )
