"""Logs of TensorFlow 2's official image classification (`TimeHistory` of classifier_trainer).

Every `log_steps` steps, the chief prints the job's rate since the line before. Throughput comes
from the lines' times. The first interval is left out as warm-up: it has no start time in the log,
and graphs are built in it.

A run is complete if its "Run stats" are whole and its last line is that of the last step announced.
Steps after the last multiple of `log_steps` may have no line.
"""

import re
from typing import Match

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.patterns import GLOG_TIME, NUMBER
from dlperf_slurm.logs.publisher_rules import average_lines, take_values, time_steps
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, find_missing_steps, take_line
from dlperf_slurm.logs.windows import make_printed_window, make_time_window

_TIMED = rf"(?P<time>{GLOG_TIME}) .{{0,80}}\] "
_HISTORY = re.compile(
    _TIMED + rf"TimeHistory: {NUMBER} seconds, (?P<rate>{NUMBER}) examples/second "
    r"between steps \d+ and (?P<step>\d{1,15})"
)
_METRIC = re.compile(
    _TIMED + rf"BenchmarkMetric: \{{'global step': ?(?P<step>\d{{1,15}}), 'time_taken': {NUMBER}, ?"
    rf"'examples_per_second': (?P<rate>{NUMBER})\}}"
)
_FINAL_PARAMETERS = re.compile(rf"{GLOG_TIME} .{{0,80}}\] Final model parameters: ")
_OTHER_MESSAGE = re.compile("[IWE]")
_STATS = re.compile(r"\{'.*'train_finish_time'.*\}\s*$")
_DICTIONARY = re.compile(r"\{?'")
_SECTION = re.compile(r"\{?'(runtime|train|train_dataset|validation_dataset|model|evaluation)': \{")
_SETTING = re.compile(r"'(\w+)': ('[^']*'|[\w.+-]+)")

START = re.compile(rf"{GLOG_TIME} \d+ classifier_trainer\.py:\d+\] Base params: ")
SIGNATURE = re.compile(
    rf"{START.pattern}|(?:{GLOG_TIME} .{{0,80}}\] |INFO:tensorflow:)"
    r"(?:TimeHistory: .* examples/second between steps |BenchmarkMetric: \{'global step')"
)


def _begin_settings(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Remove all facts of the run, because a line announces a new run, whose settings follow."""
    run.facts.clear()
    run.facts["section"] = "evaluation"


def _add_timed(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    _end_settings(run, line, match)
    take_line(run, line, match)


def _end_settings(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Mark the end of the printed settings: lines that follow have none."""
    run.facts.pop("section", None)


def _add_settings(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the settings on a line as "section.name", such as "train_dataset.batch_size".

    They are printed as a nested dictionary over many lines. "Run stats", which look alike, end the
    run of a rank.
    """
    if match.re is _STATS:
        run.ended_ranks.add(line.rank)
    if "section" not in run.facts:
        return
    section = _SECTION.match(line.text)
    if section is not None:
        run.facts["section"] = section.group(1)
    for name, value in _SETTING.findall(line.text):
        run.facts.setdefault(f"{run.facts['section']}.{name}", value.strip("'"))
    if run.facts["section"] == "model" and line.text.startswith("'name': 'resnet"):
        run.facts["is resnet"] = "True"


def _identify(run: TimedRun) -> Identity:
    has_runtime = any(name.startswith("runtime.") for name in run.facts)
    hosts = run.facts.get("runtime.worker_hosts", "None")
    nodes = 1 if hosts == "None" else hosts.count(",") + 1
    devices = nodes * run.read_count("runtime.num_gpus")
    batch_size = run.read_count("train_dataset.batch_size")
    # if this line is lost, it is unknown whether the batch size is per device
    per_replica = run.facts.get("train_dataset.use_per_replica_batch_size")
    if per_replica is None:
        batch_size = 0
    elif per_replica.lower() != "true":
        batch_size = batch_size // devices if devices and batch_size % devices == 0 else 0
    return Identity(
        framework="tensorflow2",
        model="resnet50" if "is resnet" in run.facts else "",
        nodes=nodes if has_runtime else 0,
        devices=devices,
        batch_size_per_device=batch_size,
        precision=run.find_precision("train_dataset.dtype"),
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its run stats or last steps are missing."""
    steps = run.read_count("train.steps") * max(run.read_count("train.epochs"), 1)
    interval = run.read_count("train.log_steps")
    return run.find_unended_ranks("the 'Run stats' are") or find_missing_steps(
        run.last[0], steps, interval
    )


start_run = TimedFormat(
    lines=(
        (_STATS, _add_settings),
        (_DICTIONARY, _add_settings),
        (_FINAL_PARAMETERS, _begin_settings),
        (_HISTORY, _add_timed),
        (_METRIC, _add_timed),
        (_OTHER_MESSAGE, _end_settings),
    ),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_window(rank, marks),
    find_problem=_find_problem,
    list_printed=lambda run, rank, marks: make_printed_window(rank, marks),
).start_run


def _time_5_intervals(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: the samples of 5 intervals between lines over their time.

    Raises RuleError if the log has fewer than 6 lines, or no batch size.
    """
    marks = take_values(parsed.marks, 0, 6)
    steps = marks[5].position[0] - marks[0].position[0]
    samples = steps // 5 * identity.global_batch_size
    return round(time_steps([mark.time for mark in marks], 1, 6, samples), 2)


RULES = (
    PublisherRule("arithmetic mean of rates[1:6], 2 decimals", average_lines(1, 6, digits=2)),
    PublisherRule(
        "DLPerf: samples / time between line 1 and line 6, 2 decimals", _time_5_intervals
    ),
)
