"""Logs of TensorFlow 2's official image classification (`TimeHistory` of classifier_trainer).

Every `log_steps` steps the chief prints the job's rate since the last such line. Throughput is
taken from the lines' times. Left out as warm-up is the first line's interval, of whose beginning
no line has the time, and in which graphs are built.

A run came to its end when its "Run stats" are whole, and its last line is that of the last step
that was announced, which may be in none where steps are no multiple of `log_steps`.
"""

import re
from typing import Dict, Optional, Set

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import average, take_values, time_steps
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Marks, make_time_windows
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.times import GLOG_TIME, parse_time

_LINE = re.compile(
    rf"({GLOG_TIME}) .{{0,80}}\] (?:TimeHistory: {NUMBER} seconds, ({NUMBER}) examples/second "
    r"between steps \d+ and (\d+)"
    rf"|BenchmarkMetric: \{{'global step': ?(\d+), 'time_taken': {NUMBER}, ?"
    rf"'examples_per_second': ({NUMBER})\}})"
)
_FINAL_PARAMETERS = re.compile(rf"{GLOG_TIME} .{{0,80}}\] Final model parameters: ")
_SECTION = re.compile(r"\{?'(runtime|train|train_dataset|validation_dataset|model|evaluation)': \{")
_SETTING = re.compile(r"'(\w+)': ('[^']*'|[\w.+-]+)")
_STATS_BEGIN = re.compile(rf"{GLOG_TIME} .{{0,80}}\] Run stats:")

START = re.compile(rf"{GLOG_TIME} \d+ classifier_trainer\.py:\d+\] Base params: ")
SIGNATURE = re.compile(
    rf"{START.pattern}|(?:{GLOG_TIME} .{{0,80}}\] |INFO:tensorflow:)"
    r"(?:TimeHistory: .* examples/second between steps |BenchmarkMetric: \{'global step')"
)


class _Run:
    def __init__(self) -> None:
        self._marks = Marks()
        self._settings: Dict[str, Dict[str, str]] = {}
        self._section: Optional[str] = None
        self._is_resnet = False
        self._ended_ranks: Set[int] = set()

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        text = line.text
        if text.startswith(("{'", "'")):
            self._add_settings(text)
            if (
                text.startswith("{")
                and text.rstrip().endswith("}")
                and "'train_finish_time'" in text
            ):
                self._ended_ranks.add(line.rank)
        elif _FINAL_PARAMETERS.match(text):
            self._settings, self._section = {}, "evaluation"
        elif text.startswith(("I", "W", "E")):
            self._section = None
            self._add_mark(line)

    def _add_mark(self, line: Line) -> None:
        match = _LINE.match(line.text)
        if match is not None:
            _, rate, step, old_step, old_rate = match.groups()
            position = (int((step or old_step)[:15]),)
            time = parse_time(match.group(1))
            self._marks.add(line.rank, position, time, parse_number(rate or old_rate))

    def _add_settings(self, text: str) -> None:
        """Of the parameters that are printed in many lines, one section after the other."""
        if self._section is None:
            return
        section = _SECTION.match(text)
        if section is not None:
            self._section = section.group(1)
        if self._section == "model" and text.startswith("'name': 'resnet'"):
            self._is_resnet = True
        settings = self._settings.setdefault(self._section, {})
        for name, value in _SETTING.findall(text):
            settings.setdefault(name, value.strip("'"))

    def finish(self) -> Reading:
        ranks = sorted(self._marks.by_rank)
        marks = self._marks.by_rank[ranks[0]] if ranks else []
        return Reading(
            identity=self._make_identity(),
            windows=tuple(
                window
                for rank in ranks
                for window in make_time_windows(rank, self._marks.by_rank[rank])
            ),
            series={
                "rates": tuple(mark.value for mark in marks),
                "times": tuple(mark.time for mark in marks),
                "steps": tuple(float(mark.position[0]) for mark in marks),
            },
            problem=self._find_problem(),
        )

    def _make_identity(self) -> Identity:
        runtime = self._settings.get("runtime", {})
        dataset = self._settings.get("train_dataset", {})
        hosts = runtime.get("worker_hosts", "None")
        nodes = 1 if hosts == "None" else hosts.count(",") + 1
        devices = nodes * read_count(runtime, "num_gpus")
        batch_size = read_count(dataset, "batch_size")
        if devices and not is_true(dataset, "use_per_replica_batch_size"):
            batch_size = batch_size // devices if batch_size % devices == 0 else 0
        precision = {"float32": "fp32", "float16": "amp-fp16", "bfloat16": "amp-bf16"}
        return Identity(
            framework="tensorflow2",
            model="resnet50" if self._is_resnet else "",
            nodes=nodes if runtime else 0,
            devices=devices,
            batch_size_per_device=batch_size,
            precision=precision.get(dataset.get("dtype", ""), ""),
        )

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        missing = self._marks.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before the run does: its run stats are missing{missing}"
        train = self._settings.get("train", {})
        steps = read_count(train, "steps") * max(read_count(train, "epochs"), 1)
        found = max(marks[-1].position[0] for marks in self._marks.by_rank.values())
        if found + max(read_count(train, "log_steps"), 1) <= steps:
            return f"the log has {found} of {steps} steps"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_5(reading: Reading, identity: Identity) -> float:
    return round(average(take_values(reading.series["rates"], 1, 6)), 2)


def _time_5_intervals(reading: Reading, identity: Identity) -> float:
    steps = take_values(reading.series["steps"], 0, 6)
    samples = round(steps[5] - steps[0]) // 5 * identity.global_batch_size
    return round(time_steps(reading.series["times"], 1, 6, samples), 2)


RULES = (
    Rule("arithmetic mean of values[1:6], 2 decimals", _average_5),
    Rule("DLPerf: 5 intervals over their time, from the first line, 2 decimals", _time_5_intervals),
)
