"""Logs of NVIDIA DeepLearningExamples' PyTorch RN50v1.5 (`train.total_ips` of DLLogger).

Rank 0 prints every `print_freq` iterations the job's rate and the time. Throughput is taken from
the times. Left out as warm-up are the first 8 lines of the log, as its publisher does; a log
without so many has its first interval left out. The other rates, `train.compute_ips` without the
wait for data and those of `val.`, are not used.

A run came to its end when the last epoch that it announced has its record and it printed its
summary.
"""

import re
from typing import Callable, Dict, List, Optional, Set

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, parse_dll
from dlperf_slurm.logs.reading.figures import average, take_values, time_steps
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Marks, make_time_windows
from dlperf_slurm.logs.reading.parameters import is_true, read_count

WARMUP_MARKS = 8

_STEP = re.compile(r"Epoch: (\d{1,9}) Iteration: (\d{1,15}) ")
_EPOCH = re.compile(r"Epoch: (\d{1,9}) ")
_EPOCHS_TO_RUN = re.compile(r"RUNNING EPOCHS FROM (\d{1,6}) TO (\d{1,6})")

START = re.compile(rf"{DLL}PARAMETER data : .* data_backend : ")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:Epoch: \d+ Iteration: \d+|Summary:) .*train\.total_ips : "
)


class _Run:
    def __init__(self) -> None:
        self._marks = Marks()
        self._parameters: Dict[str, str] = {}
        self._ended_ranks: Set[int] = set()
        self._ended_epochs: Set[int] = set()
        self._summary_rates: List[float] = []
        self._epochs_to_run: Optional[range] = None

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        record = parse_dll(line)
        if record is not None:
            self._add_record(line.rank, record)
            return
        epochs = _EPOCHS_TO_RUN.match(line.text)
        if epochs is not None:
            self._epochs_to_run = range(int(epochs.group(1)), int(epochs.group(2)))

    def _add_record(self, rank: int, record: DllRecord) -> None:
        self._parameters.update(record.list_parameters())
        rate = record.find_metric("train.total_ips")
        if rate is None:
            return
        step, epoch = _STEP.match(record.body), _EPOCH.match(record.body)
        if step is not None:
            position = (int(step.group(1)), int(step.group(2)))
            self._marks.add(rank, position, record.time, rate)
        elif epoch is not None:
            self._ended_epochs.add(int(epoch.group(1)))
        elif record.body.startswith("Summary: "):
            self._ended_ranks.add(rank)
            self._summary_rates.append(rate)

    def finish(self) -> Reading:
        marks = self._marks.by_rank[min(self._marks.by_rank)] if self._marks else []
        return Reading(
            identity=Identity(
                framework="pytorch",
                model="resnet50",
                devices=read_count(self._parameters, "world_size"),
                batch_size_per_device=read_count(self._parameters, "batch_size"),
                precision=self._name_precision(),
            ),
            windows=tuple(
                window
                for rank, marks in sorted(self._marks.by_rank.items())
                for window in make_time_windows(
                    rank, marks, WARMUP_MARKS if len(marks) > WARMUP_MARKS else 0
                )
            ),
            series={
                "rates": self._marks.list_values(),
                "summary_rates": tuple(self._summary_rates[:1]),
                "times": tuple(mark.time for mark in marks if mark.position[1] > 5),
            },
            problem=self._find_problem(),
        )

    def _name_precision(self) -> str:
        if "amp" not in self._parameters:
            return ""
        is_half = is_true(self._parameters, "amp") or is_true(self._parameters, "fp16")
        return "amp-fp16" if is_half else "fp32"

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed iteration"
        if self._marks.problem:
            return self._marks.problem
        missing = self._marks.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before the run does: the summary is missing{missing}"
        unended = set(self._epochs_to_run or ()) - self._ended_epochs
        if unended:
            return f"the log has no end of epoch {min(unended)}"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_from(start: int) -> Callable[[Reading, Identity], float]:
    return lambda reading, identity: average(take_values(reading.series["rates"], start, None))


def _take_summary(reading: Reading, identity: Identity) -> float:
    return take_values(reading.series["summary_rates"], 0, 1)[0]


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    return round(time_steps(reading.series["times"], 20, 120, identity.global_batch_size), 2)


RULES = (
    Rule("arithmetic mean of values[9:]", _average_from(9), lambda identity: identity.devices == 1),
    Rule("summary", _take_summary, lambda identity: identity.devices > 8),
    Rule("arithmetic mean of values[8:]", _average_from(8)),
    Rule(
        "DLPerf: 100 steps over their time, from the 20th iteration after 5",
        _time_100_steps,
    ),
)
