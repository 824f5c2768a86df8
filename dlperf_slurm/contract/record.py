"""A record: the raw outcome of one array task, as the worker writes it to record.json."""

import dataclasses
import math
from typing import Dict, Tuple

from dlperf_slurm.contract.case import Case

RECORD_FILE = "record.json"
STEP_SECONDS_FILE = "step_seconds.npy"
WARMUP_STEP_SECONDS_FILE = "warmup_step_seconds.npy"
# the file with seconds as [ranks, measured steps], for a case whose batches come from somewhere
DATA_WAIT_SECONDS_FILE = "data_wait_seconds.npy"
# the file with seconds of each token as [ranks, measured steps, tokens], the first by prefill
TOKEN_SECONDS_FILE = "token_seconds.npy"
# the seconds of the measured steps as [ranks, steps] that a failed attempt had finished; NaN for
# one that its rank did not finish, or could not tell of
PARTIAL_STEP_SECONDS_FILE = "partial_step_seconds.npy"

LOG_FILE = "log"
FAILURES_DIR = "failures"

OK = "ok"

FAILED = "failed"
OUT_OF_MEMORY = "oom"
STATUSES = (OK, FAILED, OUT_OF_MEMORY)

# `Telemetry.device` for values of the host, not of one device
HOST = -1


# the `error` of a job's failure whose ranks a signal ended, well before the time limit
TERMINATED = "Terminated"

# `RankResult.rank` for a log that tells the whole job's figures only, and for a failure of the job
WHOLE_JOB = -1


@dataclasses.dataclass(frozen=True)
class RankResult:
    """What one rank measured; rank -1 is the job as a whole, of a log that tells no ranks apart.

    Its host stood still for `data_wait_seconds` of the window, waiting for the next batch.
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
    else's log it also has the figure by its publisher's own rule. Of a failed attempt,
    `partial_steps` are the measured steps that all ranks finished which could tell of them: their
    times are kept in PARTIAL_STEP_SECONDS_FILE, and stand in no figure.
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
    partial_steps: int = 0

    @property
    def window_seconds(self) -> float:
        """Wall time of the measured steps on the slowest rank."""
        return max(rank.window_seconds for rank in self.ranks)

    @property
    def measured_samples(self) -> int:
        """The samples that all ranks together worked through in the window."""
        return self.trained_samples or self.case.global_batch_size * self.case.measured_steps

    @property
    def samples_per_s(self) -> float:
        """Global throughput: samples of the measured steps / the slowest rank's window."""
        return self.measured_samples / self.window_seconds

    @property
    def computed_samples_per_s(self) -> float:
        """Global throughput without the time that the ranks' hosts waited for data.

        The devices' waiting is left out only where the host waits for each step.
        """
        return self.measured_samples / max(
            rank.window_seconds - rank.data_wait_seconds for rank in self.ranks
        )

    @property
    def stolen_share(self) -> float:
        """The part of the CPU time needed that hypervisors took, on the host where it is most."""
        return max((one.stolen_share for one in self.telemetry), default=0.0)


def find_record_problem(record: Record) -> str:
    """The reason not to trust an "ok" record; empty when it is sound."""
    case = record.case
    if record.status not in STATUSES:
        return f"status {record.status!r} is none of {', '.join(STATUSES)}"
    if record.status != OK:
        return ""
    found = sorted(rank.rank for rank in record.ranks)
    if case.log_format and found == [WHOLE_JOB]:
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
