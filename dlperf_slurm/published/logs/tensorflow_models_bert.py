"""Logs of TensorFlow 2's official BERT pretraining (run_pretraining.py's "Train Step:" lines).

The chief prints after each loop of steps how many are done of how many, with a time in its logger's
prefix and without a rate. Throughput is taken from the times. Left out as warm-up is the first
line's interval, of whose beginning no line has the time, and what begins in the first 20 steps.
The log does not tell the batch size, the devices only as "Number of cores used".

A run came to its end with the last step that its lines announce.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, GLOG_TIME
from dlperf_slurm.logs.rules import time_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, list_timed, make_warm_window

_STEP = re.compile(
    rf"(?P<time>{GLOG_TIME}) .{{0,80}}\] Train Step: (?P<step>{COUNT})/(?P<steps_in_all>{COUNT})"
    r"  / loss = "
)
_DEVICES = re.compile(rf"\*{{5}} Number of cores used : +(?P<devices>{COUNT})\s*$")

SIGNATURE = _STEP
START = None


def _identify(run: TimedRun) -> Identity:
    return Identity(framework="tensorflow2", model="bert", devices=run.read_count("devices"))


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """The first line's seconds are not known, and always left out with the warm-up."""
    first = [(mark.position[0], 0.0) for mark in marks[:1]]
    return make_warm_window(rank, [*first, *list_timed(marks)])


def _find_problem(run: TimedRun) -> str:
    announced = int(run.facts["steps_in_all"])
    for rank, marks in run.marks.by_rank.items():
        if marks[-1].position[0] < announced:
            whose = f" of rank {rank}" if rank >= 0 else ""
            return f"the log{whose} ends at step {marks[-1].position[0]} of {announced}"
    return ""


start_run = TimedFormat(
    lines=(_DEVICES, _STEP),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
).start_run

RULES = (
    Rule(
        "DLPerf: global batch size x 100 over the time from line 20 to line 120",
        time_lines(20, 120),
    ),
)
