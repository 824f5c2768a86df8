"""Logs of PaddlePaddle/models' BERT pretraining (release 1.5 to 1.8; DLPerf's BERT).

Trainer 0 prints every `skip_steps` steps how fast they were since the last such line, as steps/s
times the number of trainers; a trainer drives all devices of a node. "[validation_set]" and
"[test_set]" lines are of other work. Left out as warm-up are the first 20 steps.

A run came to its end with the last line that its arguments announce (`num_train_steps`).
"""

import re
from typing import Dict, List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.patterns import COUNT

_STEP = re.compile(
    rf"epoch: \d+, progress: \d+/\d+, step: ({COUNT}), loss: .{{1,300}}?, speed: ({NUMBER}) steps/s"
)
_ARGUMENT = re.compile(r"(\w+): (\S.*)")
_DEVICES = re.compile(rf"Device count ({COUNT})$")
_TRAINERS = re.compile(rf"worker_endpoints:.*\btrainers_num:({COUNT})\b")

SIGNATURE = re.compile(
    r"epoch: \d+, progress: \d+/\d+, step: \d+, loss: .{1,80}?, ppl: .{1,300}?, speed: "
)
START = re.compile(r"-+ +Configuration Arguments +-+")


class _Run:
    def __init__(self) -> None:
        self._steps = Marks()
        self._parameters: Dict[str, str] = {}
        self._devices_per_trainer = 0
        self._trainers = 1

    @property
    def is_under_way(self) -> bool:
        return bool(self._steps)

    def add(self, line: Line) -> None:
        step = _STEP.match(line.text)
        if step is not None:
            self._steps.add(line.rank, (int(step.group(1)),), 0.0, parse_number(step.group(2)))
        elif not self._steps:
            self._add_announcement(line.text.rstrip())

    def _add_announcement(self, text: str) -> None:
        argument, devices, trainers = (
            pattern.match(text) for pattern in (_ARGUMENT, _DEVICES, _TRAINERS)
        )
        if devices is not None:
            self._devices_per_trainer = int(devices.group(1))
        elif trainers is not None:
            self._trainers = int(trainers.group(1)) or 1
        elif argument is not None:
            self._parameters[argument.group(1)] = argument.group(2)

    def finish(self) -> Reading:
        marks = self._steps.by_rank.get(min(self._steps.by_rank, default=-1), [])
        windows = make_seconds_windows(-1, self._list_intervals(marks))
        return Reading(
            identity=self._make_identity(),
            windows=windows,
            series={"speeds": tuple(mark.value for mark in marks)},
            problem=self._find_problem(marks),
        )

    def _list_intervals(self, marks: Sequence[Mark]) -> List[Interval]:
        """(steps, seconds) of each line; a speed of 0 takes no time, which is found out later."""
        interval = read_count(self._parameters, "skip_steps") or 1
        return [
            (interval, interval * self._trainers / mark.value if mark.value > 0 else 0.0)
            for mark in marks
        ]

    def _make_identity(self) -> Identity:
        is_in_tokens = is_true(self._parameters, "in_tokens")
        precision = "amp-fp16" if is_true(self._parameters, "use_fp16") else "fp32"
        return Identity(
            framework="paddle",
            model="bert",
            nodes=self._trainers if self._devices_per_trainer else 0,
            devices=self._trainers * self._devices_per_trainer,
            batch_size_per_device=0 if is_in_tokens else read_count(self._parameters, "batch_size"),
            precision=precision if "use_fp16" in self._parameters else "",
        )

    def _find_problem(self, marks: Sequence[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._steps.problem:
            return self._steps.problem
        if min(mark.value for mark in marks) <= 0:
            return "a speed of 0 steps/s"
        announced = read_count(self._parameters, "num_train_steps")
        if not announced:
            return "the log does not tell how many steps there were to be (num_train_steps)"
        interval = read_count(self._parameters, "skip_steps") or 1
        last = announced // interval * interval
        if marks[-1].position[0] < last:
            return f"the log ends at step {marks[-1].position[0]}, the last line is of step {last}"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_100_rates(reading: Reading, identity: Identity) -> float:
    """A trainer's batch: the printed speed is already multiplied by the trainers."""
    batch_size = identity.global_batch_size / max(identity.nodes, 1)
    speeds = take_values(reading.series["speeds"], 20, 120)
    return round(average([round(speed * batch_size, 4) for speed in speeds]), 2)


RULES = (Rule("DLPerf: mean of a node's batch size x values[20:120]", _average_100_rates),)
