"""Logs of ResNet-50 on MXNet with Horovod: GluonCV's train_horovod.py, Horovod's own example.

Every `log_interval` batches, rank 0 prints the job's rate since the line before; at the end of an
epoch it prints the epoch's rate, and every rank its "Time cost". Throughput comes from rank 0's
intervals, without those that begin in the first 20 steps (warm-up).

A run is complete if the last epoch announced (`num_epochs`) has rank 0's epoch rate and the time of
each rank that printed anything. If the log does not have the arguments, only the first epoch is
used, so that a log that lost later epochs gives the same throughput.
"""

import re
from typing import List, Match, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import COUNT, LOGGER_PREFIX, NAMESPACE, NUMBER
from dlperf_slurm.logs.publisher_rules import RuleError, average
from dlperf_slurm.logs.timed_run import TimedFormat, TimedRun
from dlperf_slurm.logs.windows import Window, list_since_last, make_warm_rate_window

_SPEED = re.compile(
    LOGGER_PREFIX + rf"Epoch\[(?P<epoch>{COUNT})\] Batch\[(?P<step>{COUNT})\]"
    rf"\s+Speed: (?P<rate>{NUMBER}) samples/sec"
)
_RANK = re.compile(
    LOGGER_PREFIX + rf"Epoch\[({COUNT})\] Rank\[({COUNT})\] Batch\[\d+\]\s+(Time cost=\d)?"
)
_EPOCH = re.compile(
    LOGGER_PREFIX + rf"Epoch\[(?P<rated_epoch>{COUNT})\]\s+Speed: {NUMBER} samples/sec"
)
_MODELS = {"resnet50_v1b": "resnet50", "resnet50_v1": "resnet50-v1"}

SIGNATURE = _SPEED
START = re.compile(LOGGER_PREFIX + NAMESPACE)


def _add_rank(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the rank of a line, and the end of its epoch if the line has its "Time cost"."""
    epoch, rank, time = match.groups()
    run.devices.add((-1, rank))
    if time:
        run.ended[int(rank), int(epoch)] = 0.0


def _identify(run: TimedRun) -> Identity:
    model = run.facts.get("model", "")
    return Identity(
        framework="mxnet",
        model=_MODELS.get(model, model),
        devices=len(run.devices),
        batch_size_per_device=run.read_count("batch_size"),
        precision=run.find_precision("dtype"),
    )


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Return rank 0's measured interval from its rates, without those of the warm-up.

    Uses the first epoch only, if the log does not say how many there were to be.
    """
    is_announced = run.read_count("num_epochs") > 0
    timed = [mark for mark in marks if is_announced or mark.position[0] == marks[0].position[0]]
    return make_warm_rate_window(rank, list_since_last(timed))


def _find_problem(run: TimedRun) -> str:
    """Return why the log is incomplete, or "": an epoch's rate or a rank's time is missing."""
    epoch, batch = run.last
    if int(run.facts.get("rated_epoch", -1)) != epoch:
        return f"the log ends in epoch {epoch} at batch {batch}: the epoch's rate is missing"
    missing = sorted(int(rank) for _, rank in run.devices if (int(rank), epoch) not in run.ended)
    if missing:
        return f"epoch {epoch} has no 'Time cost' of ranks {', '.join(map(str, missing))}"
    announced = run.read_count("num_epochs")
    if epoch + 1 < announced:
        return f"the log ends after epoch {epoch}, but the last planned epoch is {announced - 1}"
    return ""


start_run = TimedFormat(
    lines=(_SPEED, (_RANK, _add_rank), _EPOCH, START),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    is_of_job=True,
).start_run


def _average_dlperf(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput: the mean rate of lines 21 to 120 of the first epoch.

    Raises RuleError unless that epoch has 120 lines.
    """
    rates = [mark.value for mark in parsed.marks if mark.position[0] == 0]
    if len(rates) != 120:
        raise RuleError(
            "the publisher's rule needs 120 lines with a speed in the first epoch, but the log has "
            f"{len(rates)}"
        )
    return round(average(rates[20:]), 2)


RULES = (PublisherRule("DLPerf: arithmetic mean of rates[20:120]", _average_dlperf),)
