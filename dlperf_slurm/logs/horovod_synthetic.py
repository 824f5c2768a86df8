"""Logs of Horovod's synthetic benchmarks (PyTorch, TensorFlow 1 and 2, Keras), and BytePS's.

Rank 0 alone prints: a rate per device for each of its iterations (of ten batches, unless asked
otherwise; BytePS's rate is the job's), then their mean, and last the mean times the devices. The
warm-up's batches run before the first iteration and are not in it: nothing is left out here.

A run came to its end when the total is there, for as many devices as were announced, and when the
mean that the log gives is that of the iterations it has.
"""

import re
from typing import List, Match

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.patterns import COUNT, NUMBER, parse_number
from dlperf_slurm.logs.reading.rules import average, take_values
from dlperf_slurm.logs.reading.windows import make_rate_window

BATCHES_PER_ITERATION = 10

_ITERATION = re.compile(rf"Iter #({COUNT}): ({NUMBER}) img/sec (per )?[A-Z]{{3}}\b")
_MEAN = re.compile(rf"Img/sec per [A-Z]{{3}}: ({NUMBER}) \+-")
_TOTAL = re.compile(rf"Total img/sec on ({COUNT}) [A-Z]{{3}}\(s\): ({NUMBER}) \+-")
_MODEL = re.compile(r"Model: (\S+)$")
_BATCH_SIZE = re.compile(rf"Batch size: ({COUNT})$")
_DEVICES = re.compile(rf"Number of [A-Z]{{3}}s: ({COUNT})$")

SIGNATURE = re.compile(f"{_ITERATION.pattern}|{_TOTAL.pattern}")
START = _MODEL


class _Run:
    def __init__(self) -> None:
        self._rank = -1
        self._model = ""
        self._batch_size = 0
        self._devices = 0
        self._is_per_device = True
        self._rates: List[float] = []
        self._mean = 0.0
        self._total = 0.0
        self._problem = ""

    @property
    def is_under_way(self) -> bool:
        return bool(self._rates)

    def add(self, line: Line) -> None:
        text = line.text.rstrip()
        iteration = _ITERATION.match(text)
        if iteration is not None:
            self._add_iteration(line.rank, iteration)
            return
        if not self._rates:
            self._add_announcement(text)
            return
        mean, total = _MEAN.match(text), _TOTAL.match(text)
        if mean is not None:
            self._mean = parse_number(mean.group(1))
        elif total is not None:
            self._total = parse_number(total.group(2))
            self._check_devices(int(total.group(1)))

    def _add_announcement(self, text: str) -> None:
        model, batch_size, devices = (
            pattern.match(text) for pattern in (_MODEL, _BATCH_SIZE, _DEVICES)
        )
        if model is not None:
            self._model = model.group(1).lower()
        elif batch_size is not None:
            self._batch_size = int(batch_size.group(1))
        elif devices is not None:
            self._devices = int(devices.group(1))

    def _add_iteration(self, rank: int, iteration: Match[str]) -> None:
        index, rate = int(iteration.group(1)), parse_number(iteration.group(2))
        if not self._rates:
            self._rank = rank
        if rank != self._rank:
            self._set_problem("several ranks report: each ran a benchmark of its own")
        elif index == len(self._rates) and rate > 0:
            self._rates.append(rate)
            self._is_per_device = bool(iteration.group(3))
        elif index != len(self._rates) - 1 or rate != self._rates[-1]:
            self._set_problem(f"iteration {index} follows {len(self._rates) - 1}")

    def _check_devices(self, devices: int) -> None:
        if self._devices not in (0, devices):
            self._set_problem(f"the total is of {devices} devices, {self._devices} were announced")
        self._devices = devices

    def _set_problem(self, problem: str) -> None:
        self._problem = self._problem or problem

    def finish(self) -> Reading:
        rates = [(BATCHES_PER_ITERATION, rate) for rate in self._rates]
        windows = make_rate_window(-1, rates, self._is_per_device)
        return Reading(
            identity=Identity(
                model=self._model,
                devices=self._devices,
                batch_size_per_device=self._batch_size,
            ),
            windows=windows,
            series={"total": (self._total,) if self._total else ()},
            problem=self._find_problem(),
        )

    def _find_problem(self) -> str:
        if not self._rates:
            return "the log holds no timed step"
        if self._problem:
            return self._problem
        if not self._total or not self._mean:
            return f"the log ends after iteration {len(self._rates) - 1}: the total is missing"
        found = average(self._rates) / (1 if self._is_per_device else self._devices)
        # each printed rate, and the mean, is rounded to one decimal
        if abs(found - self._mean) > 0.15:
            return (
                f"the iterations' mean is {found:.1f}, the log's own {self._mean}: some are missing"
            )
        return ""


def start_run() -> _Run:
    return _Run()


def _print_total(reading: Reading, identity: Identity) -> float:
    return take_values(reading.series["total"], 0, 1)[0]


RULES = (Rule("Horovod: the total that the benchmark prints", _print_total),)
