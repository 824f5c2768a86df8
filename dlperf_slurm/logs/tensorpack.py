"""Logs of tensorpack's trainers (examples/ResNet): "Epoch 1 (global_step 5000) finished, time:".

The chief prints after each epoch how long its steps took, to three digits or, above a minute, to
the second; callbacks such as validation run outside. Its throughput tracker prints the same time as
a rate of five digits, which is taken where the two agree. ImageNet's examples say on how many GPUs
("towers") they run, and with which batch size each. Left out as warm-up is the first epoch, and
what begins in the first 20 steps.

A run came to its end when it says so: "Training has finished!".
"""

import re
from typing import Dict, List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.patterns import COUNT

_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_PREFIX = r"\[\d{4} \d\d:\d\d:\d\d @[\w.-]{1,60}:\d{1,6}\] "
_EPOCH = re.compile(
    _PREFIX + rf"Epoch ({COUNT}) \(global_step ({COUNT})\) finished, time: ?(\d[-\w. ]{{1,80}})\.$"
)
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?(?:e[-+]\d\d)?) (day|hour|minute|second)s?")
_TOWERS = re.compile(_PREFIX + rf"Running on ({COUNT}) towers\. Batch size per tower: ({COUNT})$")
_THROUGHPUT = re.compile(_PREFIX + rf"Throughput \(samples/sec\): ({NUMBER})$")
_END = re.compile(_PREFIX + r"Training has finished!")

SIGNATURE = re.compile(_PREFIX + r"Epoch \d+ \(global_step \d+\) finished, time:")
START = _TOWERS


class _Run:
    def __init__(self) -> None:
        self._epochs = Marks()
        self._devices = 0
        self._batch_size = 0
        # of the chief, by the step that it was printed after
        self._rates: Dict[int, float] = {}
        self._has_ended = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._epochs)

    def add(self, line: Line) -> None:
        text = line.text.rstrip()
        epoch, towers, throughput = (
            pattern.match(text) for pattern in (_EPOCH, _TOWERS, _THROUGHPUT)
        )
        if epoch is not None:
            position = (int(epoch.group(2)),)
            self._epochs.add(line.rank, position, 0.0, _parse_duration(epoch.group(3)))
        elif towers is not None:
            self._devices, self._batch_size = int(towers.group(1)), int(towers.group(2))
        elif throughput is not None and not line.is_last_unended:
            marks = self._epochs.by_rank.get(line.rank)
            step = marks[-1].position[0] if marks else 0
            self._rates[step] = parse_number(throughput.group(1))
        elif _END.match(text):
            self._has_ended = True

    def finish(self) -> Reading:
        windows = [
            window
            for rank, marks in sorted(self._epochs.by_rank.items())
            for window in make_seconds_windows(rank, self._list_intervals(marks))
        ]
        return Reading(
            identity=Identity(
                framework="tensorflow1",
                devices=self._devices,
                batch_size_per_device=self._batch_size,
            ),
            windows=tuple(windows),
            series={"rates": tuple(self._rates.values())},
            problem=self._find_problem(),
        )

    def _list_intervals(self, marks: Sequence[Mark]) -> List[Interval]:
        """(steps, seconds) of epochs; the first has as many steps as the second, if it is known."""
        steps = [mark.position[0] for mark in marks]
        counts = [after - before for before, after in zip(steps, steps[1:])]
        global_batch_size = self._devices * self._batch_size
        return [
            (
                count,
                _choose_seconds(
                    mark.value, count * global_batch_size, self._rates.get(mark.position[0], 0.0)
                ),
            )
            for count, mark in zip(counts[:1] + counts, marks)
        ]

    def _find_problem(self) -> str:
        if not self._epochs:
            return "the log holds no timed step"
        if self._epochs.problem:
            return self._epochs.problem
        if not self._has_ended:
            last = max(marks[-1].position[0] for marks in self._epochs.by_rank.values())
            return f"the log ends after step {last}: 'Training has finished!' is missing"
        return ""


def _parse_duration(text: str) -> float:
    """Seconds of `1 hour 2 minutes 5 seconds` or `12.3 seconds`."""
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))


def _choose_seconds(printed: float, samples: int, samples_per_s: float) -> float:
    """The printed time, or that of the rate if it is the same one with more digits."""
    if samples_per_s <= 0:
        return printed
    seconds = samples / samples_per_s
    if printed < 60:
        # to three digits
        return seconds if abs(seconds - printed) <= 0.005 * printed else printed
    # whole seconds are cut, not rounded
    return seconds if printed <= seconds < printed + 1 else printed


def start_run() -> _Run:
    return _Run()


def _average_but_first(reading: Reading, identity: Identity) -> float:
    return average(take_values(reading.series["rates"], 1, None))


RULES = (Rule("mean of 'Throughput (samples/sec)' but the first", _average_but_first),)
