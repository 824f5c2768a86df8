"""Logs of PaddleNLP's BERT pretraining (`ips: ... sequences/sec`, static graph, of 2021 to 2023).

Every `logging_steps` steps a device prints its own rate since the last such line; the log has no
times. Throughput is the harmonic mean of these rates times the devices. Left out as warm-up are
the first 10 lines, as its publisher does; a log without so many has its first line left out.

A log has no last line of its own, but a number of steps: the run came to its end when `max_steps`
were made, and when the line that says so is whole. Where the arguments are not in the log, it is
taken for whole only if the command that follows the run says that number.
"""

import re
from typing import Callable, Dict, List, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, parse_namespace, read_count
from dlperf_slurm.logs.reading.windows import Window, make_rate_window

WARMUP_LINES = 10

# "tobal" is the script's own spelling of 2021
_STEP = re.compile(
    r"(?:\[.{0,60}\] - )?(?:tobal|total|global) step:? (\d{1,15}), epoch: (\d+), batch: (\d+), "
    rf"loss: \S+, .*ips: ({NUMBER}) seq(?:uence)?s?/s(?:ec)?$"
)
_NAMESPACE = re.compile(r"Namespace\((.*)\)")
_COMMAND = re.compile(r"python\S{0,40} .*run_pretrain")
_OPTION = re.compile(r"--(\w+)[ =](\S+)")

SIGNATURE = re.compile(
    r"(?:\[.{0,60}\] - )?(?:tobal|total|global) step:? \d+, epoch: .*ips: \S{1,60} seq"
)
START = re.compile(r"Namespace\(.*max_predictions_per_seq=")


class _Run:
    def __init__(self) -> None:
        self._marks = Marks()
        self._parameters: Dict[str, str] = {}
        self._devices = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        step = _STEP.match(line.text)
        if step is not None:
            position = (int(step.group(1)),)
            self._marks.add(line.rank, position, 0.0, parse_number(step.group(4)))
            return
        namespace = _NAMESPACE.match(line.text)
        if namespace is not None:
            self._parameters.update(parse_namespace(namespace.group(1)))
            return
        command = _COMMAND.match(line.text)
        if command is not None and "--max_steps " in line.text and not line.is_last_unended:
            self._add_command(line.text)
            is_launched = "paddle.distributed.launch" in line.text
            self._devices = 0 if is_launched else 1

    def _add_command(self, text: str) -> None:
        """What the launcher's command says that the run's own arguments did not."""
        for name, value in _OPTION.findall(text):
            self._parameters.setdefault(name, value)

    def finish(self) -> Reading:
        gpus = self._parameters.get("gpus", "")
        if gpus and "ips" not in self._parameters:
            self._devices = gpus.count(",") + 1
        return Reading(
            identity=Identity(
                framework="paddle",
                model="bert",
                devices=self._devices,
                batch_size_per_device=read_count(self._parameters, "batch_size"),
                precision=self._name_precision(),
            ),
            windows=self._make_windows(),
            series={"rates_per_device": self._marks.list_values()},
            problem=self._find_problem(),
        )

    def _make_windows(self) -> Tuple[Window, ...]:
        return tuple(
            make_rate_window(rank, rates, is_per_device=True)
            for rank, marks in sorted(self._marks.by_rank.items())
            for rates in [_list_warm_rates(marks)]
            if rates
        )

    def _name_precision(self) -> str:
        if "use_amp" not in self._parameters:
            return ""
        is_half = is_true(self._parameters, "use_amp") or is_true(self._parameters, "use_pure_fp16")
        return "amp-fp16" if is_half else "fp32"

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        steps = read_count(self._parameters, "max_steps")
        found = min(marks[-1].position[0] for marks in self._marks.by_rank.values())
        if not steps:
            return f"the log does not say how many steps it should have; it has {found}"
        if found + max(read_count(self._parameters, "logging_steps"), 1) <= steps:
            return f"the log has {found} of {steps} steps"
        return ""


def _list_warm_rates(marks: List[Mark]) -> List[Tuple[int, float]]:
    first = WARMUP_LINES if len(marks) > WARMUP_LINES else 1
    return [
        (mark.position[0] - before.position[0], mark.value)
        for before, mark in zip(marks[first - 1 :], marks[first:])
    ]


def start_run() -> _Run:
    return _Run()


def _average_from(start: int) -> Callable[[Reading, Identity], float]:
    return lambda reading, identity: (
        identity.devices * average(take_values(reading.series["rates_per_device"], start, None))
    )


RULES = (
    Rule("devices x arithmetic mean of values[10:]", _average_from(10)),
    Rule("devices x arithmetic mean of values[9:]", _average_from(9)),
)
