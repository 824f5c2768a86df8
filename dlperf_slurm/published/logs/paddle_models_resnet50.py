"""Logs of PaddlePaddle/models' image classification (release 1.5 to 1.8; DLPerf's ResNet-50).

Every `print_step` batches, trainer 0 prints the seconds of that batch ("elapse"), and the time if
its logger does. Batches count from 0 in each epoch ("Pass"); "test batch" lines are validation.
Throughput comes from the times, or from "elapse" if each batch is printed. The first 20 batches are
left out as warm-up. The log has the batch size of all devices together, but not the device count.

A run is complete if it has its last batch: `max_iter`, or `num_epochs` of `total_images`.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import (
    COUNT,
    DATE_TIME,
    LOGGER_PREFIX,
    NUMBER,
    get_precision,
    subtract_times,
)
from dlperf_slurm.logs.publisher_rules import RuleError, average, take_values, time_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Interval, Window, make_warm_window

_BATCH = re.compile(
    rf"(?=(?P<time>{DATE_TIME}))?"
    + LOGGER_PREFIX
    + rf"\[Pass (?P<epoch>{COUNT}), train batch (?P<step>{COUNT})\]\s+loss .{{1,200}}?"
    rf" elapse (?P<seconds>{NUMBER}) sec"
)
_ARGUMENT = re.compile(LOGGER_PREFIX + r"\s*(?P<name>\w+)\s?: (?P<value>\S.*)")

SIGNATURE = _BATCH
START = re.compile(LOGGER_PREFIX + r"-+ +Configuration Arguments +-+")


def _identify(run: TimedRun) -> Identity:
    model = run.facts.get("model", "")
    return Identity(
        framework="paddle",
        model="resnet50" if model == "ResNet50" else model,
        precision=get_precision(run.facts, "use_fp16"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval by the times of batches, or by "elapse" if there are no times.

    The first batch of an epoch counts with its own "elapse".
    """
    intervals: List[Interval] = [(1, mark.value) for mark in marks[:1]]
    for before, after in zip(marks, marks[1:]):
        if before.position[0] != after.position[0]:
            intervals.append((1, after.value))
            continue
        steps = after.position[1] - before.position[1]
        by_clock = subtract_times(after.time, before.time)
        intervals.append((steps, by_clock if before.time > 0 else after.value * steps))
    return make_warm_window(rank, intervals)


def _find_fault(run: TimedRun) -> str:
    """Return a message if neither times nor the seconds of all batches are in the log, or ""."""
    batches = [mark.position[1] for mark in run.first_marks]
    is_each = all(after in (before + 1, 0) for before, after in zip(batches, batches[1:]))
    if is_each or all(mark.time > 0 for mark in run.first_marks):
        return ""
    return (
        "the log has lines for only some of the batches and no timestamps, so the time of the "
        "other batches is unknown"
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": it has fewer batches than announced."""
    last_of_epoch = {mark.position[0]: mark.position[1] for mark in run.first_marks}
    step = run.read_count("print_step") or 1
    done = sum(last + step for last in last_of_epoch.values())
    batch_size, images = run.read_count("batch_size"), run.read_count("total_images")
    of_epochs = images // batch_size * run.read_count("num_epochs") if batch_size else 0
    announced = run.read_count("max_iter") or of_epochs
    if not announced:
        return "the log does not state how many batches were planned (max_iter)"
    if done < announced:
        epoch, batch = run.first_marks[-1].position
        return (
            f"the log ends in epoch {epoch} at batch {batch}, but {announced} batches were planned "
            "for the whole run"
        )
    return ""


start_run = TimedFormat(
    lines=(_BATCH,),
    announcements=(_ARGUMENT,),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    find_fault=_find_fault,
    is_of_job=True,
).start_run


def _average_100_rates(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: the mean of global batch size / seconds of lines 21 to 120.

    Raises RuleError if the log has fewer lines, or seconds of 0.
    """
    seconds = take_values([mark.value for mark in parsed.marks], 20, 120)
    if min(seconds) <= 0:
        raise RuleError("the publisher's rule needs times above 0")
    return round(average([round(identity.global_batch_size / value, 4) for value in seconds]), 2)


RULES = (
    PublisherRule(
        "DLPerf: mean of the rates (global batch size / batch time) of lines 21 to 120",
        _average_100_rates,
    ),
    PublisherRule(
        "DLPerf: global batch size x 100 / time from line 20 to line 120", time_lines(20, 120)
    ),
)
