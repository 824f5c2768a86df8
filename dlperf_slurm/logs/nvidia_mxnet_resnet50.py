"""Logs of NVIDIA DeepLearningExamples' MXNet RN50v1.5, of 2020 (Speed lines) and of DLLogger.

Every `disp_batches` steps a rank prints the job's rate since the last such line; since DLLogger
only rank 0 does. Throughput is taken from the times of lines, from where an epoch starts to its
record, or to its last step if the record tells of a validation too. Left out as warm-up is the
first epoch, as the publishers do, if there are several, else its first interval, of whose beginning
no line has the time. An epoch's own rate, of which publishers take means, is that since the run
began and not the epoch's: by the times of some logs it is 5 % off.

A run came to its end when it says so ("Summary:", or "Experiment took" of 2020) and when it has
all the epochs that its parameters announce, each to the same step.
"""

import re
from typing import Dict, List, Set, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, parse_dll
from dlperf_slurm.logs.reading.figures import (
    average_harmonically,
    round_significantly,
    take_values,
    time_steps,
)
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks, make_time_windows
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, parse_namespace, read_count
from dlperf_slurm.logs.reading.times import DATE_TIME, parse_time

_STEP = re.compile(r"Epoch: (\d{1,9}) Iteration: (\d{1,15}) ")
_EPOCH = re.compile(r"Epoch: (\d{1,9})  ")
_SPEED = re.compile(
    rf"({DATE_TIME}):INFO: Epoch\[(\d{{1,9}})\] Batch \[\d+-(\d{{1,15}})\]\t"
    rf"Speed: ({NUMBER}) samples/sec\tLR:"
)
_ARGUMENTS = re.compile(rf"{DATE_TIME}:INFO: Start with arguments Namespace\((.*)\)")
_STARTING = re.compile(rf"({DATE_TIME}):INFO: Starting epoch (\d{{1,9}})$")
_TOOK = re.compile(rf"{DATE_TIME}:INFO: Experiment took: \S+ sec")

SIGNATURE = re.compile(
    rf"(?:{DLL}PARAMETER arch : \S+  num_layers : .*  kv_store : "
    rf"|{DLL}Epoch: \d+ Iteration: \d+  train\.loss : \S+  train\.ips : \S+ images/s "
    r"|" + _SPEED.pattern + r")"
)
START = re.compile(rf"{DLL}PARAMETER arch : |{_ARGUMENTS.pattern}")


class _Run:
    def __init__(self) -> None:
        self._intervals = Marks()
        self._epoch_rates: Dict[int, float] = {}
        self._starts: Dict[Tuple[int, int], float] = {}
        self._ends: Dict[Tuple[int, int], float] = {}
        self._parameters: Dict[str, str] = {}
        self._ended_ranks: Set[int] = set()
        self._ranks: Set[int] = set()

    @property
    def is_under_way(self) -> bool:
        return bool(self._intervals)

    def add(self, line: Line) -> None:
        self._ranks.add(line.rank)
        record = parse_dll(line)
        if record is not None:
            self._add_record(line.rank, record)
            return
        speed = _SPEED.match(line.text)
        if speed is not None:
            position = (int(speed.group(2)), int(speed.group(3)))
            rate = parse_number(speed.group(4))
            self._intervals.add(line.rank, position, parse_time(speed.group(1)), rate)
            return
        arguments, starting = _ARGUMENTS.match(line.text), _STARTING.match(line.text)
        if arguments is not None:
            self._parameters = parse_namespace(arguments.group(1))
        elif starting is not None:
            self._starts[line.rank, int(starting.group(2))] = parse_time(starting.group(1))
        elif _TOOK.match(line.text):
            self._ended_ranks.add(line.rank)

    def _add_record(self, rank: int, record: DllRecord) -> None:
        self._parameters.update(record.list_parameters())
        rate = record.find_metric("train.ips")
        if rate is None:
            return
        step, epoch = _STEP.match(record.body), _EPOCH.match(record.body)
        if step is not None:
            position = (int(step.group(1)), int(step.group(2)))
            self._intervals.add(rank, position, record.time, rate)
        elif epoch is not None and rank == min(self._intervals.by_rank, default=rank):
            self._epoch_rates[int(epoch.group(1))] = rate
            # with validation in the record its time is not that of training
            if "val." not in record.body:
                self._ends[rank, int(epoch.group(1))] = record.time
        elif record.body.startswith("Summary: "):
            self._ended_ranks.add(rank)

    def finish(self) -> Reading:
        return Reading(
            identity=self._make_identity(),
            windows=tuple(
                window
                for rank, marks in sorted(self._intervals.by_rank.items())
                for window in make_time_windows(rank, self._bound_epochs(rank, marks))
            ),
            series={
                "epoch_rates": tuple(self._epoch_rates.values()),
                "line_times": self._list_line_times(),
            },
            problem=self._find_problem(),
        )

    def _bound_epochs(self, rank: int, marks: List[Mark]) -> List[Mark]:
        """All epochs but the first, from the start of each to its record; a single one as it is."""
        bounded: List[Mark] = []
        for mark, following in zip(marks, (*marks[1:], None)):
            epoch = mark.position[0]
            if epoch == marks[0].position[0] != marks[-1].position[0]:
                continue
            if not bounded or bounded[-1].position[0] != epoch:
                start = self._starts.get((rank, epoch), mark.time)
                bounded.append(Mark((epoch, -1), min(start, mark.time), 0.0))
            if following is None or following.position[0] != epoch:
                end = self._ends.get((rank, epoch), mark.time)
                mark = mark._replace(time=max(end, mark.time))
            bounded.append(mark)
        return bounded or marks

    def _make_identity(self) -> Identity:
        devices = self._parameters.get("gpus", "").count(",") + 1
        devices = max(devices if "gpus" in self._parameters else 0, len(self._ranks - {-1}))
        batch_size = read_count(self._parameters, "batch_size")
        is_whole = devices > 0 and batch_size % devices == 0
        return Identity(
            framework="mxnet",
            model="resnet50",
            devices=devices,
            batch_size_per_device=batch_size // devices if is_whole else 0,
            precision=self._name_precision(),
        )

    def _name_precision(self) -> str:
        """With `--dtype float16` the optimizer keeps weights in float32: mixed precision too."""
        if is_true(self._parameters, "amp"):
            return "amp-fp16"
        return {"float32": "fp32", "float16": "amp-fp16"}.get(self._parameters.get("dtype", ""), "")

    def _list_line_times(self) -> Tuple[float, ...]:
        """Of all ranks' lines, where a line is a step; in the order of the log."""
        if read_count(self._parameters, "disp_batches") != 1:
            return ()
        marks = [mark for marks in self._intervals.by_rank.values() for mark in marks]
        return tuple(mark.time for mark in sorted(marks, key=lambda mark: mark.time))

    def _find_problem(self) -> str:
        if not self._intervals:
            return "the log holds no timed step"
        if self._intervals.problem:
            return self._intervals.problem
        devices = self._parameters.get("gpus", "").count(",") + 1
        absent = sorted(set(range(devices)) - set(self._intervals.by_rank))
        if len(self._intervals.by_rank) > 1 and absent:
            return f"no timed step of ranks {', '.join(map(str, absent))}"
        missing = self._intervals.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before the run does: its last line is missing{missing}"
        epochs = read_count(self._parameters, "run_epochs") or read_count(
            self._parameters, "num_epochs"
        )
        for rank, marks in self._intervals.by_rank.items():
            last_steps = {mark.position[0]: mark.position[-1] for mark in marks}
            if epochs and len(last_steps) != epochs:
                return f"rank {rank} has {len(last_steps)} of {epochs} epochs"
            if len(set(last_steps.values())) > 1:
                return f"the epochs of rank {rank} end after different steps: {last_steps}"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_epochs(reading: Reading, identity: Identity) -> float:
    rates = take_values(reading.series["epoch_rates"], 1, None)
    return round_significantly(average_harmonically(rates), 5)


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    """All ranks print all steps, and the publisher's script counts lines."""
    devices = max(identity.devices, 1)
    times = reading.series["line_times"]
    rate = time_steps(times, 20 * devices, 120 * devices, identity.batch_size_per_device)
    return round(rate, 2)


RULES = (
    Rule("harmonic mean of the epochs but the first, 5 significant digits", _average_epochs),
    Rule("DLPerf: global batch size x 100 over the time from step 20 to step 120", _time_100_steps),
)
