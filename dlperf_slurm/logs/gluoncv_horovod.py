"""Logs of ResNet-50 on MXNet with Horovod: GluonCV's train_horovod.py, Horovod's own example.

Rank 0 prints every `log_interval` batches the job's rate since the last such line; at the end of an
epoch it prints the epoch's rate and every rank its "Time cost". Throughput comes from rank 0's
intervals. Left out as warm-up are those that begin in the first 20 steps.

A run came to its end when the last epoch announced (`num_epochs`) has rank 0's rate of the epoch
and the time of each rank that printed anything. Without the arguments in the log only its first
epoch is taken: then a log that lost later epochs gives the same figure.
"""

import re
from typing import Dict, List, Sequence, Set

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average
from dlperf_slurm.logs.reading.intervals import Interval, make_rate_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import parse_namespace, read_count
from dlperf_slurm.logs.reading.patterns import COUNT, LOGGER_PREFIX, NAMESPACE

_SPEED = re.compile(
    LOGGER_PREFIX + rf"Epoch\[({COUNT})\] Batch\[({COUNT})\]\s+Speed: ({NUMBER}) samples/sec"
)
_RANK = re.compile(
    LOGGER_PREFIX + rf"Epoch\[({COUNT})\] Rank\[({COUNT})\] Batch\[\d+\]\s+(Time cost=\d)?"
)
_EPOCH = re.compile(LOGGER_PREFIX + rf"Epoch\[({COUNT})\]\s+Speed: {NUMBER} samples/sec")
_ARGUMENTS = re.compile(LOGGER_PREFIX + NAMESPACE)
_MODELS = {"resnet50_v1b": "resnet50", "resnet50_v1": "resnet50-v1"}
_PRECISIONS = {"float32": "fp32", "float16": "amp-fp16"}

SIGNATURE = _SPEED
START = _ARGUMENTS


class _Run:
    def __init__(self) -> None:
        self._speeds = Marks()
        self._ranks: Set[int] = set()
        self._ended_ranks: Dict[int, Set[int]] = {}
        self._ended_epochs: Set[int] = set()
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._speeds)

    def add(self, line: Line) -> None:
        speed = _SPEED.match(line.text)
        if speed is not None:
            position = (int(speed.group(1)), int(speed.group(2)))
            self._speeds.add(-1, position, 0.0, parse_number(speed.group(3)))
            return
        rank, epoch = _RANK.match(line.text), _EPOCH.match(line.text)
        arguments = _ARGUMENTS.match(line.text)
        if rank is not None:
            self._ranks.add(int(rank.group(2)))
            if rank.group(3):
                self._ended_ranks.setdefault(int(rank.group(1)), set()).add(int(rank.group(2)))
        elif epoch is not None:
            self._ended_epochs.add(int(epoch.group(1)))
        elif arguments is not None:
            self._parameters = parse_namespace(arguments.group(1))

    def finish(self) -> Reading:
        marks = self._speeds.by_rank.get(-1, [])
        announced = read_count(self._parameters, "num_epochs")
        timed = [mark for mark in marks if announced or mark.position[0] == marks[0].position[0]]
        windows = make_rate_windows(-1, _list_intervals(timed))
        return Reading(
            identity=self._make_identity(),
            windows=windows,
            series={"rates_of_epoch_0": tuple(m.value for m in marks if m.position[0] == 0)},
            problem=self._find_problem(marks),
        )

    def _make_identity(self) -> Identity:
        model = self._parameters.get("model", "")
        return Identity(
            framework="mxnet",
            model=_MODELS.get(model, model),
            devices=len(self._ranks),
            batch_size_per_device=read_count(self._parameters, "batch_size"),
            precision=_PRECISIONS.get(self._parameters.get("dtype", ""), ""),
        )

    def _find_problem(self, marks: Sequence[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._speeds.problem:
            return self._speeds.problem
        epoch, batch = marks[-1].position
        if epoch not in self._ended_epochs:
            return f"the log ends in epoch {epoch} at batch {batch}: its rate is missing"
        missing = sorted(self._ranks - self._ended_ranks.get(epoch, set()))
        if missing:
            return f"epoch {epoch} has no 'Time cost' of ranks {', '.join(map(str, missing))}"
        announced = read_count(self._parameters, "num_epochs")
        if epoch + 1 < announced:
            return f"the log ends after epoch {epoch}, the last was to be {announced - 1}"
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(steps, rate) of lines whose batches count from 1 in each epoch."""
    intervals = []
    epoch, done = -1, 0
    for mark in marks:
        done = done if mark.position[0] == epoch else 0
        intervals.append((mark.position[1] - done, mark.value))
        epoch, done = mark.position
    return intervals


def start_run() -> _Run:
    return _Run()


def _average_dlperf(reading: Reading, identity: Identity) -> float:
    rates = reading.series["rates_of_epoch_0"]
    if len(rates) != 120:
        raise RuleError(f"takes 120 lines of the first epoch, the log has {len(rates)}")
    return round(average(rates[20:]), 2)


RULES = (Rule("DLPerf: arithmetic mean of values[20:120]", _average_dlperf),)
