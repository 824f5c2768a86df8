"""Logs of PaddleClas since 2.2 (ppcls/engine): "[Train][Epoch 1/120][Iter: 10/5004]" lines.

Rank 0 prints every `print_batch_step` iterations the mean "batch_cost" of the epoch so far, which
the script resets before its sixth iteration, and "ips", the samples of one device over that cost:
their product is the batch size per device. Throughput is taken from the costs; what an epoch's
first five iterations took is not known. Left out as warm-up are also the first 20 iterations.

A run came to its end with the mean ("[Avg]") of the last epoch; the log does not tell the devices.
"""

import re
from typing import List, Sequence, Set, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values
from dlperf_slurm.logs.reading.intervals import WARMUP_STEPS
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.patterns import COUNT, LOGGER_PREFIX
from dlperf_slurm.logs.reading.windows import Window

ITERATIONS_BEFORE_RESET = 5

_ITERATION = re.compile(
    LOGGER_PREFIX + rf"\[Train\]\[Epoch ({COUNT})/({COUNT})\]\[Iter: ({COUNT})/({COUNT})\]"
    rf".{{1,300}}? batch_cost: ({NUMBER})s, .{{1,300}}? ips: ({NUMBER}) (?:images/sec|samples/s)"
)
_AVERAGE = re.compile(LOGGER_PREFIX + rf"\[Train\]\[Epoch ({COUNT})/{COUNT}\]\[Avg\]")
_MODEL = re.compile(LOGGER_PREFIX + r"\s*name : (ResNet\w+)\s*$")
_VERSION = re.compile(LOGGER_PREFIX + r"train with paddle (\d[\w.]*) and device ")
_AMP = re.compile(LOGGER_PREFIX + r"AMP : \s*$")

SIGNATURE = re.compile(LOGGER_PREFIX + r"\[Train\]\[Epoch \d+/\d+\]\[Iter: \d+/\d+\]")
START = re.compile(LOGGER_PREFIX + r"==\s+PaddleClas is powered by PaddlePaddle !\s+==")


class _Run:
    def __init__(self) -> None:
        self._iterations = Marks()
        self._epochs = 0
        self._iterations_per_epoch = 0
        self._ended_epochs: Set[int] = set()
        self._batch_sizes: Set[int] = set()
        self._rates: List[float] = []
        self._model = ""
        self._version = ""
        self._has_amp = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._iterations)

    def add(self, line: Line) -> None:
        iteration, ended = _ITERATION.match(line.text), _AVERAGE.match(line.text)
        if iteration is not None:
            epoch, self._epochs, index, self._iterations_per_epoch = (
                int(iteration.group(n)) for n in (1, 2, 3, 4)
            )
            cost, rate = parse_number(iteration.group(5)), parse_number(iteration.group(6))
            self._iterations.add(line.rank, (epoch, index), 0.0, cost)
            self._batch_sizes.add(round(cost * rate))
            self._rates.append(rate)
        elif ended is not None:
            self._ended_epochs.add(int(ended.group(1)))
        elif not self._iterations:
            self._add_announcement(line.text)

    def _add_announcement(self, text: str) -> None:
        model, version = _MODEL.match(text), _VERSION.match(text)
        if model is not None:
            self._model = self._model or model.group(1)
        elif version is not None:
            self._version = version.group(1)
        self._has_amp = self._has_amp or _AMP.match(text) is not None

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._iterations.by_rank.items())
            for window in _make_windows(rank, marks)
        ]
        return Reading(
            identity=Identity(
                framework="paddle",
                model="resnet50" if self._model == "ResNet50" else self._model,
                batch_size_per_device=max(self._batch_sizes, default=0),
                precision=("amp-fp16" if self._has_amp else "fp32") if self._model else "",
                versions={"paddle": self._version} if self._version else {},
            ),
            windows=tuple(windows),
            series={"rates": tuple(self._rates)},
            problem=self._find_problem(),
        )

    def _find_problem(self) -> str:
        if not self._iterations:
            return "the log holds no timed step"
        if self._iterations.problem:
            return self._iterations.problem
        epoch, index = max(marks[-1].position for marks in self._iterations.by_rank.values())
        if self._epochs not in self._ended_epochs:
            return (
                f"the log ends in epoch {epoch} of {self._epochs} "
                f"at iteration {index} of {self._iterations_per_epoch}"
            )
        if len(self._batch_sizes) != 1:
            return f"the batch size changes: {', '.join(map(str, sorted(self._batch_sizes)))}"
        return ""


def _make_windows(rank: int, marks: Sequence[Mark]) -> Tuple[Window, ...]:
    """From the first line after the warm-up, in later epochs from the reset, to the last line."""
    steps, seconds = 0, 0.0
    for number, epoch in enumerate(sorted({mark.position[0] for mark in marks})):
        counted = [
            (mark.position[1] + 1 - ITERATIONS_BEFORE_RESET, mark.value)
            for mark in marks
            if mark.position[0] == epoch and mark.position[1] >= ITERATIONS_BEFORE_RESET
        ]
        warm = WARMUP_STEPS - ITERATIONS_BEFORE_RESET
        begin = next((entry for entry in counted if entry[0] >= warm), (0, 0.0))
        if counted and (number > 0 or begin[0] > 0):
            first = begin if number == 0 else (0, 0.0)
            steps += counted[-1][0] - first[0]
            seconds += counted[-1][0] * counted[-1][1] - first[0] * first[1]
    return (Window(rank=rank, steps=steps, seconds=seconds),) if seconds > 0 else ()


def start_run() -> _Run:
    return _Run()


def _average_but_first(reading: Reading, identity: Identity) -> float:
    if identity.devices <= 0:
        raise RuleError("takes the number of devices")
    return average(take_values(reading.series["rates"], 1, None)) * identity.devices


RULES = (Rule("arithmetic mean of values[1:], times the devices", _average_but_first),)
