"""Logs of GluonNLP's BERT pretraining (scripts/bert of 0.6 to 0.10, run_pretraining.py since).

Every worker prints, without a label of its own, every `log_interval` steps its own rate in tokens,
which are counted without padding, and the time of these steps: "latency=... ms/batch" (or ms/step)
of one step, "time=" or "Time cost=" of all. Throughput in sequences is taken from the latency, or
the time where that is missing. A step is one optimizer update; with `accumulate` it counts as that
many micro-batches. Evaluation prints lines without a learning rate, which are left out.

Left out as warm-up are the first 20 steps. A run came to its end when its last line is that of the
last step announced (`num_steps`), or with "Train cost=" where the arguments are not in the log.
"""

import re
from statistics import median
from typing import Dict, List, Sequence

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.parameters import parse_namespace, read_count
from dlperf_slurm.logs.reading.patterns import COUNT, DECIMAL, LOGGER_PREFIX, NAMESPACE
from dlperf_slurm.logs.reading.rank_lines import Entry, RankLines, merge_unlabelled
from dlperf_slurm.logs.reading.windows import Window

_STEP = re.compile(LOGGER_PREFIX + rf"\[step ({COUNT})\](?:,\s|\s)")
_TIME = re.compile(
    rf".{{0,400}}?(?:\slr=\S+ time=({DECIMAL})(?:$|\s|, latency=({DECIMAL}) ms/(?:batch|step))"
    rf"|\sLR=.{{0,80}}?Time cost=({DECIMAL}) s, +Throughput=\S+K tks/s)"
)
_ARGUMENTS = re.compile(LOGGER_PREFIX + NAMESPACE)
_END = re.compile(LOGGER_PREFIX + rf"Train cost={DECIMAL} ?s")
_MODELS = {"bert_12_768_12": "bert", "google_en_uncased_bert_base": "bert"}
_PRECISIONS = {"float32": "fp32", "float16": "amp-fp16"}

SIGNATURE = re.compile(
    LOGGER_PREFIX + r"\[step \d+\]\s+mlm_loss=|" + LOGGER_PREFIX + r"\[step \d+\], Loss mlm/nsp="
)
START = _ARGUMENTS


class _Run:
    def __init__(self) -> None:
        self._steps = RankLines()
        self._parameters: Dict[str, str] = {}
        self._has_ended = False
        self._latencies_ms: List[float] = []

    @property
    def is_under_way(self) -> bool:
        return bool(self._steps)

    def add(self, line: Line) -> None:
        step = _STEP.match(line.text)
        if step is not None:
            self._add_step(line, int(step.group(1)), line.text[step.end() - 1 :])
            return
        arguments = _ARGUMENTS.match(line.text)
        if arguments is not None:
            self._parameters = parse_namespace(arguments.group(1))
        elif _END.match(line.text):
            self._has_ended = True

    def _add_step(self, line: Line, step: int, text: str) -> None:
        timed = None if line.is_last_unended else _TIME.match(text)
        if timed is None:
            return
        seconds, latency_ms = timed.group(1) or timed.group(3), timed.group(2)
        if latency_ms is not None:
            self._latencies_ms.append(float(latency_ms))
        self._steps.add(line, (step,), (float(seconds), float(latency_ms or 0)))

    def finish(self) -> Reading:
        by_rank = self._steps.list_by_rank()
        windows = [
            window
            for rank, entries in by_rank.items()
            for window in make_seconds_windows(rank, _list_intervals(entries))
        ]
        accumulate = self._count_accumulated()
        return Reading(
            identity=self._make_identity(len(by_rank)),
            windows=merge_unlabelled([_count_micro_batches(w, accumulate) for w in windows]),
            series={"latencies_ms": tuple(self._latencies_ms)},
            problem=self._find_problem(by_rank),
        )

    def _make_identity(self, workers: int) -> Identity:
        parameters = self._parameters
        # until 2019 the script had but one model
        model = parameters.get("model") or parameters.get("model_name") or "bert_12_768_12"
        gpus = [gpu for gpu in parameters.get("gpus", "").split(",") if gpu.strip().isdigit()]
        devices = workers * max(len(gpus), 1)
        total = read_count(parameters, "total_batch_size")
        share = total // max(devices * self._count_accumulated(), 1)
        return Identity(
            framework="mxnet",
            model=_MODELS.get(model, model),
            devices=devices,
            batch_size_per_device=read_count(parameters, "batch_size") or share,
            precision=_PRECISIONS.get(parameters.get("dtype", ""), ""),
        )

    def _count_accumulated(self) -> int:
        """Micro-batches of a step."""
        parameters = self._parameters
        return (
            read_count(parameters, "accumulate") or read_count(parameters, "num_accumulated") or 1
        )

    def _find_problem(self, by_rank: Dict[int, List[Entry]]) -> str:
        if not by_rank:
            return "the log holds no timed step"
        problem = self._steps.find_problem()
        if problem:
            return problem
        positions = [entry.position[0] for entry in next(iter(by_rank.values()))]
        announced = read_count(self._parameters, "num_steps")
        interval = positions[-1] - positions[-2] if len(positions) > 1 else 1
        if announced and positions[-1] + interval <= announced:
            return f"the log ends at step {positions[-1]} of {announced}"
        if not announced and not self._has_ended:
            return f"the log ends at step {positions[-1]}: 'Train cost' is missing"
        return ""


def _list_intervals(entries: Sequence[Entry]) -> List[Interval]:
    """(steps, seconds) of lines whose values are (time, latency in ms, or 0).

    The first line's number of steps is that of the second, for a run may go on from a checkpoint.
    """
    positions = [entry.position[0] for entry in entries]
    counts = [after - before for before, after in zip(positions, positions[1:])]
    counts = counts[:1] + counts
    return [
        (count, entry.values[1] / 1000 * count if entry.values[1] > 0 else entry.values[0])
        for count, entry in zip(counts, entries)
    ]


def _count_micro_batches(window: Window, accumulate: int) -> Window:
    return Window(
        rank=window.rank,
        steps=window.steps * accumulate,
        seconds=window.seconds,
        step_seconds=window.step_seconds if accumulate == 1 else (),
    )


def start_run() -> _Run:
    return _Run()


def _average_dlperf(reading: Reading, identity: Identity) -> float:
    latencies, devices = reading.series["latencies_ms"], identity.devices
    if devices == 0 or len(latencies) != 200 * devices:
        raise RuleError(f"takes 200 lines of each device, the log has {len(latencies)} lines")
    rows = [latencies[row * devices : (row + 1) * devices] for row in range(100, 200)]
    if min(latencies) <= 0:
        raise RuleError("takes latencies above 0")
    rates = [
        median(1000.0 / latency * identity.global_batch_size for latency in row) for row in rows
    ]
    return round(average(rates), 2)


RULES = (Rule("DLPerf: mean over steps 101 to 200 of the median device's rate", _average_dlperf),)
