"""Logs of PaddlePaddle/models' image classification (release 1.5 to 1.8; DLPerf's ResNet-50).

Trainer 0 prints, of every `print_step`th batch, how long that batch took ("elapse"), and the time
where its logger does. Batch numbers count from 0 in each epoch ("Pass"); "test  batch" lines are of
validation. Throughput is taken from the times, or from "elapse" where each batch is printed. Left
out as warm-up are the first 20 batches. The log tells the batch size of all devices together, but
not how many there are.

A run came to its end with its last batch: `max_iter`, or `num_epochs` of `total_images`.
"""

import re
from typing import Dict, List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values, time_steps
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.patterns import COUNT, LOGGER_PREFIX
from dlperf_slurm.logs.reading.times import DATE_TIME, parse_time, subtract_times

_BATCH = re.compile(
    LOGGER_PREFIX + rf"\[Pass ({COUNT}), train batch ({COUNT})\]\s+loss .{{1,200}}?"
    rf" elapse ({NUMBER}) sec"
)
_TIME = re.compile(DATE_TIME)
_ARGUMENT = re.compile(LOGGER_PREFIX + r"\s*(\w+)\s?: (\S.*)")

SIGNATURE = _BATCH
START = re.compile(LOGGER_PREFIX + r"-+ +Configuration Arguments +-+")


class _Run:
    def __init__(self) -> None:
        self._batches = Marks()
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._batches)

    def add(self, line: Line) -> None:
        batch = _BATCH.match(line.text)
        if batch is not None:
            time = _TIME.match(line.text)
            position = (int(batch.group(1)), int(batch.group(2)))
            seconds = parse_number(batch.group(3))
            self._batches.add(
                line.rank, position, parse_time(time.group()) if time else 0.0, seconds
            )
            return
        argument = None if self._batches else _ARGUMENT.match(line.text)
        if argument is not None:
            self._parameters[argument.group(1)] = argument.group(2).rstrip()

    def finish(self) -> Reading:
        marks = self._batches.by_rank.get(min(self._batches.by_rank, default=-1), [])
        windows = make_seconds_windows(-1, _list_intervals(marks))
        return Reading(
            identity=self._make_identity(),
            windows=windows,
            series={
                "seconds": tuple(mark.value for mark in marks),
                "times": tuple(mark.time for mark in marks if mark.time > 0),
            },
            problem=self._find_problem(marks),
        )

    def _make_identity(self) -> Identity:
        model = self._parameters.get("model", "")
        precision = "amp-fp16" if is_true(self._parameters, "use_fp16") else "fp32"
        return Identity(
            framework="paddle",
            model="resnet50" if model == "ResNet50" else model,
            precision=precision if "use_fp16" in self._parameters else "",
        )

    def _find_problem(self, marks: Sequence[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._batches.problem:
            return self._batches.problem
        if not _has_all_times(marks):
            return "only some batches are printed, without times: their seconds are not all"
        epoch, batch = marks[-1].position
        last_of_epoch = {mark.position[0]: mark.position[1] for mark in marks}
        step = read_count(self._parameters, "print_step") or 1
        done = sum(last + step for last in last_of_epoch.values())
        announced = self._count_announced()
        if not announced:
            return "the log does not tell how many batches there were to be (max_iter)"
        if done < announced:
            return f"the log ends in epoch {epoch} at batch {batch}, {announced} batches announced"
        return ""

    def _count_announced(self) -> int:
        """Batches of the whole run, 0 if the log does not tell."""
        max_iter = read_count(self._parameters, "max_iter")
        batch_size = read_count(self._parameters, "batch_size")
        images = read_count(self._parameters, "total_images")
        epochs = read_count(self._parameters, "num_epochs")
        return max_iter or (images // batch_size * epochs if batch_size else 0)


def _has_all_times(marks: Sequence[Mark]) -> bool:
    if all(mark.time > 0 for mark in marks):
        return True
    batches = [mark.position[1] for mark in marks]
    return all(after in (before + 1, 0) for before, after in zip(batches, batches[1:]))


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(batches, seconds) of each line, by the clock where it can be."""
    intervals = [(1, mark.value) for mark in marks[:1]]
    for before, after in zip(marks, marks[1:]):
        if before.position[0] != after.position[0]:
            intervals.append((1, after.value))
            continue
        steps = after.position[1] - before.position[1]
        by_clock = subtract_times(after.time, before.time)
        intervals.append((steps, by_clock if before.time > 0 else after.value * steps))
    return intervals


def start_run() -> _Run:
    return _Run()


def _average_100_rates(reading: Reading, identity: Identity) -> float:
    seconds = take_values(reading.series["seconds"], 20, 120)
    if min(seconds) <= 0:
        raise RuleError("takes times above 0")
    return round(average([round(identity.global_batch_size / value, 4) for value in seconds]), 2)


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    return round(time_steps(reading.series["times"], 20, 120, identity.global_batch_size), 2)


RULES = (
    Rule("DLPerf: mean of global batch size over values[20:120]", _average_100_rates),
    Rule("DLPerf: global batch size x 100 over the time from line 20 to line 120", _time_100_steps),
)
