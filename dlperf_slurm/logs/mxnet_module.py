"""Logs of MXNet's Speedometer: image-classification/train_imagenet.py and other users of Module.

A worker prints each `disp_batches` batches its rate since the last such line, of all GPUs that it
drives; with a distributed kvstore each worker ("Node[N]") prints its own, and throughput is the
slowest worker's times the workers. An epoch's first line comes after its second interval: the first
is not printed. Left out as warm-up are the intervals that begin in the first 20 batches.

A run came to its end when each worker gives the "Time cost" of the last epoch announced
(`num_epochs`), and one of each epoch before.
"""

import re
from typing import Dict, List, Sequence, Set

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_rate_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import parse_namespace, read_count
from dlperf_slurm.logs.reading.patterns import COUNT, LOGGER_PREFIX, NAMESPACE
from dlperf_slurm.logs.reading.windows import Window

_NODE = LOGGER_PREFIX + rf"(?:Node\[({COUNT})\] )?"
_SPEED = re.compile(
    _NODE + rf"Epoch\[({COUNT})\] Batch \[(?:{COUNT}-)?({COUNT})\]\s+Speed: ({NUMBER}) samples/sec"
    r"(?!\s+LR:)(?!\s{1,8}\S{1,80}?=\S{1,80}\s{1,8}lr=)"
)
_EPOCH = re.compile(_NODE + rf"Epoch\[({COUNT})\] Time cost=\d")
_ARGUMENTS = re.compile(_NODE + r"start with arguments " + NAMESPACE)
_PRECISIONS = {"float32": "fp32", "float16": "amp-fp16"}

SIGNATURE = re.compile(_SPEED.pattern + r"\s+[\w-]+=\d")
START = _ARGUMENTS


class _Run:
    def __init__(self) -> None:
        self._speeds = Marks()
        self._ended: Dict[int, Set[int]] = {}
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._speeds)

    def add(self, line: Line) -> None:
        speed, epoch = _SPEED.match(line.text), _EPOCH.match(line.text)
        arguments = _ARGUMENTS.match(line.text)
        if speed is not None:
            position = (int(speed.group(2)), int(speed.group(3)))
            node = int(speed.group(1) or max(line.rank, 0))
            self._speeds.add(node, position, 0.0, parse_number(speed.group(4)))
        elif epoch is not None:
            node = int(epoch.group(1) or max(line.rank, 0))
            self._ended.setdefault(node, set()).add(int(epoch.group(2)))
        elif arguments is not None:
            self._parameters = parse_namespace(arguments.group(2))

    def finish(self) -> Reading:
        windows = [
            self._multiply(window)
            for node, marks in sorted(self._speeds.by_rank.items())
            for window in make_rate_windows(node, _list_intervals(marks))
        ]
        return Reading(
            identity=self._make_identity(),
            windows=tuple(windows),
            series={"rates": self._speeds.list_values()},
            problem=self._find_problem(),
        )

    def _multiply(self, window: Window) -> Window:
        workers = len(self._speeds.by_rank)
        rate = window.samples_per_s * workers
        return Window(rank=window.rank, steps=window.steps, samples_per_s=rate)

    def _make_identity(self) -> Identity:
        parameters = self._parameters
        gpus = [gpu for gpu in parameters.get("gpus", "").split(",") if gpu.strip().isdigit()]
        workers = max(len(self._speeds.by_rank), 1)
        layers = read_count(parameters, "num_layers")
        is_resnet50 = parameters.get("network", "").startswith("resnet") and layers == 50
        return Identity(
            framework="mxnet",
            model="resnet50" if is_resnet50 else parameters.get("network", ""),
            nodes=workers if gpus else 0,
            devices=workers * len(gpus),
            batch_size_per_device=read_count(parameters, "batch_size") // (len(gpus) or 1),
            precision=_PRECISIONS.get(parameters.get("dtype", ""), ""),
        )

    def _find_problem(self) -> str:
        if not self._speeds:
            return "the log holds no timed step"
        if self._speeds.problem:
            return self._speeds.problem
        announced = read_count(self._parameters, "num_epochs")
        if not announced:
            return "the log does not tell how many epochs there were to be (num_epochs)"
        for node, marks in sorted(self._speeds.by_rank.items()):
            epochs = range(marks[0].position[0], announced)
            missing = set(epochs) - self._ended.get(node, set())
            if missing:
                return f"node {node} has no 'Time cost' of epoch {min(missing)}"
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(batches, rate) of each line; a line stands for as many batches as lie before the next."""
    gaps = [
        after.position[1] - before.position[1]
        for before, after in zip(marks, marks[1:])
        if before.position[0] == after.position[0]
    ]
    usual = min(gaps, default=1)
    return [(usual, mark.value) for mark in marks]


def start_run() -> _Run:
    return _Run()


def _average_rates(reading: Reading, identity: Identity) -> float:
    return average(take_values(reading.series["rates"], 1, None)) * max(identity.nodes, 1)


RULES = (Rule("mean of the first node's rates but the first, times the nodes", _average_rates),)
