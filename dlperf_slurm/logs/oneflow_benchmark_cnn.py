"""Logs of OneFlow-Benchmark's of_cnn_train_val.py (ResNet-50 of DLPerf).

The master prints the script's arguments ("name = value"), and every `loss_print_every_n_iter`
iterations the job's rate since the last such line and, since August 2020, the time in seconds.
"validation:" lines are of other work. Throughput is taken from the times within an epoch, or from
the rates where there are none. Left out as warm-up is the first interval of every epoch: no line
has the time of its beginning, and that of the first holds the set-up.

A run came to its end when it has all epochs that its arguments announce, each to its last line.
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

_TRAIN = re.compile(
    rf"train: epoch ({COUNT}), iter ({COUNT}), loss: \S+, top_1: \S+, top_k: \S+, "
    rf"samples/s: ({NUMBER})"
    r"(?: (\d{9,11}\.\d+))?\s*$"
)
_ARGUMENT = re.compile(r"(\w+) = (.*\S)\s*$")
_BANNER = re.compile(r"Running \w+: num_gpu_per_node = \d+, num_nodes = \d+\.")

SIGNATURE = re.compile(r"train: epoch \d+, iter \d+, loss: \S+, top_1: \S+, top_k: \S+, samples/s:")
START = _BANNER


class _Run:
    def __init__(self) -> None:
        self._intervals = Marks()
        self._parameters: Dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._intervals)

    def add(self, line: Line) -> None:
        train = None if line.is_last_unended else _TRAIN.match(line.text)
        if train is not None:
            position = (int(train.group(1)), int(train.group(2)))
            rate = parse_number(train.group(3))
            self._intervals.add(line.rank, position, float(train.group(4) or 0), rate)
            return
        argument = _ARGUMENT.match(line.text)
        if argument is not None and not self._intervals:
            self._parameters[argument.group(1)] = argument.group(2)

    def finish(self) -> Reading:
        marks = self._intervals.by_rank.get(min(self._intervals.by_rank, default=-1), [])
        windows = _make_windows(marks)
        return Reading(
            identity=self._make_identity(),
            windows=windows,
            series={
                "rates": tuple(mark.value for mark in marks),
                "iterations": tuple(float(mark.position[1]) for mark in marks),
                "times": tuple(mark.time for mark in marks),
            },
            problem=self._find_problem(marks),
        )

    def _make_identity(self) -> Identity:
        nodes = read_count(self._parameters, "num_nodes")
        model = self._parameters.get("model", "")
        fp16 = self._parameters.get("use_fp16", "")
        return Identity(
            framework="oneflow",
            model=model,
            nodes=nodes,
            devices=nodes * read_count(self._parameters, "gpu_num_per_node"),
            batch_size_per_device=read_count(self._parameters, "batch_size_per_device"),
            precision=("amp-fp16" if is_true(self._parameters, "use_fp16") else "fp32")
            if fp16
            else "",
        )

    def _find_problem(self, marks: List[Mark]) -> str:
        if not marks:
            return "the log holds no timed step"
        if self._intervals.problem:
            return self._intervals.problem
        per_epoch, epochs = self._count_lines_per_epoch(), self._count_epochs()
        if not per_epoch or not epochs:
            return "the log does not tell how many iterations there were to be (its arguments)"
        found = [mark.position[0] for mark in marks]
        epoch, iteration = marks[-1].position
        if len(set(found)) < epochs or found.count(epoch) < per_epoch:
            return f"the log ends in epoch {epoch} at iteration {iteration}, before the run does"
        return ""

    def _count_epochs(self) -> int:
        parameters = self._parameters
        return read_count(parameters, "num_epochs") or read_count(parameters, "num_epoch")

    def _count_lines_per_epoch(self) -> int:
        """Images of an epoch over those of a line; 0 if the log does not tell."""
        identity = self._make_identity()
        per_line = identity.global_batch_size * (
            read_count(self._parameters, "loss_print_every_n_iter") or 1
        )
        images = read_count(self._parameters, "num_examples")
        # the script rounds the iterations of an epoch up
        iterations = -(-images // identity.global_batch_size) if per_line else 0
        return iterations * identity.global_batch_size // per_line if per_line else 0


def _make_windows(marks: List[Mark]) -> Tuple[Window, ...]:
    if marks and all(mark.time > 0 for mark in marks):
        return make_time_windows(-1, marks)
    rates = [
        (after.position[1] - before.position[1], after.value)
        for before, after in zip(marks, marks[1:])
        if before.position[0] == after.position[0]
    ]
    return (make_rate_window(-1, rates),) if rates else ()


def start_run() -> _Run:
    return _Run()


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    times = dict(zip(reading.series["iterations"], reading.series["times"]))
    seconds = times.get(120.0, 0.0) - times.get(20.0, 0.0)
    if seconds <= 0 or 0.0 in (times.get(20.0, 0.0), times.get(120.0, 0.0)):
        raise RuleError("takes the times of iterations 20 and 120, the log lacks one")
    return round(identity.global_batch_size * 100 / seconds, 2)


def _average_but_first(reading: Reading, identity: Identity) -> float:
    return round(average(take_values(reading.series["rates"], 1, None)), 3)


RULES = (
    Rule("DLPerf: global batch size x 100 over the time from step 20 to step 120", _time_100_steps),
    Rule("OneFlow-Benchmark: mean of the printed rates but the first", _average_but_first),
)
