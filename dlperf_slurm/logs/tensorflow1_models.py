"""Logs of TensorFlow 1's official models (official/r1/resnet) by ExamplesPerSecondHook.

The chief prints every so many steps its rate since the last time and its average since the start,
as "Benchmark metric: {'name': 'current_examples_per_sec', ...}" or, before 2018, as "Average
examples/sec: 310.2 (312.5), step = 100", where the current rate stands in brackets; it is that of
the whole job on one host. Left out as warm-up are the intervals that begin in the first 20 steps.

Training runs in cycles, each of which ends with "Loss for final step". A run came to its end when
all cycles announced ("Starting cycle: 0/1") did; evaluation between them prints no rates.
"""

import re
from typing import List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError
from dlperf_slurm.logs.reading.intervals import Interval, make_rate_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.patterns import COUNT
from dlperf_slurm.logs.reading.times import GLOG_TIME

_PREFIX = rf"(?:INFO:tensorflow:|{GLOG_TIME} .{{0,60}}?\] )"
_CURRENT = re.compile(
    _PREFIX + rf"(?:Benchmark metric: \{{'name': 'current_examples_per_sec', 'value': ({NUMBER}), "
    rf".{{0,80}}?'global_step': ({COUNT}),"
    rf"|Average examples/sec: {NUMBER} \(({NUMBER})\), step = ({COUNT})(?:\s|$))"
)
_AVERAGE = re.compile(
    _PREFIX + rf"(?:Benchmark metric: \{{'name': 'average_examples_per_sec', 'value': ({NUMBER}), "
    rf"|Average examples/sec: ({NUMBER}) \()"
)
_CYCLE = re.compile(_PREFIX + rf"Starting (?:a training )?cycle: {COUNT}/({COUNT})")
_END = re.compile(_PREFIX + r"Loss for final step: ")

SIGNATURE = _CURRENT
START = re.compile(_PREFIX + rf"Starting (?:a training )?cycle: 0/{COUNT}")


class _Run:
    def __init__(self) -> None:
        self._rates = Marks()
        self._average = 0.0
        self._cycles = 1
        self._ended_cycles = 0
        self._has_ended = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._rates)

    def add(self, line: Line) -> None:
        current = None if line.is_last_unended else _CURRENT.match(line.text)
        average, cycle = _AVERAGE.match(line.text), _CYCLE.match(line.text)
        if average is not None:
            self._average = parse_number(average.group(1) or average.group(2))
        if current is not None:
            rate, step = current.group(1) or current.group(3), current.group(2) or current.group(4)
            self._rates.add(line.rank, (int(step),), 0.0, parse_number(rate))
            self._has_ended = False
        elif cycle is not None:
            self._cycles = int(cycle.group(1)) or 1
        elif _END.match(line.text):
            self._ended_cycles += 0 if self._has_ended else 1
            self._has_ended = True

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._rates.by_rank.items())
            for window in make_rate_windows(rank, _list_intervals(marks))
        ]
        return Reading(
            identity=Identity(framework="tensorflow1"),
            windows=tuple(windows),
            series={"averages": (self._average,) if self._average > 0 else ()},
            problem=self._find_problem(),
        )

    def _find_problem(self) -> str:
        if not self._rates:
            return "the log holds no timed step"
        if self._rates.problem:
            return self._rates.problem
        step = max(marks[-1].position[0] for marks in self._rates.by_rank.values())
        if not self._has_ended or self._ended_cycles < self._cycles:
            return (
                f"the log ends at step {step}: {self._ended_cycles} of {self._cycles} cycles "
                "came to their end"
            )
        return ""


def _list_intervals(marks: Sequence[Mark]) -> List[Interval]:
    """(steps, rate) of each line; the first line's number of steps is that of the second."""
    steps = [mark.position[0] for mark in marks]
    counts = [after - before for before, after in zip(steps, steps[1:])]
    return [(count, mark.value) for count, mark in zip(counts[:1] + counts, marks)]


def start_run() -> _Run:
    return _Run()


def _print_average(reading: Reading, identity: Identity) -> float:
    averages = reading.series["averages"]
    if not averages:
        raise RuleError("takes the average that the hook prints, the log has none")
    return averages[-1]


RULES = (Rule("the last 'average_examples_per_sec' printed", _print_average),)
