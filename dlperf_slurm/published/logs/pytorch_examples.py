"""Logs of PyTorch's examples, imagenet/main.py, old ("Prec@1") and new, and of its descendants.

Every `print-freq` batches, each rank prints, without a rank label, the time of that batch and, in
brackets, the mean since the epoch began. If each batch is printed, times are added up; otherwise
they come from the means. The log has neither the batch size nor the node count.

Only the first epoch is used: the log does not have the number of epochs, so that a log that lost
later epochs gives the same throughput. Its first 20 batches are left out as warm-up, or a quarter
of an epoch of fewer than 80. A run is complete if each rank printed all lines of its last epoch.
"""

import re
from typing import List, Match, Sequence, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, RankMarks
from dlperf_slurm.logs.patterns import COUNT, DECIMAL, LOGGER_PREFIX
from dlperf_slurm.logs.publisher_rules import RuleError, average, take_values
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun, if_whole, take_line
from dlperf_slurm.logs.windows import Window, list_between, make_warm_window

_BATCH = re.compile(
    LOGGER_PREFIX + rf"Epoch: \[(?P<epoch>{COUNT})\]\[\s*(?P<step>{COUNT})/(?P<batches>{COUNT})\]"
    rf"\s+Time\s+(?P<seconds>{DECIMAL}) \(\s*(?P<mean>{DECIMAL})\)"
    rf"\s+Data\s+{DECIMAL} \(\s*{DECIMAL}\)\s+Loss\s+\S+ \("
)
_MODEL = re.compile(r"=> (?:creating model|using pre-trained model) '(?P<model>\w+)'")
_DEVICE = re.compile(rf"Use GPU: (?P<device>{COUNT}) for training\s*$")

SIGNATURE = _BATCH
START = None


def _add_batch(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store a timed line, and for DLPerf's rule its seconds, except in the first 5 batches."""
    take_line(run, line, match)
    if int(match.group("step")) > 5:
        run.keep("times_after_fifth", float(match.group("seconds")))


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return a rank's measured interval: the first epoch without its warm-up.

    Seconds are those of single batches, or differences of the epoch's mean times the batches.
    """
    base = _find_base(marks)
    intervals, done, elapsed = [], 0, 0.0
    for mark in marks:
        if mark.position[0] == marks[0].position[0]:
            count = mark.position[1] + base
            steps = count - done
            total = elapsed + mark.value if steps == 1 else mark.mean * count
            intervals.append((steps, total - elapsed))
            done, elapsed = count, total
    return make_warm_window(rank, intervals)


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": ranks or the last lines of an epoch are missing."""
    ranks, gpus, marks = len(run.marks.by_rank), len(run.devices), run.first_marks
    # without labels, nodes whose GPUs have the same numbers may share a log
    if gpus and ranks % gpus != 0:
        return f"{ranks} ranks print times, but 'Use GPU' is printed for {gpus} GPUs"
    (epoch, last), batches = marks[-1].position, int(run.facts["batches"])
    # `print-freq`, unless no epoch has two lines
    interval = next((steps for steps, _ in list_between(marks)), 1)
    if last + interval <= batches - _find_base(marks):
        return f"the log ends in epoch {epoch}, at batch {last} of {batches}"
    return ""


def _find_base(marks: Sequence[Mark]) -> int:
    """Return what to add to batch numbers to count from 1: 1 if the log starts at 0, else 0."""
    return 1 if marks[0].position[1] == 0 else 0


start_run = TimedFormat(
    lines=(if_whole(_BATCH, _add_batch), _MODEL, _DEVICE),
    identify=lambda run: Identity(framework="pytorch", model=run.facts.get("model", "")),
    make_windows=_make_windows,
    find_problem=_find_problem,
    make_marks=RankMarks,
).start_run


def _average_dlperf(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: global batch size over the mean of 100 lines' seconds.

    They are lines 21 to 120 of those after batch 5. Raises RuleError if the log has fewer, times of
    0, or no batch size.
    """
    times = take_values(parsed.series.get("times_after_fifth", ()), 20, 120)
    if average(times) <= 0 or identity.global_batch_size <= 0:
        raise RuleError(
            "the publisher's rule needs batch times above 0, and the batch size: if the log lacks "
            "the batch size, add --set batch_size_per_device=..."
        )
    return round(identity.global_batch_size / average(times), 2)


RULES = (
    PublisherRule(
        "DLPerf: global batch size / mean batch time of lines 21 to 120 after batch 5",
        _average_dlperf,
    ),
)
