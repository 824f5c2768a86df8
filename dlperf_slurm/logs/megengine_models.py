"""Logs of MegEngine's models, official/vision/classification/resnet/train.py.

Rank 0 prints every `print-freq`th step the time of that step and, in brackets, the mean since the
last such line; the times do not hold the validation between epochs. The log tells neither the batch
size nor the devices.

Only the first epoch is taken: the log does not tell how many there were to be, and so a log that
lost later epochs gives the same figure. Left out as warm-up are its first 20 steps. A run came to
its end when the last epoch that began has its "Test" line.
"""

import re
from typing import List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.patterns import COUNT, DECIMAL, LOGGER_PREFIX

# MegEngine's own logger puts day and time before a message
_PREFIX = rf"(?:\d\d \d\d:\d\d:\d\d (?:\[\w+\] )?|{LOGGER_PREFIX})"
_METER = rf"{DECIMAL} \({DECIMAL}\)"
_STEP = re.compile(
    _PREFIX + rf"Epoch ({COUNT}) Step ({COUNT}), LR {DECIMAL}, Loss {_METER} Acc@1 {_METER} "
    rf"Acc@5 {_METER} Time {DECIMAL} \(({DECIMAL})\)"
)
_TEST = re.compile(_PREFIX + rf"Epoch ({COUNT}) Test Acc@1 ")

SIGNATURE = _STEP
START = None


class _Run:
    def __init__(self) -> None:
        self._steps = Marks()
        self._tested_epochs = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._steps)

    def add(self, line: Line) -> None:
        step, test = _STEP.match(line.text), _TEST.match(line.text)
        if step is not None:
            position = (int(step.group(1)), int(step.group(2)))
            self._steps.add(line.rank, position, 0.0, float(step.group(3)))
        elif test is not None:
            self._tested_epochs = max(self._tested_epochs, int(test.group(1)))

    def finish(self) -> Reading:
        marks = self._steps.by_rank.get(min(self._steps.by_rank, default=-1), [])
        windows = make_seconds_windows(-1, _list_intervals(marks))
        return Reading(
            identity=Identity(framework="megengine"),
            windows=windows,
            series={"seconds": tuple(mark.value for mark in marks)},
            problem=self._find_problem(marks),
        )

    def _find_problem(self, marks: Sequence[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._steps.problem:
            return self._steps.problem
        epoch, step = marks[-1].position
        if self._tested_epochs <= epoch:
            return f"the log ends in epoch {epoch} at step {step}: its 'Test' line is missing"
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """The first epoch's (steps, seconds); steps count from 0 through all epochs."""
    epoch = [mark for mark in marks if mark.position[0] == marks[0].position[0]]
    intervals, done = [], epoch[0].position[1] if epoch else 0
    for mark in epoch:
        steps = mark.position[1] + 1 - done
        intervals.append((steps, mark.value * steps))
        done = mark.position[1] + 1
    return intervals


def start_run() -> _Run:
    return _Run()


def _average_but_first(reading: Reading, identity: Identity) -> float:
    seconds = average(take_values(reading.series["seconds"], 1, None))
    if seconds <= 0 or identity.global_batch_size <= 0:
        raise RuleError("takes times above 0, and a batch size")
    return identity.global_batch_size / seconds


RULES = (
    Rule("global batch size over the mean of the lines' times but the first", _average_but_first),
)
