"""Logs of OneFlow-Benchmark's of_cnn_train_val.py (ResNet-50 of DLPerf).

The master prints the script's arguments ("name = value"), and every `loss_print_every_n_iter`
iterations the job's rate since the last such line and, since August 2020, the time in seconds.
"validation:" lines are of other work. Throughput is taken from the times within an epoch, or from
the rates where there are none. Left out as warm-up is the first interval of every epoch: no line
has the time of its beginning, and that of the first holds the set-up.

A run came to its end when it has all epochs that its arguments announce, each to its last line.
"""

import re

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.patterns import COUNT, NUMBER, name_precision
from dlperf_slurm.logs.rules import average_lines, time_between
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, if_whole
from dlperf_slurm.logs.windows import make_printed_window, make_time_or_rate_window

_TRAIN = re.compile(
    rf"train: epoch (?P<epoch>{COUNT}), iter (?P<step>{COUNT}), loss: \S+, top_1: \S+, "
    rf"top_k: \S+, samples/s: (?P<rate>{NUMBER})(?: (?P<unix_time>\d{{9,11}}\.\d+))?\s*$"
)
_ARGUMENT = re.compile(r"(?P<name>\w+) = (?P<value>.*\S)\s*$")

SIGNATURE = re.compile(r"train: epoch \d+, iter \d+, loss: \S+, top_1: \S+, top_k: \S+, samples/s:")
START = re.compile(r"Running \w+: num_gpu_per_node = \d+, num_nodes = \d+\.")


def _identify(run: TimedRun) -> Identity:
    nodes = run.read_count("num_nodes")
    return Identity(
        framework="oneflow",
        model=run.facts.get("model", ""),
        nodes=nodes,
        devices=nodes * run.read_count("gpu_num_per_node"),
        batch_size_per_device=run.read_count("batch_size_per_device"),
        precision=name_precision(run.facts, "use_fp16"),
    )


def _find_problem(run: TimedRun) -> str:
    per_epoch, epochs = _count_lines_per_epoch(run), run.read_count("num_epochs", "num_epoch")
    if not per_epoch or not epochs:
        return "the log does not tell how many iterations there were to be (its arguments)"
    found = [mark.position[0] for mark in run.first_marks]
    epoch, iteration = run.first_marks[-1].position
    if len(set(found)) < epochs or found.count(epoch) < per_epoch:
        return f"the log ends in epoch {epoch} at iteration {iteration}, before the run does"
    return ""


def _count_lines_per_epoch(run: TimedRun) -> int:
    """The images of an epoch over those of a line; 0 if the log does not tell."""
    per_iteration = _identify(run).global_batch_size
    if not per_iteration:
        return 0
    # the script rounds the iterations of an epoch up
    iterations = -(-run.read_count("num_examples") // per_iteration)
    return iterations // (run.read_count("loss_print_every_n_iter") or 1)


start_run = TimedFormat(
    lines=(if_whole(_TRAIN),),
    announcements=(_ARGUMENT,),
    identify=_identify,
    make_windows=lambda run, rank, marks: make_time_or_rate_window(rank, marks),
    find_problem=_find_problem,
    list_printed=lambda run, rank, marks: make_printed_window(rank, marks),
    is_of_job=True,
).start_run

RULES = (
    Rule(
        "DLPerf: global batch size x 100 over the time from step 20 to step 120",
        time_between(20, 120),
    ),
    Rule("OneFlow-Benchmark: mean of the printed rates but the first", average_lines(1, digits=3)),
)
