"""Logs of NVIDIA DeepLearningExamples' TensorFlow 1 BERT pretraining (`throughput_train`).

Every `display_loss_steps` optimizer steps, rank 0 prints the job's rate and the time. Throughput
comes from the times, without the first interval and those that the script excludes from its own
mean ("Skipping time record": the first steps and steps around checkpoints). If the log does not
have the arguments, which give the micro-batches per step, throughput is the harmonic mean of the
printed rates, with the same exclusions. Updates that loss scaling skips count as steps.

A run is complete if it printed its mean, `throughput_train` without a step, and made the steps that
it announced. An announced evaluation must be complete too, though its rate is not used.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, Marks
from dlperf_slurm.logs.patterns import get_precision
from dlperf_slurm.logs.publisher_rules import average_lines, time_between
from dlperf_slurm.logs.timed_run import (
    DLL,
    TimedFormat,
    TimedRun,
    dll_line,
    find_missing_steps,
    take_line,
)
from dlperf_slurm.logs.windows import Window, make_rate_window, make_time_window

_EVALUATION = dll_line("(?P<is_evaluated>)", throughput_val="throughput_val")
_SKIPPED = re.compile(r"(?P<is_skipped>Skipping time record for )")
_LOGGED = r"(?:INFO:tensorflow:|I\d{4} [\d:.]+ \d+ run_pretraining\.py:\d+\] )"
_ARGUMENT = re.compile(rf"{_LOGGED}\s*(?P<name>\w+): (?P<value>\S+)$")
_SENTENCES = re.compile(
    rf"{_LOGGED}Total Training Time = \S+ for Sentences = (?P<sentences>\d{{1,18}})\d*$"
)
# variables of the launch script, as `set -x` prints them
_TRACE = re.compile(r"\++ (?P<name>num_gpus|precision|batch_size)=(?P<value>\w+)$")

SIGNATURE = re.compile(rf"{DLL}(?:Iteration: \d+ | )\s*throughput_train : ")
START = re.compile(rf"{_LOGGED}\*\*\*\*\* Configuaration \*\*\*\*\*")


def _add_step(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a timed step, and note if the script excludes its interval from its own mean."""
    index = len(run.marks.by_rank.get(line.rank, ()))
    take_line(run, line, match)
    is_skipped = run.facts.pop("is_skipped", "") != ""
    if is_skipped and len(run.marks.by_rank[line.rank]) > index:
        run.keep(f"excluded lines of rank {line.rank}", index)


def _add_argument(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store an argument of the script; the first value of a name counts."""
    run.facts.setdefault(match.group("name"), match.group("value"))


def _identify(run: TimedRun) -> Identity:
    batch_size = run.read_count("train_batch_size")
    micro_batches = run.read_count("num_train_steps") * run.read_count("num_accumulation_steps")
    samples = micro_batches * batch_size
    devices = run.read_count("sentences") // samples if samples else 0
    return Identity(
        framework="tensorflow1",
        model="bert",
        devices=devices or run.read_count("num_gpus"),
        batch_size_per_device=batch_size or run.read_count("batch_size"),
        precision=get_precision(run.facts, "amp", "manual_fp16") or run.find_precision("precision"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the measured interval by the times of steps, or else by the printed rates.

    Intervals that the script excludes from its own mean are left out.
    """
    micro_batches = run.read_count("num_accumulation_steps")
    skipped = run.series.get(f"excluded lines of rank {rank}", [])
    if not micro_batches:
        return _list_printed(run, rank, marks)
    # each excluded line begins a new "epoch", so that the interval before it is left out
    numbered = [
        mark._replace(position=(sum(each <= index for each in skipped), *mark.position))
        for index, mark in enumerate(marks)
    ]
    return make_time_window(rank, numbered, micro_batches=micro_batches)


def _list_printed(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the window by the printed rates, without those that the script itself excludes."""
    skipped = run.series.get(f"excluded lines of rank {rank}", [])
    warm = [mark for index, mark in enumerate(marks) if index > 0 and index not in skipped]
    return make_rate_window(rank, [(1, mark.value) for mark in warm])


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": its mean, evaluation or last steps are missing."""
    problem = run.find_unended_ranks("the line with the mean throughput is")
    if not problem and run.is_true("do_eval") and "is_evaluated" not in run.facts:
        problem = "the log ends before the end of the evaluation after training"
    steps, interval = run.read_count("num_train_steps"), run.read_count("display_loss_steps")
    return problem or find_missing_steps(run.last[0], steps, interval)


start_run = TimedFormat(
    lines=(
        dll_line(r"Iteration: (?P<step>\d{1,15}) ", _add_step, rate="throughput_train"),
        dll_line("", rate="throughput_train"),
        _EVALUATION,
        _SKIPPED,
        (_ARGUMENT, _add_argument),
        _TRACE,
        _SENTENCES,
    ),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    list_printed=_list_printed,
    make_marks=lambda: Marks(may_repeat=True),
).start_run

RULES = (
    PublisherRule("arithmetic mean of all rates", average_lines(0)),
    PublisherRule("DLPerf: samples / time between iterations 20 and 120", time_between(20, 120)),
)
