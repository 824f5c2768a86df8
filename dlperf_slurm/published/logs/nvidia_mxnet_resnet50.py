"""Logs of NVIDIA DeepLearningExamples' MXNet RN50v1.5, of 2020 (Speed lines) and of DLLogger.

Every `disp_batches` steps, a rank prints the job's rate since the line before; with DLLogger only
rank 0 does. Throughput comes from the times of lines, from the start of an epoch to its record, or
to its last step if the record includes a validation. As the publishers do, the first epoch is left
out as warm-up; of a single epoch, only the first interval, whose start time is not in the log. An
epoch's own rate, of which publishers take means, is the rate since the run began: by the times of
some logs it is 5 % off.

A run is complete if it says so ("Summary:", or "Experiment took" of 2020) and has all epochs that
its parameters announce, each up to the same step.
"""

import re
from typing import Dict, List, Match, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import DATE_TIME, NUMBER, PRECISIONS, parse_time
from dlperf_slurm.logs.publisher_rules import average_epochs, round_significantly, time_steps
from dlperf_slurm.logs.timed_run import (
    DLL,
    PARAMETERS,
    TimedFormat,
    TimedRun,
    dll_line,
    take_line,
)
from dlperf_slurm.logs.windows import Window, make_printed_window, make_time_window

_STEP = dll_line(r"Epoch: (?P<epoch>\d{1,9}) Iteration: (?P<step>\d{1,15}) ", rate="train.ips")
_EPOCH = r"Epoch: (?P<epoch>\d{1,9})  "
_SUMMARY = dll_line("Summary: ", rate="train.ips")
_SPEED = re.compile(
    rf"(?P<time>{DATE_TIME}):INFO: Epoch\[(?P<epoch>\d{{1,9}})\] Batch \[\d+-(?P<step>\d{{1,15}})\]"
    rf"\tSpeed: (?P<rate>{NUMBER}) samples/sec\tLR:"
)
_ARGUMENTS = re.compile(rf"{DATE_TIME}:INFO: Start with arguments Namespace\((?P<namespace>.*)\)")
_STARTING = re.compile(rf"(?P<time>{DATE_TIME}):INFO: Starting epoch (?P<epoch>\d{{1,9}})$")
_TOOK = re.compile(rf"{DATE_TIME}:INFO: Experiment took: \S+ sec")

_EPOCHS = ("run_epochs", "num_epochs")

SIGNATURE = re.compile(
    rf"(?:{DLL}PARAMETER arch : \S+  num_layers : .*  kv_store : "
    rf"|{DLL}Epoch: \d+ Iteration: \d+  train\.loss : \S+  train\.ips : \S+ images/s "
    r"|" + _SPEED.pattern + r")"
)
START = re.compile(rf"{DLL}PARAMETER arch : |{_ARGUMENTS.pattern}")


def _end_epoch(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the line that ends an epoch of the first rank; its time if it has no validation."""
    if line.rank == next(iter(run.marks.by_rank), line.rank):
        take_line(run, line, match)
        # a record with validation has a time after the validation
        if "val." not in line.text:
            epoch = int(match.group("epoch"))
            run.keep(f"end of epoch {epoch} on rank {line.rank}", parse_time(match.group("time")))


def _start_epoch(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the time at which an epoch of a rank starts."""
    epoch = int(match.group("epoch"))
    run.keep(f"start of epoch {epoch} on rank {line.rank}", parse_time(match.group("time")))


def _identify(run: TimedRun) -> Identity:
    devices = max(_count_gpus(run) if "gpus" in run.facts else 0, len(run.ranks - {-1}))
    batch_size = run.read_count("batch_size")
    is_whole = devices > 0 and batch_size % devices == 0
    return Identity(
        framework="mxnet",
        model="resnet50",
        devices=devices,
        batch_size_per_device=batch_size // devices if is_whole else 0,
        precision=PRECISIONS.get("amp" if run.is_true("amp") else run.facts.get("dtype", ""), ""),
    )


def _count_gpus(run: TimedRun) -> int:
    """Return the number of GPUs that the script's arguments list, at least 1."""
    return run.facts.get("gpus", "").count(",") + 1


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return a rank's measured interval: all epochs but the first, each from its start to its end.

    An epoch ends with its closing line. A single epoch is used from its first line on.
    """
    bounded: List[Mark] = []
    for mark, following in zip(marks, (*marks[1:], None)):
        epoch = mark.position[0]
        if epoch == marks[0].position[0] != marks[-1].position[0]:
            continue
        of_epoch = f"of epoch {epoch} on rank {rank}"
        if not bounded or bounded[-1].position[0] != epoch:
            start = run.series.get(f"start {of_epoch}", [mark.time])[-1]
            bounded.append(Mark((epoch, -1), min(start, mark.time)))
        if following is None or following.position[0] != epoch:
            end = run.series.get(f"end {of_epoch}", [mark.time])[-1]
            mark = mark._replace(time=max(end, mark.time))
        bounded.append(mark)
    return make_time_window(rank, bounded)


def _list_printed(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return the window by the printed rates, for the same epochs as `_make_windows`."""
    first, last = marks[0].position[0], marks[-1].position[0]
    return make_printed_window(rank, [m for m in marks if m.position[0] != first or first == last])


def _list_line_times(run: TimedRun) -> Dict[str, List[float]]:
    """Return {"line_times": times}, sorted times of all ranks' lines, for DLPerf's rule.

    Empty unless a line is printed for each step (`disp_batches`).
    """
    if run.read_count("disp_batches") != 1:
        return {}
    times = [mark.time for marks in run.marks.by_rank.values() for mark in marks]
    return {"line_times": sorted(times)}


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": it lacks ranks, epochs, steps or its last lines."""
    absent = sorted(set(range(_count_gpus(run))) - set(run.marks.by_rank))
    if len(run.marks.by_rank) > 1 and absent:
        return f"the log has no timed step of ranks {', '.join(map(str, absent))}"
    problem, epochs = run.find_unended_ranks("the last line is"), run.read_count(*_EPOCHS)
    for rank, marks in run.marks.by_rank.items():
        last_steps = {mark.position[0]: mark.position[-1] for mark in marks}
        if epochs and len(last_steps) != epochs:
            problem = problem or f"the log has {len(last_steps)} of {epochs} epochs of rank {rank}"
        if len(set(last_steps.values())) > 1:
            problem = problem or (
                f"the epochs of rank {rank} end after different steps: {last_steps}"
            )
    return problem


start_run = TimedFormat(
    lines=(
        _STEP,
        dll_line(_EPOCH, _end_epoch, rate="train.ips"),
        _SUMMARY,
        PARAMETERS,
        _SPEED,
        _ARGUMENTS,
        (_STARTING, _start_epoch),
        (_TOOK, lambda run, line, match: run.ended_ranks.add(line.rank)),
    ),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    list_printed=_list_printed,
    make_series=_list_line_times,
).start_run


def _time_100_steps(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput in samples/s, from the time between steps 20 and 120.

    Like DLPerf's script, it counts the lines of all ranks, sorted by time. Raises RuleError if the
    log has fewer lines, or no batch size.
    """
    devices, times = max(identity.devices, 1), parsed.series.get("line_times", ())
    rate = time_steps(times, 20 * devices, 120 * devices, identity.batch_size_per_device)
    return round(rate, 2)


RULES = (
    PublisherRule(
        "harmonic mean of the rates of all epochs except the first, 5 significant digits",
        lambda parsed, identity: round_significantly(average_epochs(parsed, identity), 5),
    ),
    PublisherRule(
        "DLPerf: global batch size x 100 / time from step 20 to step 120", _time_100_steps
    ),
)
