"""What the login side and the worker share: case.json in, record.json out.

Loads on Python 3.7 with nothing but the standard library, because the worker runs inside each
framework's own Python.
"""

import dataclasses
import json
import math
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple, Type, TypeVar, Union, cast

SCHEMA_VERSION = 1

CASE_FILE = "case.json"
RECORD_FILE = "record.json"
STEP_SECONDS_FILE = "step_seconds.npy"
WARMUP_STEP_SECONDS_FILE = "warmup_step_seconds.npy"
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

# what a matrix calls our own worker among the sources of figures
WORKER = "worker"

# `RankResult.rank` of a log that tells the whole job's figures only, and of a failure of the job
WHOLE_JOB = -1

ModelParameter = Union[int, float, bool, str, Tuple[int, ...]]


class ContractError(ValueError):
    """A case or record file that cannot be trusted; the message says why."""


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

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def global_batch_size(self) -> int:
        return self.batch_size_per_device * self.world_size


@dataclasses.dataclass(frozen=True)
class RankResult:
    """What one rank measured; rank -1 is the job as a whole, of a log that tells no ranks apart."""

    rank: int
    local_rank: int
    host: str
    device_name: str
    window_seconds: float
    peak_memory_bytes: int
    final_loss: float


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
class BatchTrial:
    """A batch size that was tried in processes of its own, before the one that was measured."""

    batch_size_per_device: int
    is_out_of_memory: bool
    peak_memory_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Record:
    """The raw outcome of one array task; statistics are computed later, from these.

    Of somebody else's log it also has the figure by its publisher's own rule.
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

    @property
    def window_seconds(self) -> float:
        """Wall time of the measured steps on the slowest rank."""
        return max(rank.window_seconds for rank in self.ranks)

    @property
    def samples_per_s(self) -> float:
        """Global throughput: global_batch_size * measured_steps / the slowest rank's window."""
        return self.case.global_batch_size * self.case.measured_steps / self.window_seconds


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


def write_json(
    path: Path, value: Union[Case, Record, Failure, Parity], is_synced: bool = True
) -> None:
    """Write `value` so that a reader sees the whole file or none of it.

    Not synced, it may be lost when the machine dies in the next seconds.
    """
    data = {"schema_version": SCHEMA_VERSION}
    data.update(dataclasses.asdict(value))
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.write("\n")
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
    os.replace(str(partial), str(path))


T = TypeVar("T", Case, Record, Failure, Parity)
D = TypeVar("D")


def read_json(path: Path, kind: Type[T]) -> T:
    """Read a file that `write_json` wrote.

    Raises ContractError, which names the file and the key, when it is not whole or of another
    schema version; FileNotFoundError when it is not there.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ContractError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ContractError(f"{path}: not a JSON object")
    version = data.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ContractError(
            f"{path}: schema_version is {version}, this code reads {SCHEMA_VERSION}"
        )
    return build_dataclass(kind, data, str(path))


def build_dataclass(kind: Type[D], data: Mapping[str, Any], where: str) -> D:
    """A dataclass of this project from decoded JSON; ContractError for a wrong key or type.

    Keys with a default may be missing: files of earlier versions do not have them.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    if not isinstance(data, dict):
        raise ContractError(f"{where}: expected an object for {kind.__name__}")
    for name, field in fields.items():
        if name not in data and field.default is dataclasses.MISSING:
            raise ContractError(f"{where}: {name} is missing")
    for name in data:
        if name not in fields:
            raise ContractError(f"{where}: {name} is not a key of {kind.__name__}")
    return kind(
        **{name: _convert(fields[name].type, data[name], f"{where}: {name}") for name in data}
    )


def _convert(expected: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(expected):
        return build_dataclass(cast(Any, expected), value, where)
    if expected is float and type(value) is int:
        return float(value)
    if expected in (int, float, bool, str):
        if type(value) is not expected:
            raise ContractError(f"{where} is {value!r}, not of type {expected.__name__}")
        return value
    container = "dict" if expected in (Dict[str, ModelParameter], Dict[str, str]) else "list"
    if type(value).__name__ != container:
        raise ContractError(f"{where} is {value!r}, not of type {container}")
    if expected == Dict[str, ModelParameter]:
        return {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
    if expected == Dict[str, str]:
        return {str(key): str(v) for key, v in value.items()}
    item = expected.__args__[0]
    return tuple(_convert(item, v, f"{where}[{i}]") for i, v in enumerate(value))
