"""Logs of PaddleClas since 2.2 (ppcls/engine): "[Train][Epoch 1/120][Iter: 10/5004]" lines.

Every `print_batch_step` iterations, rank 0 prints the mean "batch_cost" of the epoch so far, which
the script resets before its sixth iteration, and "ips", the samples of one device over that cost:
their product is the batch size per device. Throughput comes from the costs; the time of an epoch's
first five iterations is unknown. The first 20 iterations are left out as warm-up.

A run is complete if the last epoch has its mean ("[Avg]"). The log does not have the device count.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, LOGGER_PREFIX, NUMBER, parse_number
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, take_line
from dlperf_slurm.logs.windows import WARMUP_STEPS, Window

ITERATIONS_BEFORE_RESET = 5

_ITERATION = re.compile(
    LOGGER_PREFIX + rf"\[Train\]\[Epoch (?P<epoch>{COUNT})/(?P<epochs>{COUNT})\]"
    rf"\[Iter: (?P<step>{COUNT})/(?P<iterations>{COUNT})\]"
    rf".{{1,300}}? batch_cost: (?P<seconds>{NUMBER})s, .{{1,300}}? ips: (?P<ips>{NUMBER}) "
    r"(?:images/sec|samples/s)"
)
_AVERAGE = re.compile(LOGGER_PREFIX + rf"\[Train\]\[Epoch (?P<epoch>{COUNT})/{COUNT}\]\[Avg\]")
_MODEL = re.compile(LOGGER_PREFIX + r"\s*name : (?P<model>ResNet\w+)\s*$")
_VERSION = re.compile(LOGGER_PREFIX + r"train with paddle (?P<version>\d[\w.]*) and device ")
_AMP = re.compile(LOGGER_PREFIX + r"(?P<amp>AMP) : \s*$")

SIGNATURE = re.compile(LOGGER_PREFIX + r"\[Train\]\[Epoch \d+/\d+\]\[Iter: \d+/\d+\]")
START = re.compile(LOGGER_PREFIX + r"==\s+PaddleClas is powered by PaddlePaddle !\s+==")


def _add_iteration(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a timed line, and the batch size per device: batch cost x samples/s."""
    take_line(run, line, match)
    rate = parse_number(match.group("ips"))
    run.keep("rates", rate)
    run.keep("batch_sizes", round(parse_number(match.group("seconds")) * rate))


def _keep_model(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    run.facts.setdefault("model", match.group("model"))


def _list_batch_sizes(run: TimedRun) -> List[int]:
    """Return the distinct batch sizes per device in the log, ascending."""
    return sorted({int(size) for size in run.series.get("batch_sizes", ())})


def _identify(run: TimedRun) -> Identity:
    model, version = run.facts.get("model", ""), run.facts.get("version", "")
    precision = "amp-fp16" if "amp" in run.facts else "fp32"
    return Identity(
        framework="paddle",
        model="resnet50" if model == "ResNet50" else model,
        batch_size_per_device=max(_list_batch_sizes(run), default=0),
        precision=precision if model else "",
        versions={"paddle": version} if version else {},
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the window (measured steps): of each epoch, from the reset of its mean cost on.

    The script resets the mean before the sixth iteration. The first epoch counts from the end of
    the warm-up. The tuple has one Window, or none.
    """
    steps, seconds = 0, 0.0
    for number, epoch in enumerate(sorted({mark.position[0] for mark in marks})):
        counted = [
            (mark.position[1] + 1 - ITERATIONS_BEFORE_RESET, mark.value)
            for mark in marks
            if mark.position[0] == epoch and mark.position[1] >= ITERATIONS_BEFORE_RESET
        ]
        warm = WARMUP_STEPS - ITERATIONS_BEFORE_RESET
        begin = next((entry for entry in counted if entry[0] >= warm), (0, 0.0))
        if counted and (number > 0 or begin[0] > 0):
            first = begin if number == 0 else (0, 0.0)
            steps += counted[-1][0] - first[0]
            seconds += counted[-1][0] * counted[-1][1] - first[0] * first[1]
    return (Window(rank=rank, steps=steps, seconds=seconds),) if seconds > 0 else ()


def _find_fault(run: TimedRun) -> str:
    """Return a message if the batch size is not the same on all lines, or ""."""
    batch_sizes = _list_batch_sizes(run)
    if len(batch_sizes) != 1:
        return f"the batch size changes: {', '.join(map(str, batch_sizes))}"
    return ""


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": the last epoch announced has no mean."""
    epochs = int(run.facts["epochs"])
    if epochs not in run.epoch_ends:
        epoch, index = run.last
        return (
            f"the log ends in epoch {epoch} of {epochs} "
            f"at iteration {index} of {int(run.facts['iterations'])}"
        )
    return ""


start_run = TimedFormat(
    lines=((_ITERATION, _add_iteration), _AVERAGE),
    announcements=((_MODEL, _keep_model), _VERSION, _AMP),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    find_fault=_find_fault,
).start_run


RULES = (
    PublisherRule(
        "devices x arithmetic mean of rates[1:]",
        average_lines(1, is_per_device=True, series="rates"),
    ),
)
