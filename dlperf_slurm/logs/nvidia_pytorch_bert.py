"""Logs of NVIDIA DeepLearningExamples' PyTorch BERT pretraining (DLLogger).

The time of every `log_freq`-th optimizer step stands in the log. Throughput is taken from these
times. Left out as warm-up is what comes before the first of them: it has no time of its
beginning, and compiles. The publisher's figure is the script's own, which counts that in; it is
also ours where the arguments are not in the log, which tell how many micro-batches a step has.
Updates that loss scaling skips are steps here, and no samples in the script's own figure.

A run came to its end when it printed `training_sequences_per_second`, and made the steps that its
arguments announce.
"""

import re
from typing import Dict, List, Set, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, parse_dll
from dlperf_slurm.logs.reading.figures import take_values, time_steps
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Marks, make_time_windows
from dlperf_slurm.logs.reading.parameters import is_true, parse_namespace, read_count
from dlperf_slurm.logs.reading.windows import Window, make_rate_window

_STEP = re.compile(r"Training Epoch: (\d{1,9}) Training Iteration: (\d{1,15}) ")
_CONFIG = re.compile(r"PARAMETER Config : \[[\"']Namespace\((.*)\)[\"']\]")
_DEVICE = re.compile(r"device: cuda:(\d+) n_gpu: \d+, distributed training: ")

START = re.compile(rf"{DLL}PARAMETER Config : \S{{0,4}}Namespace\(.*phase2=")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:Training Epoch: \d+ Training Iteration: \d+ "
    r"| ?e2e_train_time : .*training_sequences_per_second : )"
)


class _Run:
    def __init__(self) -> None:
        self._marks = Marks(may_repeat=True)
        self._parameters: Dict[str, str] = {}
        self._final_rates: List[float] = []
        self._ended_ranks: Set[int] = set()
        self._devices: Set[Tuple[int, str]] = set()
        self._raw_seconds = 0.0
        self._steps = 0
        self._skipped = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        record = parse_dll(line)
        if record is not None:
            self._add_record(line.rank, record)
        elif line.text.startswith("device: cuda:"):
            self._devices |= {(line.rank, index) for index in _DEVICE.findall(line.text)}

    def _add_record(self, rank: int, record: DllRecord) -> None:
        config = _CONFIG.match(record.body)
        if config is not None:
            self._parameters.update(parse_namespace(config.group(1)))
            return
        self._parameters.update(record.list_parameters())
        step = _STEP.match(record.body)
        rate = record.find_metric("training_sequences_per_second")
        if step is not None:
            self._steps = int(step.group(2))
            self._skipped = int(record.find_metric("skipped_steps") or self._skipped)
            self._marks.add(rank, (self._steps + self._skipped,), record.time, 0.0)
        elif rate is not None:
            self._final_rates.append(rate)
            self._raw_seconds = record.find_metric("raw_train_time") or 0.0
            self._ended_ranks.add(rank)

    def finish(self) -> Reading:
        marks = self._marks.by_rank[min(self._marks.by_rank)] if self._marks else []
        return Reading(
            identity=self._make_identity(),
            windows=self._make_windows(),
            series={
                "final_rates": tuple(self._final_rates[:1]),
                "times": tuple(mark.time for mark in marks if mark.position[0] > 5),
            },
            problem=self._find_problem(),
        )

    def _make_windows(self) -> Tuple[Window, ...]:
        micro_batches = read_count(self._parameters, "gradient_accumulation_steps")
        if not micro_batches:
            rates = [(1, rate) for rate in self._final_rates]
            return (make_rate_window(-1, rates),) if rates else ()
        return tuple(
            window
            for rank, marks in sorted(self._marks.by_rank.items())
            for window in make_time_windows(rank, marks, 0, micro_batches)
        )

    def _make_identity(self) -> Identity:
        precision = ""
        if "fp16" in self._parameters or "amp" in self._parameters:
            is_half = is_true(self._parameters, "fp16") or is_true(self._parameters, "amp")
            precision = "amp-fp16" if is_half else "fp32"
        batch_size = read_count(self._parameters, "batch_size_per_gpu") or read_count(
            self._parameters, "train_batch_size"
        )
        return Identity(
            framework="pytorch",
            model="bert",
            devices=self._count_devices(batch_size) or len(self._devices),
            batch_size_per_device=batch_size,
            precision=precision,
        )

    def _count_devices(self, batch_size: int) -> int:
        """How many there must have been for the rate that the script computed; 0 if unknown.

        Of several nodes' processes, which name their devices alike, not all lines need be there.
        """
        samples = (
            (self._steps + self._skipped)
            * batch_size
            * read_count(self._parameters, "gradient_accumulation_steps")
        )
        if not self._raw_seconds or not samples:
            return 0
        return round(self._final_rates[0] * self._raw_seconds / samples)

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        missing = self._marks.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before the run does: its last line is missing{missing}"
        steps = read_count(self._parameters, "steps_this_run") or read_count(
            self._parameters, "max_steps"
        )
        if steps and self._steps < steps:
            return f"the log has {self._steps} of {steps} steps"
        return ""


def start_run() -> _Run:
    return _Run()


def _take_final(reading: Reading, identity: Identity) -> float:
    return take_values(reading.series["final_rates"], 0, 1)[0]


def _time_90_steps(reading: Reading, identity: Identity) -> float:
    return round(time_steps(reading.series["times"], 20, 110, identity.global_batch_size), 2)


RULES = (
    Rule("training_sequences_per_second", _take_final),
    Rule("DLPerf: 90 steps over their time, from the 20th iteration after 5", _time_90_steps),
)
