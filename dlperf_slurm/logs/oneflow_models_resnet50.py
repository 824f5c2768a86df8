"""Logs of OneFlow's models, Vision/classification/image/resnet50/train.py.

Every rank, or rank 0 alone, prints "[rank:N] [train]" lines each `print_interval` iterations and at
an epoch's end, with its own rate since the last line: of its own samples, so that it is a rate per
device. "[eval]" lines are of other work. Throughput comes from the rates, of the slowest rank. Left
out as warm-up are the intervals that begin in the first 20 iterations.

A run came to its end when the lines reach the last iteration of the last epoch; both counts stand
in each line. Epochs count from 0.
"""

import re
from typing import Dict, List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_rate_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.patterns import COUNT

_TRAIN = re.compile(
    rf"\[rank:({COUNT})\] \[train\], epoch: ({COUNT})/({COUNT}), iter: ({COUNT})/({COUNT}), "
    rf"loss: \S+, .{{0,80}}?throughput: ({NUMBER})(?:, timestamp: \S+)? \| "
)
_ARGUMENT = re.compile(r"(\w+) \.{2,48} (\S.*)")

SIGNATURE = re.compile(
    r"\[rank:\d+\] \[train\], epoch: \d+/\d+, iter: \d+/\d+, loss: .*throughput: "
)
START = re.compile(r"-{5,} arguments -{5,}")


class _Run:
    def __init__(self) -> None:
        self._intervals = Marks()
        self._parameters: Dict[str, str] = {}
        self._epochs = 0
        self._iterations = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._intervals)

    def add(self, line: Line) -> None:
        train = _TRAIN.match(line.text)
        if train is not None:
            rank, epoch, self._epochs, iteration, self._iterations = (
                int(train.group(n)) for n in (1, 2, 3, 4, 5)
            )
            rate = parse_number(train.group(6))
            self._intervals.add(rank, (epoch, iteration), 0.0, rate)
            return
        argument = None if self._intervals else _ARGUMENT.match(line.text)
        if argument is not None:
            self._parameters[argument.group(1)] = argument.group(2).rstrip()

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._intervals.by_rank.items())
            for window in make_rate_windows(rank, _list_intervals(marks), is_per_device=True)
        ]
        return Reading(
            identity=self._make_identity(),
            windows=tuple(windows),
            series={"rates": self._intervals.list_values()},
            problem=self._find_problem(),
        )

    def _make_identity(self) -> Identity:
        batch_size = read_count(self._parameters, "train_batch_size")
        total = read_count(self._parameters, "train_global_batch_size")
        is_fp16 = is_true(self._parameters, "use_fp16")
        return Identity(
            framework="oneflow",
            model="resnet50",
            devices=total // batch_size if batch_size else 0,
            batch_size_per_device=batch_size,
            precision=("amp-fp16" if is_fp16 else "fp32") if "use_fp16" in self._parameters else "",
        )

    def _find_problem(self) -> str:
        if not self._intervals:
            return "the log holds no timed step"
        if self._intervals.problem:
            return self._intervals.problem
        for rank, marks in sorted(self._intervals.by_rank.items()):
            epoch, iteration = marks[-1].position
            if epoch + 1 < self._epochs or iteration < self._iterations:
                return f"rank {rank} ends in epoch {epoch} at iteration {iteration}"
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(iterations, rate) of each line; iterations count from 1 in each epoch."""
    intervals = []
    epoch, done = -1, 0
    for mark in marks:
        done = done if mark.position[0] == epoch else 0
        intervals.append((mark.position[1] - done, mark.value))
        epoch, done = mark.position
    return intervals


def start_run() -> _Run:
    return _Run()


def _average_but_first(reading: Reading, identity: Identity) -> float:
    if identity.devices <= 0:
        raise RuleError("takes the number of devices")
    rates = take_values(reading.series["rates"], 1, None)
    return round(average(rates) * identity.devices, 2)


RULES = (Rule("mean of rank 0's rates but the first, times the devices", _average_but_first),)
