"""Logs of GluonCV's train_imagenet.py: one process that drives all GPUs of a node.

Every `log_interval` batches it prints the job's rate since the last such line, at the end of an
epoch the epoch's, which holds its beginning too. Throughput comes from the intervals; validation
runs between epochs. Left out as warm-up are the intervals that begin in the first 20 steps.

A run came to its end when the last epoch announced (`num_epochs`) has its closing "speed:" line.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import (
    COUNT,
    LOGGER_PREFIX,
    NAMESPACE,
    NUMBER,
    join_patterns,
)
from dlperf_slurm.logs.rules import average_epochs
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, make_warm_rate_window

_SPEED = re.compile(
    LOGGER_PREFIX + rf"Epoch\[(?P<epoch>{COUNT})\] Batch \[(?P<step>{COUNT})\]"
    rf"\s+Speed: (?P<rate>{NUMBER}) samples/sec\s+\S{{1,80}}?=\S{{1,80}}\s+lr="
)
_EPOCH = re.compile(
    LOGGER_PREFIX
    + rf"\[Epoch (?P<epoch>{COUNT})\] speed: (?P<rate>{NUMBER}) samples/sec\s+time cost:"
)
_MODELS = {"resnet50_v1b": "resnet50", "resnet50_v1": "resnet50-v1"}

SIGNATURE = join_patterns(_SPEED, _EPOCH)
START = re.compile(LOGGER_PREFIX + NAMESPACE)


def _identify(run: TimedRun) -> Identity:
    model = run.facts.get("model", "")
    return Identity(
        framework="mxnet",
        model=_MODELS.get(model, model),
        nodes=1,
        devices=run.read_count("num_gpus"),
        batch_size_per_device=run.read_count("batch_size"),
        precision=run.find_precision("dtype"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Batches count from 0, or from 1 in later versions.

    An epoch's first interval is as long as its second, whatever the count begins with.
    """
    gaps = [
        after.position[1] - before.position[1] if after.position[0] == before.position[0] else 0
        for before, after in zip(marks, marks[1:])
    ]
    usual = max(gaps, default=0) or 1
    return make_warm_rate_window(
        rank, [(gap or usual, mark.value) for gap, mark in zip([0, *gaps], marks)]
    )


def _find_problem(run: TimedRun) -> str:
    announced, begun = run.read_count("num_epochs"), run.last[0]
    if not announced:
        return "the log does not tell how many epochs there were to be (num_epochs)"
    if begun not in run.epoch_ends:
        return f"the log ends in epoch {begun}: the line with its speed is missing"
    if begun + 1 < announced:
        return f"the log ends after epoch {begun}, the last was to be {announced - 1}"
    return ""


start_run = TimedFormat(
    lines=(_SPEED, _EPOCH, START),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
).start_run

RULES = (Rule("harmonic mean of the epochs' speeds but the first", average_epochs),)
