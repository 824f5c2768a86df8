"""Logs of PyTorch's examples, imagenet/main.py, old ("Prec@1") and new, and of its descendants.

Every rank prints, without a label of its own, at every `print-freq`th batch the time of that batch
and, in brackets, the mean since the epoch began. Where each batch is printed, times are added up;
else they come from the means. The log does not tell the batch size, nor how many nodes there were.

Only the first epoch is taken: the log does not tell how many there were to be, and so a log that
lost later epochs gives the same figure. Left out as warm-up are its first 20 batches, or a quarter
of an epoch that has fewer than 80. A run came to its end when each rank printed all that it was to
print of its last epoch.
"""

import re
from typing import Dict, List, Sequence, Set, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values
from dlperf_slurm.logs.reading.intervals import Interval, make_seconds_windows
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.patterns import COUNT, DECIMAL, LOGGER_PREFIX
from dlperf_slurm.logs.reading.rank_lines import Entry, RankLines, merge_unlabelled

_BATCH = re.compile(
    LOGGER_PREFIX + rf"Epoch: \[({COUNT})\]\[\s*({COUNT})/({COUNT})\]"
    rf"\s+Time\s+({DECIMAL}) \(\s*({DECIMAL})\)"
    rf"\s+Data\s+{DECIMAL} \(\s*{DECIMAL}\)\s+Loss\s+\S+ \("
)
_MODEL = re.compile(r"=> (?:creating model|using pre-trained model) '(\w+)'")
_DEVICE = re.compile(rf"Use GPU: ({COUNT}) for training$")

SIGNATURE = _BATCH
START = None


class _Run:
    def __init__(self) -> None:
        self._batches = RankLines()
        self._batches_per_epoch = 0
        self._model = ""
        self._gpus: Set[Tuple[int, int]] = set()
        self._times_after_fifth: List[float] = []

    @property
    def is_under_way(self) -> bool:
        return bool(self._batches)

    def add(self, line: Line) -> None:
        batch = None if line.is_last_unended else _BATCH.match(line.text)
        if batch is not None:
            epoch, index, self._batches_per_epoch = (int(batch.group(n)) for n in (1, 2, 3))
            times = (float(batch.group(4)), float(batch.group(5)))
            self._batches.add(line, (epoch, index), times)
            if index > 5:
                self._times_after_fifth.append(times[0])
            return
        model, device = _MODEL.match(line.text), _DEVICE.match(line.text.rstrip())
        if model is not None:
            self._model = model.group(1)
        elif device is not None:
            self._gpus.add((line.rank, int(device.group(1))))

    def finish(self) -> Reading:
        by_rank = self._batches.list_by_rank()
        windows = [
            window
            for rank, entries in by_rank.items()
            for window in make_seconds_windows(rank, _list_intervals(entries))
        ]
        return Reading(
            identity=Identity(framework="pytorch", model=self._model),
            windows=merge_unlabelled(windows),
            series={"times_after_fifth": tuple(self._times_after_fifth)},
            problem=self._find_problem(by_rank),
        )

    def _find_problem(self, by_rank: Dict[int, List[Entry]]) -> str:
        if not by_rank:
            return "the log holds no timed step"
        problem = self._batches.find_problem()
        if problem:
            return problem
        gpus = len(self._gpus)
        # without labels, nodes whose GPUs have the same numbers may share a log
        if gpus and len(by_rank) % gpus != 0:
            return f"{len(by_rank)} ranks print times, {gpus} took up a GPU"
        entries = next(iter(by_rank.values()))
        epoch, last = entries[-1].position
        if last + _find_print_interval(entries) <= self._batches_per_epoch - _find_base(entries):
            return f"the log ends in epoch {epoch}, at batch {last} of {self._batches_per_epoch}"
        return ""


def _find_base(entries: Sequence[Entry]) -> int:
    """What to add to a batch's number to count batches: they begin with 0, since 2022 with 1."""
    return 1 if entries[0].position[1] == 0 else 0


def _find_print_interval(entries: Sequence[Entry]) -> int:
    """Batches between two lines; one epoch of a single line tells none."""
    positions = [entry.position for entry in entries]
    for before, after in zip(positions, positions[1:]):
        if before[0] == after[0]:
            return after[1] - before[1]
    return 1


def _list_intervals(entries: Sequence[Entry]) -> List[Interval]:
    """The first epoch's (steps, seconds); positions are (epoch, batch), values (time, mean)."""
    epoch = [entry for entry in entries if entry.position[0] == entries[0].position[0]]
    base = _find_base(entries)
    intervals, done, elapsed = [], 0, 0.0
    for entry in epoch:
        count = entry.position[1] + base
        steps = count - done
        total = elapsed + entry.values[0] if steps == 1 else entry.values[1] * count
        intervals.append((steps, total - elapsed))
        done, elapsed = count, total
    return intervals


def start_run() -> _Run:
    return _Run()


def _average_dlperf(reading: Reading, identity: Identity) -> float:
    times = take_values(reading.series["times_after_fifth"], 20, 120)
    if average(times) <= 0 or identity.global_batch_size <= 0:
        raise RuleError("takes times above 0, and a batch size")
    return round(identity.global_batch_size / average(times), 2)


RULES = (
    Rule(
        "DLPerf: global batch size over the mean of times[20:120], of all after batch 5",
        _average_dlperf,
    ),
)
