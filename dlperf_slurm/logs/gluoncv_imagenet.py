"""Logs of GluonCV's train_imagenet.py: one process that drives all GPUs of a node.

Every `log_interval` batches it prints the job's rate since the last such line, at the end of an
epoch the epoch's, which holds its beginning too. Throughput comes from the intervals; validation
runs between epochs. Left out as warm-up are the intervals that begin in the first 20 steps.

A run came to its end when the last epoch announced (`num_epochs`) has its closing "speed:" line.
"""

import re
from typing import Dict, List

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average_harmonically, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_rate_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import parse_namespace, read_count
from dlperf_slurm.logs.reading.patterns import COUNT, LOGGER_PREFIX, NAMESPACE

_SPEED = re.compile(
    LOGGER_PREFIX + rf"Epoch\[({COUNT})\] Batch \[({COUNT})\]\s+Speed: ({NUMBER}) samples/sec"
    r"\s+\S{1,80}?=\S{1,80}\s+lr="
)
_EPOCH = re.compile(
    LOGGER_PREFIX + rf"\[Epoch ({COUNT})\] speed: ({NUMBER}) samples/sec\s+time cost:"
)
_ARGUMENTS = re.compile(LOGGER_PREFIX + NAMESPACE)
_MODELS = {"resnet50_v1b": "resnet50", "resnet50_v1": "resnet50-v1"}
_PRECISIONS = {"float32": "fp32", "float16": "amp-fp16"}

SIGNATURE = re.compile(f"{_SPEED.pattern}|{_EPOCH.pattern}")
START = _ARGUMENTS


class _Run:
    def __init__(self) -> None:
        self._speeds = Marks()
        self._epochs: Dict[int, float] = {}
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._speeds)

    def add(self, line: Line) -> None:
        speed, epoch = _SPEED.match(line.text), _EPOCH.match(line.text)
        arguments = _ARGUMENTS.match(line.text)
        if speed is not None:
            position = (int(speed.group(1)), int(speed.group(2)))
            self._speeds.add(line.rank, position, 0.0, parse_number(speed.group(3)))
        elif epoch is not None:
            self._epochs[int(epoch.group(1))] = parse_number(epoch.group(2))
        elif arguments is not None:
            self._parameters = parse_namespace(arguments.group(1))

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._speeds.by_rank.items())
            for window in make_rate_windows(rank, _list_intervals(marks))
        ]
        return Reading(
            identity=self._make_identity(),
            windows=tuple(windows),
            series={"epoch_rates": tuple(self._epochs[epoch] for epoch in sorted(self._epochs))},
            problem=self._find_problem(),
        )

    def _make_identity(self) -> Identity:
        model = self._parameters.get("model", "")
        return Identity(
            framework="mxnet",
            model=_MODELS.get(model, model),
            nodes=1,
            devices=read_count(self._parameters, "num_gpus"),
            batch_size_per_device=read_count(self._parameters, "batch_size"),
            precision=_PRECISIONS.get(self._parameters.get("dtype", ""), ""),
        )

    def _find_problem(self) -> str:
        if not self._speeds:
            return "the log holds no timed step"
        if self._speeds.problem:
            return self._speeds.problem
        announced = read_count(self._parameters, "num_epochs")
        begun = max(marks[-1].position[0] for marks in self._speeds.by_rank.values())
        if not announced:
            return "the log does not tell how many epochs there were to be (num_epochs)"
        if begun not in self._epochs:
            return f"the log ends in epoch {begun}: the line with its speed is missing"
        if announced and begun + 1 < announced:
            return f"the log ends after epoch {begun}, the last was to be {announced - 1}"
        return ""


def _list_intervals(marks: List[Mark]) -> List[Interval]:
    """(steps, rate) of a rank's lines; batches count from 0, or from 1 in later versions.

    An epoch's first interval is as long as its second, whatever the count begins with.
    """
    gaps = [
        after.position[1] - before.position[1] if after.position[0] == before.position[0] else 0
        for before, after in zip(marks, marks[1:])
    ]
    usual = max(gaps, default=0) or 1
    return [(gap or usual, mark.value) for gap, mark in zip([0, *gaps], marks)]


def start_run() -> _Run:
    return _Run()


def _average_epochs(reading: Reading, identity: Identity) -> float:
    return average_harmonically(take_values(reading.series["epoch_rates"], 1, None))


RULES = (Rule("harmonic mean of the epochs' speeds but the first", _average_epochs),)
