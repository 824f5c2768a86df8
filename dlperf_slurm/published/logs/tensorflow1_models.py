"""Logs of TensorFlow 1's official models (official/r1/resnet) by ExamplesPerSecondHook.

At regular steps, the chief prints its rate since the line before and its average since the start,
as "Benchmark metric: {'name': 'current_examples_per_sec', ...}" or, before 2018, as "Average
examples/sec: 310.2 (312.5), step = 100" with the current rate in brackets. The rate is the whole
job's on one host. Intervals that begin in the first 20 steps are left out as warm-up.

Training runs in cycles, each of which ends with "Loss for final step". A run is complete if all
cycles announced ("Starting cycle: 0/1") ended; evaluation between them prints no rates.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, GLOG_TIME, NUMBER, join_patterns, parse_number
from dlperf_slurm.logs.publisher_rules import RuleError
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, if_whole, take_line
from dlperf_slurm.logs.windows import Window, count_steps, make_warm_rate_window

_PREFIX = rf"(?:INFO:tensorflow:|{GLOG_TIME} .{{0,60}}?\] )"
_METRIC = _PREFIX + r"Benchmark metric: \{'name': "
_CURRENT = re.compile(
    _METRIC + rf"'current_examples_per_sec', 'value': (?P<rate>{NUMBER}), "
    rf".{{0,80}}?'global_step': (?P<step>{COUNT}),"
)
_AVERAGE = re.compile(_METRIC + rf"'average_examples_per_sec', 'value': (?P<average>{NUMBER}), ")
# the line until 2018
_BOTH = re.compile(
    _PREFIX + rf"Average examples/sec: (?P<average>{NUMBER}) \((?P<rate>{NUMBER})\), "
    rf"step = (?P<step>{COUNT})(?:\s|$)"
)
_CYCLE = re.compile(_PREFIX + rf"Starting (?:a training )?cycle: {COUNT}/(?P<cycles>{COUNT})")
_END = re.compile(_PREFIX + r"Loss for final step: ")

SIGNATURE = join_patterns(_CURRENT, _BOTH)
START = re.compile(_PREFIX + rf"Starting (?:a training )?cycle: 0/{COUNT}")


def _keep_average(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the average rate since the start, for the publisher's rule."""
    run.keep("averages", parse_number(match.group("average")))


def _add_both(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Add a timed line that has both the current and the average rate."""
    _keep_average(run, line, match)
    take_line(run, line, match)


def _end_cycle(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the end of a training cycle by its last step, because `tee` may print it twice."""
    run.ended[-1, run.last[0] if run.marks else 0] = 0.0


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval by the printed rates, without the warm-up."""
    return make_warm_rate_window(
        rank, [(steps, mark.value) for steps, mark in zip(count_steps(marks), marks)]
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": training cycles have not ended."""
    step, cycles = run.last[0], run.read_count("cycles") or 1
    if step not in run.epoch_ends or len(run.ended) < cycles:
        return f"the log ends at step {step}: {len(run.ended)} of {cycles} cycles were completed"
    return ""


start_run = TimedFormat(
    lines=(
        if_whole(_CURRENT),
        (_AVERAGE, _keep_average),
        if_whole(_BOTH, _add_both),
        _CYCLE,
        (_END, _end_cycle),
    ),
    identify=lambda run: Identity(framework="tensorflow1"),
    make_windows=_make_windows,
    find_problem=_find_problem,
).start_run


def _print_average(reading: ParsedRun, identity: Identity) -> float:
    """Return the last average rate that the log prints; raises RuleError if it has none."""
    averages = reading.series.get("averages", ())
    if not averages or averages[-1] <= 0:
        raise RuleError("needs the average that the hook prints, but the log has none")
    return averages[-1]


RULES = (PublisherRule("the last 'average_examples_per_sec' printed", _print_average),)
