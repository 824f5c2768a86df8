"""Logs of GluonNLP's BERT pretraining (scripts/bert of 0.6 to 0.10, run_pretraining.py since).

Every `log_interval` steps, each worker prints, without a rank label, its own rate in tokens
(without padding) and the time of these steps: "latency=... ms/batch" (or ms/step) of one step,
"time=" or "Time cost=" of all. Throughput in sequences comes from the latency, or from the time
where there is no latency. A step is one optimizer update; with `accumulate` it counts as that many
micro-batches. Evaluation lines, which have no learning rate, are ignored.

The first 20 steps are left out as warm-up. A run is complete if its last line is that of the last
step announced (`num_steps`), or, without this argument, if it has "Train cost=". A log without
arguments does not have the number of micro-batches, and gives no throughput.
"""

import re
from statistics import median
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, RankMarks
from dlperf_slurm.logs.patterns import COUNT, DECIMAL, LOGGER_PREFIX, NAMESPACE
from dlperf_slurm.logs.publisher_rules import RuleError, average
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, if_whole, take_line
from dlperf_slurm.logs.windows import Window, count_timed_steps, make_warm_window

_STEP = LOGGER_PREFIX + rf"\[step (?P<step>{COUNT})\],?(?=\s).{{0,400}}?"
_WITH_TIME = re.compile(
    _STEP + rf"\slr=\S+ time=(?P<seconds>{DECIMAL})"
    rf"(?:$|\s|, latency=(?P<mean_ms>{DECIMAL}) ms/(?:batch|step))"
)
_WITH_COST = re.compile(
    _STEP + rf"\sLR=.{{0,80}}?Time cost=(?P<seconds>{DECIMAL}) s, +Throughput=\S+K tks/s"
)
_END = re.compile(LOGGER_PREFIX + rf"(?P<end>Train cost={DECIMAL} ?s)")
_ACCUMULATION = ("accumulate", "num_accumulated")
_MODELS = {"bert_12_768_12": "bert", "google_en_uncased_bert_base": "bert"}

SIGNATURE = re.compile(LOGGER_PREFIX + r"\[step \d+\](?:\s+mlm_loss=|, Loss mlm/nsp=)")
START = re.compile(LOGGER_PREFIX + NAMESPACE)


def _add_step(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a line's step in the run, and its latency in ms for DLPerf's rule."""
    take_line(run, line, match)
    if match.group("mean_ms"):
        run.keep("latencies_ms", float(match.group("mean_ms")))


def _identify(run: TimedRun) -> Identity:
    # until 2019 the script had only one model
    model = run.facts.get("model") or run.facts.get("model_name") or "bert_12_768_12"
    gpus = [gpu for gpu in run.facts.get("gpus", "").split(",") if gpu.strip().isdigit()]
    devices = len(run.marks.by_rank) * max(len(gpus), 1)
    share = run.read_count("total_batch_size") // max(devices * _count_micro_batches(run), 1)
    return Identity(
        framework="mxnet",
        model=_MODELS.get(model, model),
        devices=devices,
        batch_size_per_device=run.read_count("batch_size") or share,
        precision=run.find_precision("dtype"),
    )


def _count_micro_batches(run: TimedRun) -> int:
    """Return the micro-batches per optimizer update; 1 if the log does not state them."""
    return run.read_count(*_ACCUMULATION) or 1


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return a worker's measured interval: micro-batches and seconds, without the warm-up.

    The seconds of a line are its latency times its steps, or its own time if it has no latency.
    """
    announced = run.read_count("log_interval")
    # a line covers at most `log_interval` steps, also if the line before was lost
    counts = [min(steps, announced or steps) for steps in count_timed_steps(marks)]
    intervals = [
        (steps, mark.mean * steps if mark.mean > 0 else mark.value)
        for steps, mark in zip(counts, marks)
    ]
    return make_warm_window(rank, intervals, _count_micro_batches(run))


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its last steps or its arguments are missing."""
    steps = [mark.position[0] for mark in run.first_marks]
    announced = run.read_count("num_steps")
    interval = steps[-1] - steps[-2] if len(steps) > 1 else 1
    if announced and steps[-1] + interval <= announced:
        return f"the log ends at step {steps[-1]} of {announced}"
    if not announced and "end" not in run.facts:
        return f"the log ends at step {steps[-1]}: 'Train cost' is missing"
    if not any(name in run.facts for name in (*_ACCUMULATION, "num_steps", "gpus")):
        return "the log does not state how many micro-batches an update has (accumulate)"
    return ""


start_run = TimedFormat(
    lines=(if_whole(_WITH_TIME, _add_step), if_whole(_WITH_COST), START, _END),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    make_marks=RankMarks,
).start_run


def _average_dlperf(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: the mean over steps 101 to 200 of the median device's rate.

    Raises RuleError unless the log has 200 latencies above 0 for each device.
    """
    latencies, devices = parsed.series.get("latencies_ms", ()), identity.devices
    if devices == 0 or len(latencies) != 200 * devices:
        raise RuleError(
            "the publisher's rule needs 200 lines with a latency for each device, but the log has "
            f"{len(latencies)} such lines"
        )
    rows = [latencies[row * devices : (row + 1) * devices] for row in range(100, 200)]
    if min(latencies) <= 0:
        raise RuleError("the publisher's rule needs latencies above 0")
    rates = [
        median(1000.0 / latency * identity.global_batch_size for latency in row) for row in rows
    ]
    return round(average(rates), 2)


RULES = (
    PublisherRule(
        "DLPerf: median rate of the devices in each step, mean of steps 101 to 200",
        _average_dlperf,
    ),
)
