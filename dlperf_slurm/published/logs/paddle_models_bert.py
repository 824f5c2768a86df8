"""Logs of PaddlePaddle/models' BERT pretraining (release 1.5 to 1.8; DLPerf's BERT).

Every `skip_steps` steps, trainer 0 prints the speed since the line before, in steps/s times the
number of trainers; a trainer drives all devices of a node. "[validation_set]" and "[test_set]"
lines are ignored. The first 20 steps are left out as warm-up.

A run is complete if it has the last line that its arguments announce (`num_train_steps`).
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, NUMBER, get_precision
from dlperf_slurm.logs.publisher_rules import average, take_values
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, find_early_end
from dlperf_slurm.logs.windows import Window, make_warm_window

# the rate is of steps, not of samples
_STEP = re.compile(
    rf"epoch: \d+, progress: \d+/\d+, step: (?P<step>{COUNT}), loss: .{{1,300}}?, "
    rf"speed: (?P<rate>{NUMBER}) steps/s"
)
_ARGUMENT = re.compile(r"(?P<name>\w+): (?P<value>\S.*)")
_DEVICES = re.compile(rf"Device count (?P<devices_per_trainer>{COUNT})\s*$")
_TRAINERS = re.compile(rf"worker_endpoints:.*\btrainers_num:(?P<trainers>{COUNT})\b")

SIGNATURE = re.compile(
    r"epoch: \d+, progress: \d+/\d+, step: \d+, loss: .{1,80}?, ppl: .{1,300}?, speed: "
)
START = re.compile(r"-+ +Configuration Arguments +-+")


def _identify(run: TimedRun) -> Identity:
    trainers, devices = _count_trainers(run), run.read_count("devices_per_trainer")
    return Identity(
        framework="paddle",
        model="bert",
        nodes=trainers if devices else 0,
        devices=trainers * devices,
        batch_size_per_device=0 if run.is_true("in_tokens") else run.read_count("batch_size"),
        precision=get_precision(run.facts, "use_fp16"),
    )


def _count_trainers(run: TimedRun) -> int:
    """Return the number of trainers, processes that drive all devices of a node; at least 1."""
    return run.read_count("trainers") or 1


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the window (measured steps) after the warm-up, with seconds from the printed speed.

    The printed speed is times the number of trainers. A speed of 0, which `_find_fault` reports,
    counts as 0 seconds. The tuple has one Window, or none.
    """
    interval = run.read_count("skip_steps") or 1
    steps = interval * _count_trainers(run)
    return make_warm_window(
        rank, [(interval, steps / mark.value if mark.value > 0 else 0.0) for mark in marks]
    )


def _find_fault(run: TimedRun) -> str:
    """Return a message if a printed speed is 0, from which no time can be computed, or ""."""
    return (
        "the log prints a speed of 0 steps/s"
        if min(mark.value for mark in run.first_marks) <= 0
        else ""
    )


start_run = TimedFormat(
    lines=(_STEP,),
    announcements=(_DEVICES, _TRAINERS, _ARGUMENT),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=lambda run: find_early_end(run, "num_train_steps", "skip_steps", 1),
    find_fault=_find_fault,
    is_of_job=True,
).start_run


def _average_100_rates(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: batch size of a trainer times the mean speed of lines 21 to 120.

    In samples/s. The printed speed is already multiplied by the number of trainers. Raises
    RuleError if the log has fewer lines.
    """
    batch_size = identity.global_batch_size / max(identity.nodes, 1)
    speeds = take_values([mark.value for mark in parsed.marks], 20, 120)
    return round(average([round(speed * batch_size, 4) for speed in speeds]), 2)


RULES = (PublisherRule("DLPerf: batch size per node x mean of speeds[20:120]", _average_100_rates),)
