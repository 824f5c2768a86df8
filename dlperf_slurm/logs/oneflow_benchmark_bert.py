"""Logs of OneFlow-Benchmark's BERT run_pretraining.py (DLPerf's), and of OneFlow's models since.

The master prints the script's arguments ("name = value"), and every `loss_print_every_n_iter` steps
the job's rate since the last such line and, since August 2020, the time in seconds. Steps count
from 0. Throughput is taken from the times, or from the rates where there are none. Left out as
warm-up is the first interval: no line has the time of its beginning, and it holds the set-up.

A run came to its end when it has the last line that its arguments announce (`iter_num`).
"""

import re
from typing import Dict, List, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks, make_time_windows
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.patterns import COUNT
from dlperf_slurm.logs.reading.windows import Window, make_rate_window

_STEP = re.compile(
    rf"step: ({COUNT}), total_loss: \S+, mlm_loss: \S+, nsp_loss: \S+, throughput: ({NUMBER})"
    r"(?:, epoch: \d+)?(?: (\d{9,11}\.\d{1,9}))?\s*$"
)
_ARGUMENT = re.compile(r"(\w+) = (.*\S)\s*$")
_BANNER = re.compile(r"Running \w+: num_gpu_per_node = \d+, num_nodes = \d+\.")

SIGNATURE = re.compile(r"step: \d+, total_loss: \S+, mlm_loss: \S+, nsp_loss: \S+, throughput: ")
START = _BANNER


class _Run:
    def __init__(self) -> None:
        self._intervals = Marks()
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._intervals)

    def add(self, line: Line) -> None:
        step = None if line.is_last_unended else _STEP.match(line.text)
        argument = _ARGUMENT.match(line.text)
        if step is not None:
            time, rate = float(step.group(3) or 0), parse_number(step.group(2))
            self._intervals.add(line.rank, (int(step.group(1)),), time, rate)
        elif argument is not None and not self._intervals:
            self._parameters[argument.group(1)] = argument.group(2)

    def finish(self) -> Reading:
        marks = self._intervals.by_rank.get(min(self._intervals.by_rank, default=-1), [])
        windows = _make_windows(marks)
        return Reading(
            identity=self._make_identity(),
            windows=windows,
            series={
                "rates": tuple(mark.value for mark in marks),
                "steps": tuple(float(mark.position[0]) for mark in marks),
                "times": tuple(mark.time for mark in marks),
            },
            problem=self._find_problem(marks),
        )

    def _make_identity(self) -> Identity:
        nodes = read_count(self._parameters, "num_nodes")
        is_base = read_count(self._parameters, "num_hidden_layers") == 12
        precision = "amp-fp16" if is_true(self._parameters, "use_fp16") else "fp32"
        return Identity(
            framework="oneflow",
            model="bert" if is_base else "",
            nodes=nodes,
            devices=nodes * read_count(self._parameters, "gpu_num_per_node"),
            batch_size_per_device=read_count(self._parameters, "batch_size_per_device"),
            precision=precision if "use_fp16" in self._parameters else "",
        )

    def _find_problem(self, marks: List[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._intervals.problem:
            return self._intervals.problem
        announced = read_count(self._parameters, "iter_num")
        if not announced:
            return "the log does not tell how many steps there were to be (iter_num)"
        interval = read_count(self._parameters, "loss_print_every_n_iter") or 1
        last = announced // interval * interval - 1
        if marks[-1].position[0] < last:
            return f"the log ends at step {marks[-1].position[0]}, the last line is of step {last}"
        return ""


def _make_windows(marks: List[Mark]) -> Tuple[Window, ...]:
    if marks and all(mark.time > 0 for mark in marks):
        return make_time_windows(-1, marks)
    rates = [
        (after.position[0] - before.position[0], after.value)
        for before, after in zip(marks, marks[1:])
    ]
    return (make_rate_window(-1, rates),) if rates else ()


def start_run() -> _Run:
    return _Run()


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    times = dict(zip(reading.series["steps"], reading.series["times"]))
    seconds = times.get(119.0, 0.0) - times.get(19.0, 0.0)
    if seconds <= 0 or 0.0 in (times.get(19.0, 0.0), times.get(119.0, 0.0)):
        raise RuleError("takes the times of steps 19 and 119, the log lacks one")
    return round(identity.global_batch_size * 100 / seconds, 2)


def _average_but_first(reading: Reading, identity: Identity) -> float:
    return round(average(take_values(reading.series["rates"], 1, None)), 3)


RULES = (
    Rule("DLPerf: global batch size x 100 over the time from step 19 to step 119", _time_100_steps),
    Rule("OneFlow-Benchmark: mean of the printed rates but the first", _average_but_first),
)
