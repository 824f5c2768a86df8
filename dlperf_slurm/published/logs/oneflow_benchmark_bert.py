"""Logs of OneFlow-Benchmark's BERT run_pretraining.py (DLPerf's), and of OneFlow's models since.

The master prints the script's arguments ("name = value"), and every `loss_print_every_n_iter` steps
the job's rate since the last such line and, since August 2020, the time in seconds. Steps count
from 0. Throughput is taken from the times, or from the rates where there are none. Left out as
warm-up is the first interval: no line has the time of its beginning, and it holds the set-up.

A run came to its end when it has the last line that its arguments announce (`iter_num`).
"""

import re

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.patterns import COUNT, NUMBER, name_precision
from dlperf_slurm.logs.rules import average_lines, time_between
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, find_early_end, if_whole
from dlperf_slurm.logs.windows import make_printed_window, make_time_or_rate_window

_LOSSES = r"total_loss: \S+, mlm_loss: \S+, nsp_loss: \S+"
_STEP = re.compile(
    rf"step: (?P<step>{COUNT}), {_LOSSES}, throughput: (?P<rate>{NUMBER})"
    r"(?:, epoch: \d+)?(?: (?P<unix_time>\d{9,11}\.\d{1,9}))?\s*$"
)
_ARGUMENT = re.compile(r"(?P<name>\w+) = (?P<value>.*\S)\s*$")

SIGNATURE = re.compile(rf"step: \d+, {_LOSSES}, throughput: ")
START = re.compile(r"Running \w+: num_gpu_per_node = \d+, num_nodes = \d+\.")


def _identify(run: TimedRun) -> Identity:
    nodes = run.read_count("num_nodes")
    return Identity(
        framework="oneflow",
        model="bert" if run.read_count("num_hidden_layers") == 12 else "",
        nodes=nodes,
        devices=nodes * run.read_count("gpu_num_per_node"),
        batch_size_per_device=run.read_count("batch_size_per_device"),
        precision=name_precision(run.facts, "use_fp16"),
    )


start_run = TimedFormat(
    lines=(if_whole(_STEP),),
    announcements=(_ARGUMENT,),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_or_rate_window(rank, marks),
    find_problem=lambda run: find_early_end(run, "iter_num", "loss_print_every_n_iter", 0),
    list_printed=lambda run, rank, marks: make_printed_window(rank, marks),
    is_of_job=True,
).start_run

RULES = (
    Rule(
        "DLPerf: global batch size x 100 over the time from step 19 to step 119",
        time_between(19, 119),
    ),
    Rule("OneFlow-Benchmark: mean of the printed rates but the first", average_lines(1, digits=3)),
)
