"""Logs of PaddleClas (`ppcls INFO: epoch:0 train step:10 ... ips: ... samples/sec`, since 2021).

Every `print_batch_step` steps a device prints its own rate, the mean since the epoch began, and the
time to the second. Throughput is taken from the times, because means that run on cannot be joined.
Left out as warm-up are the first 8 lines, as its publisher does (a log without so many has its
first interval left out), and the first interval of every epoch.

A run came to its end when its last epoch did ("END epoch"), or when its launcher reported that it
was done. Its publisher stopped some runs with a signal: that is an end too, if training had gone on
until then; a log whose steps stop before the signal has lost lines.
"""

import re
from typing import Callable, Dict, List, Optional

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Marks, make_time_windows
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import read_count
from dlperf_slurm.logs.reading.times import DATE_TIME, parse_time, subtract_times

WARMUP_MARKS = 8

_HEAD = rf"\[({DATE_TIME})\] (?:ppcls|root) INFO: "
_STEP = re.compile(
    rf"{_HEAD}epoch:(\d{{1,9}}) +train +step:(\d{{1,15}}) .*[ ,]ips: ({NUMBER}) "
    r"(?:samples|images)/sec(?:\.|,|$)"
)
_EPOCH_END = re.compile(rf"{_HEAD}END epoch:(\d{{1,9}}) +train .*batch_cost_sum: {NUMBER} s")
_SETTING = re.compile(rf"{_HEAD}( *)(\w+) : (.*)$")
_LAUNCHER = re.compile(rf"LAUNCH INFO ({DATE_TIME}) (.*)$")
_STOPPED = "Terminating with signal "

SIGNATURE = re.compile(rf"{_HEAD}epoch:\d+ +train +step:\d+ .*ips: ")
START = re.compile(r"==        PaddleClas is powered by PaddlePaddle !        ==")


class _Run:
    def __init__(self) -> None:
        self._marks = Marks()
        self._settings: Dict[str, str] = {}
        self._path: List[str] = []
        self._nodes = 0
        self._devices_per_node = 0
        self._last_epoch_end = -1
        self._stop_time: Optional[float] = None
        self._is_done = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        step = _STEP.match(line.text)
        if step is not None:
            position = (int(step.group(2)), int(step.group(3)))
            time = parse_time(step.group(1))
            self._marks.add(line.rank, position, time, parse_number(step.group(4)))
            return
        launcher = _LAUNCHER.match(line.text)
        if launcher is not None:
            self._add_launcher_line(launcher.group(1), launcher.group(2))
            return
        epoch_end, setting = _EPOCH_END.match(line.text), _SETTING.match(line.text)
        if epoch_end is not None:
            self._last_epoch_end = max(self._last_epoch_end, int(epoch_end.group(2)))
        elif setting is not None:
            self._add_setting(len(setting.group(2)) // 4, setting.group(3), setting.group(4))

    def _add_launcher_line(self, time: str, text: str) -> None:
        if text.startswith("devices: "):
            self._devices_per_node = text.count(",") + 1 if text != "devices: None" else 0
        elif text.startswith("nnodes: ") and text[len("nnodes: ") :].isdigit():
            self._nodes = int(text[len("nnodes: ") :][:6])
        elif text.startswith(_STOPPED):
            self._stop_time = parse_time(time)
        elif text == "Exit code 0":
            self._is_done = True

    def _add_setting(self, depth: int, name: str, value: str) -> None:
        """A nested configuration, an indented line each; known by the path, as in YAML."""
        del self._path[depth:]
        self._path.append(name)
        self._settings.setdefault(".".join(self._path), value.strip())

    def finish(self) -> Reading:
        return Reading(
            identity=Identity(
                framework="paddle",
                model="resnet50" if self._settings.get("Arch.name") == "ResNet50" else "",
                nodes=self._nodes,
                devices=self._nodes * self._devices_per_node,
                batch_size_per_device=read_count(
                    self._settings, "DataLoader.Train.sampler.batch_size"
                ),
                precision=self._name_precision(),
            ),
            windows=tuple(
                window
                for rank, marks in sorted(self._marks.by_rank.items())
                for window in make_time_windows(
                    rank, marks, WARMUP_MARKS if len(marks) > WARMUP_MARKS else 0
                )
            ),
            series={"rates_per_device": self._marks.list_values()},
            problem=self._find_problem(),
        )

    def _name_precision(self) -> str:
        if not self._settings:
            return ""
        is_half = self._settings.get("AMP.use_amp", str("AMP" in self._settings)) == "True"
        return "amp-fp16" if is_half else "fp32"

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        epochs = read_count(self._settings, "Global.epochs")
        if self._is_done or 0 < epochs == self._last_epoch_end + 1:
            return ""
        if self._stop_time is None:
            epoch, step = next(iter(self._marks.by_rank.values()))[-1].position
            return f"the log ends in epoch {epoch} of {epochs or 'unknown'}, after step {step}"
        marks = next(iter(self._marks.by_rank.values()))
        gaps = sorted(
            subtract_times(mark.time, before.time) for before, mark in zip(marks, marks[1:])
        )
        silence = subtract_times(self._stop_time, marks[-1].time)
        # times are of whole seconds
        if not gaps or silence > gaps[len(gaps) // 2] + 1:
            return f"the run was stopped {silence:.0f} s after the last step that the log holds"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_from(start: int) -> Callable[[Reading, Identity], float]:
    return lambda reading, identity: (
        identity.devices * average(take_values(reading.series["rates_per_device"], start, None))
    )


RULES = (
    Rule(
        "devices x arithmetic mean of values[10:]",
        _average_from(10),
        lambda identity: identity.devices > 8,
    ),
    Rule("devices x arithmetic mean of values[8:]", _average_from(8)),
)
