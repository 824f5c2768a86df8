"""Logs of TensorFlow 2's official BERT pretraining (run_pretraining.py's "Train Step:" lines).

The chief prints after each loop of steps how many are done of how many, with a time in its logger's
prefix and without a rate. Throughput is taken from the times. Left out as warm-up is the first
line's interval, of whose beginning no line has the time, and what begins in the first 20 steps.
The log does not tell the batch size, the devices only as "Number of cores used".

A run came to its end with the last step that its lines announce.
"""

import re
from typing import List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import time_steps
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.patterns import COUNT
from dlperf_slurm.logs.reading.times import GLOG_TIME, parse_time, subtract_times

_STEP = re.compile(rf"({GLOG_TIME}) .{{0,80}}\] Train Step: ({COUNT})/({COUNT})  / loss = ")
_DEVICES = re.compile(rf"\*{{5}} Number of cores used : +({COUNT})$")

SIGNATURE = _STEP
START = None


class _Run:
    def __init__(self) -> None:
        self._steps = Marks()
        self._announced = 0
        self._devices = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._steps)

    def add(self, line: Line) -> None:
        step = _STEP.match(line.text)
        devices = _DEVICES.match(line.text.rstrip())
        if devices is not None:
            self._devices = int(devices.group(1))
        elif step is not None:
            position = (int(step.group(2)),)
            self._announced = int(step.group(3))
            self._steps.add(line.rank, position, parse_time(step.group(1)), 0.0)

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._steps.by_rank.items())
            for window in make_seconds_windows(rank, _list_intervals(marks))
        ]
        first_rank = self._steps.by_rank.get(min(self._steps.by_rank, default=-1), [])
        return Reading(
            identity=Identity(framework="tensorflow2", model="bert", devices=self._devices),
            windows=tuple(windows),
            series={"times": tuple(mark.time for mark in first_rank)},
            problem=self._find_problem(),
        )

    def _find_problem(self) -> str:
        if not self._steps:
            return "the log holds no timed step"
        if self._steps.problem:
            return self._steps.problem
        for rank, marks in sorted(self._steps.by_rank.items()):
            if marks[-1].position[0] < self._announced:
                whose = f" of rank {rank}" if rank >= 0 else ""
                return f"the log{whose} ends at step {marks[-1].position[0]} of {self._announced}"
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(steps, seconds) of each line; the first line's seconds are not known and always left out."""
    intervals: List[Interval] = [(mark.position[0], 0.0) for mark in marks[:1]]
    for before, after in zip(marks, marks[1:]):
        steps = after.position[0] - before.position[0]
        intervals.append((steps, subtract_times(after.time, before.time)))
    return intervals


def start_run() -> _Run:
    return _Run()


def _time_100_lines(reading: Reading, identity: Identity) -> float:
    return round(time_steps(reading.series["times"], 20, 120, identity.global_batch_size), 2)


RULES = (
    Rule("DLPerf: global batch size x 100 over the time from line 20 to line 120", _time_100_lines),
)
