"""Logs of Horovod's synthetic benchmarks (PyTorch, TensorFlow 1 and 2, Keras), and BytePS's.

Only rank 0 prints: a rate per device for each iteration (ten batches by default; BytePS prints the
job's rate), then the mean, and last the mean times the devices. Nothing is left out, because the
warm-up batches run before the first iteration.

A run is complete if it has the total, for as many devices as announced, and if the printed mean is
that of the iterations in the log.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, NUMBER, join_patterns, parse_number
from dlperf_slurm.logs.publisher_rules import average, take_final
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, make_rate_window

BATCHES_PER_ITERATION = 10

_ITERATION = re.compile(
    rf"Iter #(?P<step>{COUNT}): (?P<rate>{NUMBER}) img/sec (?P<per_device>per )?[A-Z]{{3}}\b"
)
_MEAN = re.compile(rf"Img/sec per [A-Z]{{3}}: (?P<mean>{NUMBER}) \+-")
_TOTAL = re.compile(
    rf"Total img/sec on (?P<devices_of_total>{COUNT}) [A-Z]{{3}}\(s\): (?P<rate>{NUMBER}) \+-"
)
_MODEL = re.compile(r"Model: (?P<model>\S+)\s*$")
_BATCH_SIZE = re.compile(rf"Batch size: (?P<batch_size>{COUNT})\s*$")
_DEVICES = re.compile(rf"Number of [A-Z]{{3}}s: (?P<devices>{COUNT})\s*$")

SIGNATURE = join_patterns(_ITERATION, _TOTAL)
START = _MODEL


def _identify(run: TimedRun) -> Identity:
    return Identity(
        model=run.facts.get("model", "").lower(),
        devices=run.read_count("devices_of_total", "devices"),
        batch_size_per_device=run.read_count("batch_size"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the job's measured interval: all iterations, at the rates that rank 0 prints."""
    rates = [(BATCHES_PER_ITERATION, mark.value) for mark in marks]
    return make_rate_window(-1, rates, "per_device" in run.facts)


def _find_fault(run: TimedRun) -> str:
    """Return why the log contradicts itself, or "": several jobs, or two device counts."""
    if len(run.marks.by_rank) > 1:
        return "several ranks print results: each ran its own benchmark"
    total, announced = run.read_count("devices_of_total"), run.read_count("devices")
    if total != announced and total and announced:
        return f"the total throughput is of {total} devices, but the log announces {announced}"
    return ""


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": iterations or the total are missing."""
    iterations = [mark.position[0] for mark in run.first_marks]
    missing = [index for index, found in enumerate(iterations) if found != index]
    if missing:
        return f"the log lacks iteration {missing[0]}"
    if "final_rates" not in run.series or "mean" not in run.facts:
        return f"the log ends after iteration {iterations[-1]}: the total throughput is missing"
    devices = 1 if "per_device" in run.facts else max(_identify(run).devices, 1)
    found = average([mark.value for mark in run.first_marks]) / devices
    printed = parse_number(run.facts["mean"])
    # each printed rate, and the mean, is rounded to one decimal
    if abs(found - printed) > 0.15:
        return (
            f"the mean of the iterations is {found:.1f}, but the log prints {printed}: some "
            "iterations are missing"
        )
    return ""


start_run = TimedFormat(
    lines=(_ITERATION, _MEAN, _TOTAL),
    announcements=(_MODEL, _BATCH_SIZE, _DEVICES),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    find_fault=_find_fault,
).start_run

RULES = (PublisherRule("Horovod: the total throughput of all workers, as printed", take_final),)
