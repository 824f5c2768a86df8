"""Logs of PaddleClas (`ppcls INFO: epoch:0 train step:10 ... ips: ... samples/sec`, since 2021).

Every `print_batch_step` steps, a device prints its own rate, the mean since the epoch began, and
the time in whole seconds. Throughput comes from the times, because running means cannot be merged.
Left out as warm-up are the first 8 lines, as the publisher does (the first interval of a log with
fewer lines), and the first interval of every epoch.

A run is complete if its last epoch ended ("END epoch"), or if its launcher reported success. The
publisher stopped some runs with a signal, which is an end too if training went on until then; a log
whose steps stop before the signal has lost lines.
"""

import re
from typing import Match

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.patterns import DATE_TIME, NUMBER, parse_time, subtract_times
from dlperf_slurm.logs.publisher_rules import average_lines
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import make_time_window

WARMUP_MARKS = 8

_HEAD = rf"\[(?P<time>{DATE_TIME})\] (?:ppcls|root) INFO: "
_STEP = re.compile(
    rf"{_HEAD}epoch:(?P<epoch>\d{{1,9}}) +train +step:(?P<step>\d{{1,15}}) .*"
    rf"[ ,]ips: (?P<rate>{NUMBER}) (?:samples|images)/sec(?:\.|,|$)"
)
_EPOCH_END = re.compile(
    rf"{_HEAD}END epoch:(?P<epoch>\d{{1,9}}) +train .*batch_cost_sum: {NUMBER} s"
)
_SETTING = re.compile(rf"{_HEAD}(?P<indent> *)(?P<name>\w+) : (?P<value>.*)$")
_LAUNCHER = re.compile(
    rf"LAUNCH INFO {DATE_TIME} (?:devices: (?P<devices>.*)|nnodes: (?P<nodes>\d{{1,6}})"
    r"|(?P<end>Exit code 0))$"
)
_STOPPED = re.compile(rf"LAUNCH INFO (?P<stop_time>{DATE_TIME}) Terminating with signal ")

SIGNATURE = re.compile(rf"{_HEAD}epoch:\d+ +train +step:\d+ .*ips: ")
START = re.compile(r"==        PaddleClas is powered by PaddlePaddle !        ==")


def _add_setting(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a line of the printed YAML configuration under its path, as in "Arch.name".

    The indent of a line gives its depth.
    """
    path = run.facts.get("path", "").split(".")[: len(match.group("indent")) // 4]
    run.facts["path"] = ".".join([*path, match.group("name")])
    run.facts.setdefault(run.facts["path"], match.group("value").strip())


def _identify(run: TimedRun) -> Identity:
    nodes, devices = run.read_count("nodes"), run.facts.get("devices", "None")
    is_mixed = run.facts.get("AMP.use_amp", str("AMP" in run.facts)) == "True"
    precision = "amp-fp16" if is_mixed else "fp32"
    return Identity(
        framework="paddle",
        model="resnet50" if run.facts.get("Arch.name") == "ResNet50" else "",
        nodes=nodes,
        devices=nodes * (devices.count(",") + 1) if devices != "None" else 0,
        batch_size_per_device=run.read_count("DataLoader.Train.sampler.batch_size"),
        precision=precision if "path" in run.facts else "",
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": it ends before the last planned epoch does.

    A run stopped by a signal is complete if it made steps until then.
    """
    epochs, marks = run.read_count("Global.epochs"), run.first_marks
    if "end" in run.facts or 0 < epochs == max(run.epoch_ends, default=-1) + 1:
        return ""
    if "stop_time" not in run.facts:
        epoch, step = marks[-1].position
        return (
            f"the log ends in epoch {epoch} of {epochs or 'an unknown number'}, after step {step}"
        )
    gaps = sorted(subtract_times(mark.time, before.time) for before, mark in zip(marks, marks[1:]))
    silence = subtract_times(parse_time(run.facts["stop_time"]), marks[-1].time)
    # times are in whole seconds
    if not gaps or silence > gaps[len(gaps) // 2] + 1:
        return f"the run was stopped {silence:.0f} s after the last step in the log"
    return ""


start_run = TimedFormat(
    lines=(
        _STEP,
        _LAUNCHER,
        _STOPPED,
        _EPOCH_END,
        (_SETTING, _add_setting),
    ),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_window(rank, marks, WARMUP_MARKS),
    find_problem=_find_problem,
).start_run

RULES = (
    PublisherRule(
        "devices x arithmetic mean of rates[10:]",
        average_lines(10, is_per_device=True),
        lambda _, run: run.devices > 8,
    ),
    PublisherRule("devices x arithmetic mean of rates[8:]", average_lines(8, is_per_device=True)),
)
