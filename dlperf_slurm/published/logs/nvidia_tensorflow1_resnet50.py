"""Logs of NVIDIA DeepLearningExamples' TensorFlow 1 ResNet-50 v1.5 (`total_ips` of DLLogger).

After its own `warmup_steps`, rank 0 prints the job's rate and the time every `display_every` steps.
Throughput comes from the times, from the first line on; nothing else is left out. Scripts of 2020
call the rate `imgs_per_sec`.

A run is complete if it printed its mean, `train_throughput`, and reached the last step that it
announced.
"""

import re
from statistics import median

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.patterns import COUNT, get_precision
from dlperf_slurm.logs.publisher_rules import (
    average,
    average_lines,
    take_final,
    take_values,
    time_lines,
)
from dlperf_slurm.logs.timed_run import (
    DLL,
    PARAMETERS,
    TimedFormat,
    TimedRun,
    dll_line,
    find_lacking_steps,
)
from dlperf_slurm.logs.windows import list_between, make_printed_window, make_time_window

_STEP = (
    r"\((?P<epoch>\d{1,9}), (?P<step>\d{1,15})\) ",
    r"(?:Epoch: (?P<epoch>\d{1,9}) )?Iteration: (?P<step>\d{1,15}) ",
)
_RATES = ("total_ips", "imgs_per_sec")
_STEPS = tuple(dll_line(step, rate=rate) for step in _STEP for rate in _RATES)
_END = dll_line(r"(?!\(\d|Epoch|Iteration)", rate="train_throughput")
_DEVICES = re.compile(rf"Num GPUs (?P<devices>{COUNT})$")

START = re.compile(rf"{DLL}PARAMETER arch : \S+  mode : ")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:\(\d+, \d+\)|(?:Epoch: \d+ )?Iteration: \d+) (?:.* )?"
    r"(?:total_ips|imgs_per_sec) : "
    rf"|{DLL}\(\) train_throughput : "
)


def _identify(run: TimedRun) -> Identity:
    return Identity(
        framework="tensorflow1",
        model="resnet50",
        devices=run.read_count("devices"),
        batch_size_per_device=run.read_count("batch_size"),
        precision=get_precision(run.facts, "amp"),
    )


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its closing line or last steps are missing."""
    steps = run.read_count("num_iter") if run.facts.get("iter_unit") == "batch" else 0
    # the last line may be one step before the last step
    interval = max(run.read_count("display_every"), 1) + 1
    return run.find_unended_ranks("train_throughput is") or find_lacking_steps(
        run.last[-1], steps, interval
    )


start_run = TimedFormat(
    lines=(*_STEPS, _END, PARAMETERS, _DEVICES),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_window(rank, marks),
    find_problem=_find_problem,
    list_printed=lambda run, rank, marks: make_printed_window(rank, marks),
).start_run


def _has_all_steps(reading: ParsedRun, identity: Identity) -> bool:
    """Return whether most lines are one step apart, so that NVIDIA's rule for such logs applies."""
    gaps = [steps for steps, _ in list_between(reading.marks)]
    return bool(gaps) and median(gaps) == 1


def _average_100(reading: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: the mean of the first 100 printed rates, each rounded first."""
    rates = take_values([mark.value for mark in reading.marks], 0, 100)
    return round(average([round(rate, 2) for rate in rates]), 2)


RULES = (
    # the first two are NVIDIA's READMEs': for logs with a line per step, and with 30 lines
    PublisherRule("train_throughput", take_final, _has_all_steps),
    PublisherRule("arithmetic mean of values[5:30]", average_lines(5, 30)),
    PublisherRule("DLPerf: arithmetic mean of values[0:100]", _average_100),
    PublisherRule("DLPerf: 99 steps over their time, from the first line", time_lines(1, 100)),
)
