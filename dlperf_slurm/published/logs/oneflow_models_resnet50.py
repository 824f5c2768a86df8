"""Logs of OneFlow's models, Vision/classification/image/resnet50/train.py.

Every rank, or rank 0 alone, prints "[rank:N] [train]" lines each `print_interval` iterations and at
an epoch's end, with its own rate since the last line: of its own samples, so that it is a rate per
device. "[eval]" lines are of other work. Throughput comes from the rates, of the slowest rank. Left
out as warm-up are the intervals that begin in the first 20 iterations.

A run came to its end when the lines reach the last iteration of the last epoch; both counts stand
in each line. Epochs count from 0.
"""

import re

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.patterns import COUNT, NUMBER, name_precision
from dlperf_slurm.logs.rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import list_since_last, make_warm_rate_window

_TRAIN = re.compile(
    rf"\[rank:(?P<rank>{COUNT})\] \[train\], epoch: (?P<epoch>{COUNT})/(?P<epochs_in_all>{COUNT}), "
    rf"iter: (?P<step>{COUNT})/(?P<iterations_in_all>{COUNT}), "
    rf"loss: \S+, .{{0,80}}?throughput: (?P<rate>{NUMBER})(?:, timestamp: \S+)? \| "
)
_ARGUMENT = re.compile(r"(?P<name>\w+) \.{2,48} (?P<value>\S.*)")

SIGNATURE = re.compile(
    r"\[rank:\d+\] \[train\], epoch: \d+/\d+, iter: \d+/\d+, loss: .*throughput: "
)
START = re.compile(r"-{5,} arguments -{5,}")


def _identify(run: TimedRun) -> Identity:
    batch_size = run.read_count("train_batch_size")
    return Identity(
        framework="oneflow",
        model="resnet50",
        devices=run.read_count("train_global_batch_size") // batch_size if batch_size else 0,
        batch_size_per_device=batch_size,
        precision=name_precision(run.facts, "use_fp16"),
    )


def _find_problem(run: TimedRun) -> str:
    end = (run.read_count("epochs_in_all") - 1, run.read_count("iterations_in_all"))
    for rank, marks in run.marks.by_rank.items():
        epoch, iteration = marks[-1].position
        if epoch < end[0] or iteration < end[1]:
            return f"rank {rank} ends in epoch {epoch} at iteration {iteration}"
    return ""


start_run = TimedFormat(
    lines=(_TRAIN,),
    announcements=(_ARGUMENT,),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_warm_rate_window(
        rank, list_since_last(marks), is_per_device=True
    ),
    find_problem=_find_problem,
).start_run

RULES = (
    Rule(
        "mean of rank 0's rates but the first, times the devices",
        average_lines(1, is_per_device=True, digits=2),
    ),
)
