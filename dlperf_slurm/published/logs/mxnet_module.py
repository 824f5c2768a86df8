"""Logs of MXNet's Speedometer: image-classification/train_imagenet.py and other users of Module.

Every `disp_batches` batches, a worker prints its rate since the line before, of all its GPUs; with
a distributed kvstore each worker ("Node[N]") prints its own rate, and throughput is the slowest
worker's rate times the workers. An epoch's first line comes after its second interval; the first
interval is not printed. Intervals that begin in the first 20 batches are left out as warm-up.

A run is complete if each worker has the "Time cost" of every epoch up to the last one announced
(`num_epochs`).
"""

import re
from dataclasses import replace
from typing import List, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, LOGGER_PREFIX, NAMESPACE, NUMBER
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, list_between, make_warm_rate_window

_NODE = LOGGER_PREFIX + rf"(?:Node\[(?P<rank>{COUNT})\] )?"
_SPEED = re.compile(
    _NODE + rf"Epoch\[(?P<epoch>{COUNT})\] Batch \[(?:{COUNT}-)?(?P<step>{COUNT})\]"
    rf"\s+Speed: (?P<rate>{NUMBER}) samples/sec"
    r"(?!\s+LR:)(?!\s{1,8}\S{1,80}?=\S{1,80}\s{1,8}lr=)"
)
_EPOCH = re.compile(_NODE + rf"Epoch\[(?P<epoch>{COUNT})\] Time cost=\d")

SIGNATURE = re.compile(_SPEED.pattern + r"\s+[\w-]+=\d")
START = re.compile(_NODE + r"start with arguments " + NAMESPACE)


def _identify(run: TimedRun) -> Identity:
    gpus = [gpu for gpu in run.facts.get("gpus", "").split(",") if gpu.strip().isdigit()]
    workers = max(len(run.marks.by_rank), 1)
    network = run.facts.get("network", "")
    is_resnet50 = network.startswith("resnet") and run.read_count("num_layers") == 50
    return Identity(
        framework="mxnet",
        model="resnet50" if is_resnet50 else network,
        nodes=workers if gpus else 0,
        devices=workers * len(gpus),
        batch_size_per_device=run.read_count("batch_size") // len(gpus) if gpus else 0,
        precision=run.find_precision("dtype"),
    )


def _make_windows(run: TimedRun, node: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return a worker's measured interval, at its rate times the number of workers.

    Each line counts the batches of one interval, also after lost lines.
    """
    usual = min((batches for batches, _ in list_between(marks)), default=1)
    workers = len(run.marks.by_rank)
    return tuple(
        replace(window, samples_per_s=window.samples_per_s * workers)
        for window in make_warm_rate_window(node, [(usual, mark.value) for mark in marks])
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": a worker has no "Time cost" of an epoch."""
    announced = run.read_count("num_epochs")
    if not announced:
        return "the log does not state how many epochs were planned (num_epochs)"
    for node, marks in run.marks.by_rank.items():
        for epoch in range(marks[0].position[0], announced):
            if (node, epoch) not in run.ended:
                return f"node {max(node, 0)} has no 'Time cost' of epoch {epoch}"
    return ""


start_run = TimedFormat(
    lines=(_SPEED, _EPOCH, START),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
).start_run


RULES = (
    PublisherRule(
        "number of nodes x mean of the first node's rates, except the first rate",
        lambda parsed, run: average_lines(1)(parsed, run) * max(run.nodes, 1),
    ),
)
