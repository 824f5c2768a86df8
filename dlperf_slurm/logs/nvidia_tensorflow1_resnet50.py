"""Logs of NVIDIA DeepLearningExamples' TensorFlow 1 ResNet-50 v1.5 (`total_ips` of DLLogger).

After its own `warmup_steps` rank 0 prints, every `display_every` steps, the job's rate and the
time. Throughput is taken from the times, from the first line on; nothing more is left out. The
scripts of 2020 call the rate `imgs_per_sec`.

A run came to its end when it printed its mean, `train_throughput`, and had come to the last step
that it announced.
"""

import re
from typing import Dict, List, Set

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, parse_dll
from dlperf_slurm.logs.reading.figures import average, take_values, time_steps
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Marks, make_time_windows
from dlperf_slurm.logs.reading.parameters import is_true, read_count

_STEP = re.compile(r"\((\d{1,9}), (\d{1,15})\) |(?:Epoch: (\d{1,9}) )?Iteration: (\d{1,15}) ")
_DEVICES = re.compile(r"Num GPUs (\d+)$")

START = re.compile(rf"{DLL}PARAMETER arch : \S+  mode : ")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:{_STEP.pattern})(?:.* )?(?:total_ips|imgs_per_sec) : "
    rf"|{DLL}\(\) train_throughput : "
)


class _Run:
    def __init__(self) -> None:
        self._marks = Marks()
        self._parameters: Dict[str, str] = {}
        self._final_rates: List[float] = []
        self._ended_ranks: Set[int] = set()
        self._devices = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        record = parse_dll(line)
        if record is not None:
            self._add_record(line.rank, record)
            return
        devices = _DEVICES.match(line.text)
        if devices is not None:
            self._devices = int(devices.group(1)[:9])

    def _add_record(self, rank: int, record: DllRecord) -> None:
        self._parameters.update(record.list_parameters())
        step = _STEP.match(record.body)
        if step is not None:
            rate = record.find_metric("total_ips") or record.find_metric("imgs_per_sec")
            if rate is not None:
                epoch = step.group(1) or step.group(3) or "0"
                position = (int(epoch), int(step.group(2) or step.group(4)))
                self._marks.add(rank, position, record.time, rate)
            return
        rate = record.find_metric("train_throughput")
        if rate is not None:
            self._final_rates.append(rate)
            self._ended_ranks.add(rank)

    def finish(self) -> Reading:
        marks = self._marks.by_rank[min(self._marks.by_rank)] if self._marks else []
        return Reading(
            identity=Identity(
                framework="tensorflow1",
                model="resnet50",
                devices=self._devices,
                batch_size_per_device=read_count(self._parameters, "batch_size"),
                precision=self._name_precision(),
            ),
            windows=tuple(
                window
                for rank, marks in sorted(self._marks.by_rank.items())
                for window in make_time_windows(rank, marks)
            ),
            series={
                "rates": self._marks.list_values(),
                "final_rates": tuple(self._final_rates[:1]),
                "times": tuple(mark.time for mark in marks),
            },
            problem=self._find_problem(),
        )

    def _name_precision(self) -> str:
        if "amp" not in self._parameters:
            return ""
        return "amp-fp16" if is_true(self._parameters, "amp") else "fp32"

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        missing = self._marks.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before the run does: train_throughput is missing{missing}"
        is_counted = self._parameters.get("iter_unit") == "batch"
        steps = read_count(self._parameters, "num_iter") if is_counted else 0
        found = max(marks[-1].position[-1] for marks in self._marks.by_rank.values())
        if found + max(read_count(self._parameters, "display_every"), 1) < steps:
            return f"the log has {found} of {steps} steps"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_25(reading: Reading, identity: Identity) -> float:
    return average(take_values(reading.series["rates"], 5, 30))


def _take_final(reading: Reading, identity: Identity) -> float:
    return take_values(reading.series["final_rates"], 0, 1)[0]


def _average_100(reading: Reading, identity: Identity) -> float:
    rates = take_values(reading.series["rates"], 0, 100)
    return round(average([round(rate, 2) for rate in rates]), 2)


def _time_99_steps(reading: Reading, identity: Identity) -> float:
    return round(time_steps(reading.series["times"], 1, 100, identity.global_batch_size), 2)


RULES = (
    Rule("train_throughput", _take_final, lambda identity: identity.devices > 8),
    Rule("arithmetic mean of values[5:30]", _average_25),
    Rule("DLPerf: arithmetic mean of values[0:100]", _average_100),
    Rule("DLPerf: 99 steps over their time, from the first line", _time_99_steps),
)
