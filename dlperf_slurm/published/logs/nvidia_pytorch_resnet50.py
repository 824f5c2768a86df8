"""Logs of NVIDIA DeepLearningExamples' PyTorch RN50v1.5 (`train.total_ips` of DLLogger).

Rank 0 prints every `print_freq` iterations the job's rate and the time. Throughput is taken from
the times. Left out as warm-up are the first 8 lines of the log, as its publisher does; a log
without so many has its first interval left out. The other rates, `train.compute_ips` without the
wait for data and those of `val.`, are not used.

A run came to its end when the last epoch that it announced has its record and it printed its
summary.
"""

import re

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.patterns import name_precision
from dlperf_slurm.logs.rules import average_lines, take_final, time_lines
from dlperf_slurm.logs.timed_run import DLL, PARAMETERS, TimedFormat, TimedRun, dll_line
from dlperf_slurm.logs.windows import make_printed_window, make_time_window

WARMUP_MARKS = 8

_STEP = dll_line(
    r"Epoch: (?P<epoch>\d{1,9}) Iteration: (?P<step>\d{1,15}) ", rate="train.total_ips"
)
_EPOCH = dll_line(r"Epoch: (?P<epoch>\d{1,9}) ", rate="train.total_ips")
_SUMMARY = dll_line("Summary: ", rate="train.total_ips")
_EPOCHS_TO_RUN = re.compile(r"RUNNING EPOCHS FROM (?P<first_epoch>\d{1,6}) TO (?P<stop>\d{1,6})")

START = re.compile(rf"{DLL}PARAMETER data : .* data_backend : ")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:Epoch: \d+ Iteration: \d+|Summary:) .*train\.total_ips : "
)


def _identify(run: TimedRun) -> Identity:
    return Identity(
        framework="pytorch",
        model="resnet50",
        devices=run.read_count("world_size"),
        batch_size_per_device=run.read_count("batch_size"),
        precision=name_precision(run.facts, "amp", "fp16"),
    )


def _find_problem(run: TimedRun) -> str:
    epochs = range(int(run.facts.get("first_epoch", 0)), int(run.facts.get("stop", 0)))
    unended = [epoch for epoch in epochs if epoch not in run.epoch_ends]
    return run.find_unended_ranks("the summary is") or (
        f"the log has no end of epoch {unended[0]}" if unended else ""
    )


start_run = TimedFormat(
    lines=(_STEP, _EPOCH, _SUMMARY, PARAMETERS, _EPOCHS_TO_RUN),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_window(rank, marks, WARMUP_MARKS),
    find_problem=_find_problem,
    list_printed=lambda run, rank, marks: make_printed_window(rank, marks, WARMUP_MARKS),
).start_run

RULES = (
    Rule("arithmetic mean of values[9:]", average_lines(9), lambda _, run: run.devices == 1),
    Rule("summary", take_final, lambda _, run: run.devices > 8),
    Rule("arithmetic mean of values[8:]", average_lines(8)),
    Rule(
        "DLPerf: 100 steps over their time, from the 20th iteration after 5",
        time_lines(20, 120, after_step=5),
    ),
)
