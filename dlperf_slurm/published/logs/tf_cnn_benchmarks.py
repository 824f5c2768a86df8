"""Logs of TensorFlow's tf_cnn_benchmarks: one process, parameter servers, or Horovod.

Every worker prints its header, its own running mean rate ("images/sec: ... +/- ...", of one worker)
and last "total images/sec" of the whole job: batches of all workers over the time of this worker's
loop. Throughput is the lowest total. It excludes the warm-up batches, which run before "Done warm
up"; nothing else is left out.

A run is complete if each worker that began printed its total, and the last of the planned batches
that are printed is there.
"""

import re
from typing import Dict, List

from dlperf_slurm.contract.axes import FOLDER, ON_DEVICE
from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.patterns import COUNT, NUMBER, parse_number, read_count
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.settings import WORDS
from dlperf_slurm.logs.timed_run import find_missing_steps
from dlperf_slurm.logs.windows import Window

_STEP = re.compile(rf"({COUNT})\s+images/sec: {NUMBER}(?:\s|$)")
_TOTAL = re.compile(rf"total images/sec: ({NUMBER})$")
_HEADER = re.compile(
    r"(TensorFlow|Model|Dataset|Mode|Batch size|Num batches|Variables|Sync): +(\S.*)"
    rf"|({COUNT})(?:\.0)? per device$"
)
_PARAMETER_SERVER = re.compile(r"Running parameter server \d+$")

SIGNATURE = re.compile(rf"\d+\s+images/sec: {NUMBER} \+/- |{_TOTAL.pattern}")
START = re.compile(r"(?:TensorFlow|Model): +\S")


class _Run:
    """The state of parsing one run: header, first steps and totals of its workers."""

    def __init__(self) -> None:
        self._header: Dict[str, str] = {}
        self._header_count = 0
        self._first_step_lines: List[str] = []
        self._last_step = self._interval = 0
        self._totals: Dict[int, List[float]] = {}
        self._is_parameter_server = False

    def is_under_way(self, rank: int) -> bool:
        """Return whether the rank (-1: any) has printed its total; a header then begins a new run.

        Headers of other workers may come between a worker's steps.
        """
        return bool(self._totals) if rank < 0 else rank in self._totals

    def add(self, line: LogLine) -> None:
        text = line.text.rstrip()
        found, total, header = _STEP.match(text), _TOTAL.match(text), _HEADER.match(text)
        if found is not None:
            step = int(found.group(1))
            self._interval = max(self._interval, step - (self._last_step or step))
            self._last_step = max(self._last_step, step)
            if step == 1:
                self._first_step_lines.append(text)
        elif total is not None and not line.is_last_unended:
            self._totals.setdefault(line.rank, []).append(parse_number(total.group(1)))
        elif header is not None:
            name, value = header.group(1) or "per device", header.group(2) or header.group(3)
            self._header_count += name == "Model"
            self._header.setdefault(name, value.replace(" global", ""))
        elif _PARAMETER_SERVER.match(text):
            self._is_parameter_server = True

    def finish(self) -> ParsedRun:
        steps = read_count(self._header, "Num batches") or self._last_step
        totals = [total for rank in sorted(self._totals) for total in self._totals[rank]]
        return ParsedRun(
            identity=self._make_identity(),
            windows=tuple(
                Window(rank=rank, steps=steps, samples_per_s=min(self._totals[rank]))
                for rank in sorted(self._totals)
            ),
            series={"totals": tuple(totals)},
            problem=self._find_fault() or self._find_problem(len(totals)),
            is_incomplete=not self._find_fault(),
        )

    def _make_identity(self) -> Identity:
        per_device = read_count(self._header, "per device")
        global_batch_size = read_count(self._header, "Batch size")
        version = self._header.get("TensorFlow", "")
        data = self._header.get("Dataset", "")
        is_resnet50 = self._header.get("Model", "") in ("resnet50", "resnet50_v1.5")
        return Identity(
            framework="tensorflow2" if version.startswith("2.") else "tensorflow1",
            model="resnet50" if is_resnet50 else self._header.get("Model", ""),
            devices=global_batch_size // per_device if per_device else 0,
            batch_size_per_device=per_device,
            versions={"tensorflow": version} if version else {},
            mode=WORDS["mode"].get(self._header.get("Mode", ""), ""),
            data=data and (ON_DEVICE if data.endswith("(synthetic)") else FOLDER),
            gradient_sync=WORDS["gradient_sync"].get(self._header.get("Variables", ""), ""),
        )

    def _find_fault(self) -> str:
        """Return a message if the log is of a parameter server or of several jobs, or ""."""
        if self._is_parameter_server and not self._last_step:
            return "the log is of a parameter server; the logs of the workers have the results"
        is_one_job = self._header.get("Variables", "horovod") == "horovod" or "Sync" in self._header
        if len(set(self._first_step_lines)) > 1 and not is_one_job:
            return f"{self._count_workers()} independent benchmarks ran at the same time"
        return ""

    def _count_workers(self) -> int:
        """Return the number of workers by their headers and first steps, since some may be lost."""
        return max(self._header_count, len(self._first_step_lines))

    def _find_problem(self, total_count: int) -> str:
        """Return why the log is incomplete, or "": totals of workers, or their last steps, lack."""
        workers = self._count_workers()
        if total_count == 0:
            return f"the log ends after step {self._last_step}: 'total images/sec' is missing"
        if total_count < workers:
            return f"only {total_count} of {workers} workers print 'total images/sec'"
        is_one_line = self._interval == 0 < self._last_step
        planned = 0 if is_one_line else read_count(self._header, "Num batches")
        return find_missing_steps(self._last_step, planned, self._interval)


start_run = _Run


RULES = (
    PublisherRule(
        "tf_cnn_benchmarks: 'total images/sec' of the first worker",
        average_lines(0, 1, series="totals"),
    ),
)
