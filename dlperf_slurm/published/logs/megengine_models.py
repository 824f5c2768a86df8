"""Logs of MegEngine's models, official/vision/classification/resnet/train.py.

Every `print-freq` steps, rank 0 prints the time of that step and, in brackets, the mean since the
line before; validation between epochs is not in the times. The log has neither the batch size nor
the device count.

Only the first epoch is used: the log does not have the number of epochs, so that a log that lost
later epochs gives the same throughput. The first 20 steps are left out as warm-up. A run is
complete if the last epoch that began has its "Test" line.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, DECIMAL, LOGGER_PREFIX
from dlperf_slurm.logs.publisher_rules import RuleError, average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, make_warm_window

# MegEngine's own logger puts day and time before a message
_PREFIX = rf"(?:\d\d \d\d:\d\d:\d\d (?:\[\w+\] )?|{LOGGER_PREFIX})"
_METER = rf"{DECIMAL} \({DECIMAL}\)"
_STEP = re.compile(
    _PREFIX + rf"Epoch (?P<epoch>{COUNT}) Step (?P<step>{COUNT}), LR {DECIMAL}, Loss {_METER} "
    rf"Acc@1 {_METER} Acc@5 {_METER} Time {DECIMAL} \((?P<seconds>{DECIMAL})\)"
)
_TEST = re.compile(_PREFIX + rf"Epoch (?P<epoch>{COUNT}) Test Acc@1 ")

SIGNATURE = _STEP
START = None


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval of the first epoch: steps and seconds, without the warm-up.

    Line numbers count steps from 0 through all epochs.
    """
    epoch = [mark for mark in marks if mark.position[0] == marks[0].position[0]]
    intervals, done = [], epoch[0].position[1] if epoch else 0
    for mark in epoch:
        steps = mark.position[1] + 1 - done
        intervals.append((steps, mark.value * steps))
        done = mark.position[1] + 1
    return make_warm_window(rank, intervals)


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its last epoch has no "Test" line."""
    # "Test" lines count epochs from 1
    epoch, step = run.first_marks[-1].position
    if max(run.epoch_ends, default=0) <= epoch:
        return f"the log ends in epoch {epoch} at step {step}: its 'Test' line is missing"
    return ""


start_run = TimedFormat(
    lines=(_STEP, _TEST),
    identify=lambda run: Identity(framework="megengine"),
    make_windows=_make_windows,
    find_problem=_find_problem,
    is_of_job=True,
).start_run


def _average_but_first(reading: ParsedRun, identity: Identity) -> float:
    """Return the global batch size over the mean time of a step, without the first line."""
    seconds = average_lines(1)(reading, identity)
    if seconds <= 0 or identity.global_batch_size <= 0:
        raise RuleError("needs times above 0, and a batch size")
    return identity.global_batch_size / seconds


RULES = (
    PublisherRule(
        "global batch size over the mean of the lines' times but the first", _average_but_first
    ),
)
