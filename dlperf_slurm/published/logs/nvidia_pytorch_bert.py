"""Logs of NVIDIA DeepLearningExamples' PyTorch BERT pretraining (DLLogger).

The log has the time of every `log_freq`-th optimizer step, and throughput comes from these times.
What precedes the first of them is left out as warm-up: it has no start time and includes
compilation. The publisher's throughput is the script's own, which includes that part; it is also
ours if the log does not have the arguments, which give the micro-batches per step. Updates that
loss scaling skips are steps here, but not samples in the script's own throughput.

Fine-tuning on SQuAD has no times of steps, and its throughput is the script's own.

A run is complete if it printed `training_sequences_per_second` and made the steps that its
arguments announce.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, Marks
from dlperf_slurm.logs.patterns import NUMBER, get_precision, parse_number, parse_time
from dlperf_slurm.logs.publisher_rules import take_final, time_lines
from dlperf_slurm.logs.timed_run import (
    DLL,
    PARAMETERS,
    TimedFormat,
    TimedRun,
    dll_line,
    find_missing_steps,
    take_line,
)
from dlperf_slurm.logs.windows import Window, make_rate_window, make_time_window

_STEP = (
    r"Training Epoch: \d{1,9} Training Iteration: (?P<step>\d{1,15}) "
    r"(?=(?:.*?\sskipped_steps : (?P<skipped>\d{1,15})(?:\s|$))?)"
)
_END = rf"(?=(?:.*?\sraw_train_time : (?P<raw_seconds>{NUMBER})\s)?)"
_CONFIG = re.compile(rf"{DLL}PARAMETER Config : \[[\"']Namespace\((?P<namespace>.*)\)[\"']\]")
_DEVICE = re.compile(r"device: cuda:(?P<device>\d+) n_gpu: \d+, distributed training: ")

START = re.compile(rf"{DLL}PARAMETER Config : \S{{0,4}}Namespace\(.*phase2=")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:Training Epoch: \d+ Training Iteration: \d+ "
    r"| ?e2e_train_time : .*training_sequences_per_second : )"
)


def _add_step(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a timed step; its number includes updates that loss scaling skipped."""
    run.facts.update({name: text for name, text in match.groupdict().items() if text})
    position = (int(match.group("step")) + run.read_count("skipped"),)
    run.marks.add(line, Mark(position, parse_time(match.group("time"))))


def _end_run(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the run's own throughput (samples/s) and its training time in seconds."""
    take_line(run, line, match)
    run.keep("raw_seconds", parse_number(match.group("raw_seconds") or "0"))


def _identify(run: TimedRun) -> Identity:
    batch_size = run.read_count("batch_size_per_gpu", "train_batch_size")
    return Identity(
        framework="pytorch",
        model="bert",
        devices=_count_devices(run, batch_size) or len(run.devices),
        batch_size_per_device=batch_size,
        precision=get_precision(run.facts, "fp16", "amp"),
    )


def _count_devices(run: TimedRun, batch_size: int) -> int:
    """Compute the device count from the job's printed throughput; 0 if it is not printed.

    The other lines do not tell: processes on several nodes use the same device names, and not all
    their lines need be in the log. `batch_size` is per device.
    """
    steps = run.read_count("step") + run.read_count("skipped")
    samples = steps * batch_size * run.read_count("gradient_accumulation_steps")
    if not samples or "final_rates" not in run.series:
        return 0
    return round(run.series["final_rates"][0] * run.series["raw_seconds"][-1] / samples)


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval by the times of steps, or else the script's own throughput."""
    micro_batches = run.read_count("gradient_accumulation_steps")
    if micro_batches:
        return make_time_window(rank, marks, micro_batches=micro_batches)
    return make_rate_window(-1, [(1, rate) for rate in run.series.get("final_rates", ())])


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its closing line or last steps are missing."""
    announced = run.read_count("steps_this_run", "max_steps")
    return run.find_unended_ranks("the last line is") or find_missing_steps(
        run.read_count("step"), announced
    )


start_run = TimedFormat(
    lines=(
        _CONFIG,
        dll_line(_STEP, _add_step),
        dll_line(_END, _end_run, rate="training_sequences_per_second"),
        PARAMETERS,
        _DEVICE,
    ),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    make_marks=lambda: Marks(may_repeat=True),
    is_total=True,
).start_run

RULES = (
    PublisherRule("training_sequences_per_second", take_final),
    PublisherRule(
        "DLPerf: samples / time between the 20th and the 110th timed step after step 5",
        time_lines(20, 110, after_step=5),
    ),
)
