"""Logs of tensorpack's trainers (examples/ResNet): "Epoch 1 (global_step 5000) finished, time:".

After each epoch, the chief prints the time of its steps, to three digits or, above a minute, in
whole seconds; callbacks such as validation are not in it. Its throughput tracker prints the same
time as a rate of five digits, which is used if the two agree. ImageNet's examples print the number
of GPUs ("towers") and the batch size of each. The first epoch and intervals that begin in the first
20 steps are left out as warm-up.

A run is complete if it prints "Training has finished!".
"""

import re
from typing import Dict, List, Match, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, NUMBER, parse_number
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, if_whole
from dlperf_slurm.logs.windows import (
    Window,
    count_timed_steps,
    make_rate_window,
    make_warm_window,
)

_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_PREFIX = r"\[\d{4} \d\d:\d\d:\d\d @[\w.-]{1,60}:\d{1,6}\] "
_EPOCH = re.compile(
    _PREFIX + rf"Epoch (?P<number>{COUNT}) \(global_step (?P<step>{COUNT})\) finished, "
    r"time: ?(?P<duration>\d[-\w. ]{1,80})\.\s*$"
)
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?(?:e[-+]\d\d)?) (day|hour|minute|second)s?")
_TOWERS = re.compile(
    _PREFIX + rf"Running on (?P<towers>{COUNT}) towers\. "
    rf"Batch size per tower: (?P<batch_size>{COUNT})\s*$"
)
_THROUGHPUT = re.compile(_PREFIX + rf"Throughput \(samples/sec\): (?P<rate>{NUMBER})\s*$")
_END = re.compile(_PREFIX + r"(?P<end>Training has finished!)")

SIGNATURE = re.compile(_PREFIX + r"Epoch \d+ \(global_step \d+\) finished, time:")
START = _TOWERS


def _add_epoch(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the timed line of an epoch, whose duration is as in `1 hour 2 minutes 5 seconds`."""
    parts = _PART.findall(match.group("duration"))
    seconds = sum(float(count) * _SECONDS[unit] for count, unit in parts)
    position, number = (int(match.group("step")),), int(match.group("number"))
    run.marks.add(line, Mark(position, value=seconds, number=number))


def _add_rate(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the printed throughput under the last step of the epoch printed before it."""
    marks = run.marks.by_rank.get(line.rank)
    step = marks[-1].position[0] if marks else 0
    # a second rate here would be that of an epoch whose line is lost
    run.ended.setdefault((-1, step), parse_number(match.group("rate")))


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval: steps and seconds of the epochs after the warm-up."""
    rates, global_batch_size = run.epoch_ends, _identify(run).global_batch_size
    return make_warm_window(
        rank,
        [
            (steps, _choose_seconds(mark, steps * global_batch_size, rates))
            for steps, mark in zip(count_timed_steps(marks), marks)
        ],
    )


def _choose_seconds(mark: Mark, samples: int, rates: Dict[int, float]) -> float:
    """Return an epoch's seconds: `samples` over its printed rate if that agrees with its duration.

    The rate has more digits than the duration, which is used otherwise. `rates` are by last step.
    """
    printed, rate = mark.value, rates.get(mark.position[0], 0.0)
    if rate <= 0:
        return printed
    seconds = samples / rate
    if printed < 60:
        # below a minute, seconds are printed with three significant digits
        return seconds if abs(seconds - printed) <= 0.005 * printed else printed
    # whole seconds are cut, not rounded
    return seconds if printed <= seconds < printed + 1 else printed


def _list_printed(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the window (measured steps) by the printed rates, without the first epoch's."""
    rates = (run.epoch_ends.get(mark.position[0], 0.0) for mark in marks[1:])
    return make_rate_window(rank, [(1, rate) for rate in rates if rate > 0])


def _identify(run: TimedRun) -> Identity:
    return Identity(
        framework="tensorflow1",
        devices=run.read_count("towers"),
        batch_size_per_device=run.read_count("batch_size"),
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": "Training has finished!" is missing."""
    if "end" not in run.facts:
        return f"the log ends after step {run.last[0]}: 'Training has finished!' is missing"
    return ""


start_run = TimedFormat(
    lines=(
        (_EPOCH, _add_epoch),
        _TOWERS,
        if_whole(_THROUGHPUT, _add_rate),
        _END,
    ),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    list_printed=_list_printed,
).start_run


RULES = (
    PublisherRule(
        "mean of all 'Throughput (samples/sec)' except the first",
        average_lines(1, series="epoch_rates"),
    ),
)
