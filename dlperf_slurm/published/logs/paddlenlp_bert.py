"""Logs of PaddleNLP's BERT pretraining (`ips: ... sequences/sec`, static graph, of 2021 to 2023).

Every `logging_steps` steps, a device prints its own rate since the line before; the log has no
times. Throughput is the harmonic mean of these rates times the devices. Left out as warm-up are the
first 10 lines, as the publisher does; of a log with fewer lines, the first line.

The log has no closing line: a run is complete if it made `max_steps` steps and the line that shows
this is not cut short. Without the arguments in the log, only the command that follows the run can
give that number.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import NUMBER, get_precision
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, find_missing_steps, if_whole
from dlperf_slurm.logs.windows import Window, list_between, make_rate_window

WARMUP_LINES = 10

# "tobal" is the script's own spelling of 2021
_HEAD = r"(?:\[.{0,60}\] - )?(?:tobal|total|global) step:? "
_STEP = re.compile(
    rf"{_HEAD}(?P<step>\d{{1,15}}), epoch: \d+, batch: \d+, loss: \S+, .*"
    rf"ips: (?P<rate>{NUMBER}) seq(?:uence)?s?/s(?:ec)?$"
)
_NAMESPACE = re.compile(r"Namespace\((?P<namespace>.*)\)")
_COMMAND = re.compile(r"(?=.*--max_steps )python\S{0,40} .*run_pretrain")
_OPTION = re.compile(r"--(\w+)[ =](\S+)")

SIGNATURE = re.compile(_HEAD + r"\d+, epoch: .*ips: \S{1,60} seq")
START = re.compile(r"Namespace\(.*max_predictions_per_seq=")


def _add_command(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the options of a launch command as facts; printed arguments take precedence."""
    for name, value in _OPTION.findall(line.text):
        run.facts.setdefault(name, value)
    run.facts["is launched"] = str("paddle.distributed.launch" in line.text)


def _identify(run: TimedRun) -> Identity:
    gpus = run.facts.get("gpus", "")
    devices = 1 if run.facts.get("is launched") == "False" else 0
    if gpus and "ips" not in run.facts:
        devices = gpus.count(",") + 1
    return Identity(
        framework="paddle",
        model="bert",
        devices=devices,
        batch_size_per_device=run.read_count("batch_size"),
        precision=get_precision(run.facts, "use_amp", "use_pure_fp16"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return a device's window (measured steps) by its printed rates, without the first 10 lines.

    Of a log with at most 10 lines, only the first is left out. The tuple has one Window, or none.
    """
    first = WARMUP_LINES if len(marks) > WARMUP_LINES else 1
    return make_rate_window(rank, list_between(marks[first - 1 :]), is_per_device=True)


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": it has fewer steps than `max_steps`."""
    steps = run.read_count("max_steps")
    found = min(marks[-1].position[0] for marks in run.marks.by_rank.values())
    if not steps:
        return f"the log has {found} steps, but does not state how many were planned"
    return find_missing_steps(found, steps, run.read_count("logging_steps"))


start_run = TimedFormat(
    lines=(
        _STEP,
        _NAMESPACE,
        if_whole(_COMMAND, _add_command),
    ),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
).start_run

RULES = (
    PublisherRule("devices x arithmetic mean of rates[10:]", average_lines(10, is_per_device=True)),
    PublisherRule("devices x arithmetic mean of rates[9:]", average_lines(9, is_per_device=True)),
)
