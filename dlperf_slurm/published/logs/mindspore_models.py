"""Logs of MindSpore's model zoo, ResNet and BERT (TimeMonitor's "epoch time: ... per step time:").

After every epoch, or every `data_sink_steps` steps, each rank prints, without a rank label, the
total time and the time per step: their quotient is the number of steps. Losses are on lines of
their own, by which ranks are counted. Intervals that begin in the first 20 steps are left out as
warm-up.

A run is complete if each rank has all steps announced (the argument `train_steps`), or the last
epoch in logs that print "epoch: [3/90]".
"""

import re
from typing import Dict, List, Match, Tuple

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, RankMarks
from dlperf_slurm.logs.patterns import (
    COUNT,
    LOGGER_PREFIX,
    NAMESPACE,
    NUMBER,
    PRECISIONS,
    parse_namespace,
    parse_number,
    read_count,
)
from dlperf_slurm.logs.publisher_rules import RuleError
from dlperf_slurm.logs.windows import Interval, make_warm_window, merge_unlabelled

_TIME = re.compile(
    LOGGER_PREFIX
    + rf"(?:(?:Train )?epoch time: |epoch: \[({COUNT})/({COUNT})\] loss: \S+ epoch time: )"
    rf"({NUMBER}) (ms|s), per step time: ({NUMBER}) ms"
)
_LOSS = re.compile(
    rf"epoch: ({COUNT}),?( current epoch percent: \S+)? step: ({COUNT}), (?:loss is|outputs are) "
)
_ARGUMENTS = re.compile(LOGGER_PREFIX + r"(?:args_opt: )?" + NAMESPACE)

SIGNATURE = _TIME
START = _ARGUMENTS


class _Run:
    """The state of parsing one run: its times, and the loss lines by which ranks are counted."""

    def __init__(self) -> None:
        # timed lines; the position of a Mark is the epoch, 0 if the line has none
        self._times: List[Tuple[LogLine, Mark]] = []
        self._loss_lines: Dict[Tuple[int, int, int], int] = {}
        self._step = 0
        self._timed_steps: List[float] = []
        self._parameters: Dict[str, str] = {}
        self._epochs = 0
        self._has_bert_outputs = False

    def is_under_way(self, rank: int) -> bool:
        """Return whether a rank (-1: any rank) has printed a time in this run."""
        return any(rank in (-1, line.rank) for line, _ in self._times)

    def add(self, line: LogLine) -> None:
        time, loss = _TIME.match(line.text), _LOSS.match(line.text)
        arguments = _ARGUMENTS.match(line.text)
        if time is not None:
            self._epochs = int(time.group(2) or 0)
            self._add_time(line, time)
        elif loss is not None:
            self._add_loss(line.rank, int(loss.group(1)), int(loss.group(3)), bool(loss.group(2)))
        elif arguments is not None:
            self._parameters = parse_namespace(arguments.group(1))

    def _add_time(self, line: LogLine, time: Match[str]) -> None:
        """Store the time on a line, and the step of the loss line before it for DLPerf's rule."""
        seconds = parse_number(time.group(3)) / (1000 if time.group(4) == "ms" else 1)
        mean = parse_number(time.group(5)) / 1000
        self._times.append((line, Mark((int(time.group(1) or 0),), value=seconds, mean=mean)))
        self._timed_steps.append(float(self._step))

    def _add_loss(self, rank: int, epoch: int, step: int, is_whole_run_s: bool) -> None:
        """Count a loss line; `step` is of the epoch, or with `is_whole_run_s` of the run (BERT)."""
        self._has_bert_outputs = self._has_bert_outputs or is_whole_run_s
        self._step = step if is_whole_run_s else step * epoch
        where = (rank, epoch, step)
        self._loss_lines[where] = self._loss_lines.get(where, 0) + 1

    def finish(self) -> ParsedRun:
        lines = self._place_times()
        by_rank = lines.by_rank
        windows = [
            window
            for rank, marks in by_rank.items()
            for window in make_warm_window(rank, _list_intervals(marks))
        ]
        return ParsedRun(
            identity=self._make_identity(len(by_rank)),
            windows=merge_unlabelled(windows),
            series={
                "steps": tuple(self._timed_steps),
                "seconds": tuple(mark.value for _, mark in self._times),
            },
            problem=self._find_problem(lines, by_rank),
            is_incomplete=bool(by_rank) and not lines.fault,
        )

    def _place_times(self) -> RankMarks:
        """Return the times by rank; lines with times do not say of which rank they are.

        Each epoch has as many times as ranks printed a loss at one step.
        """
        ranks = next((n for (rank, _, _), n in self._loss_lines.items() if rank < 0), 1)
        placed = RankMarks()
        counts: Dict[int, int] = {}
        for line, mark in self._times:
            index = counts.get(line.rank, 0)
            counts[line.rank] = index + 1
            position = mark.position[0] or (index // ranks if line.rank < 0 else index)
            placed.add(line, mark._replace(position=(position,)))
        return placed

    def _make_identity(self, ranks: int) -> Identity:
        parameters = self._parameters
        return Identity(
            framework="mindspore",
            model="bert" if self._has_bert_outputs else parameters.get("net", ""),
            devices=ranks if ranks > 1 else 0,
            batch_size_per_device=read_count(parameters, "batch_size"),
            precision=PRECISIONS.get(parameters.get("dtype", ""), ""),
        )

    def _find_problem(self, lines: RankMarks, by_rank: Dict[int, List[Mark]]) -> str:
        """Return why the log is incomplete, or "": it ends before the steps or epochs announced."""
        if not by_rank:
            return "the log contains no timed step"
        if lines.fault or lines.gap:
            return lines.fault or lines.gap
        done = sum(steps for steps, _ in _list_intervals(next(iter(by_rank.values()))))
        accumulation = read_count(self._parameters, "accumulation_steps") or 1
        steps = read_count(self._parameters, "train_steps") * accumulation
        # the script skips last steps that are fewer than `data_sink_steps`
        sink = read_count(self._parameters, "data_sink_steps") * accumulation or 1
        epochs_done = len(next(iter(by_rank.values())))
        if not steps and not self._epochs:
            return "the log does not state how many steps were planned (train_steps)"
        if done < steps // sink * sink or epochs_done < self._epochs:
            return f"the log ends after {done} steps, before the end of the run"
        return ""


def _list_intervals(marks: List[Mark]) -> List[Interval]:
    """Return (steps, seconds) of each line: steps are total time / time per step, 0 if unknown."""
    return [(round(mark.value / mark.mean) if mark.mean > 0 else 0, mark.value) for mark in marks]


start_run = _Run


def _time_100_steps(parsed: ParsedRun, identity: Identity) -> float:
    """Return DLPerf's throughput, from the seconds on all ranks' lines of steps 21 to 120.

    Stops at the first line in the log after step 120. Raises RuleError if these lines are missing.
    """
    seconds = 0.0
    for step, taken in zip(parsed.series["steps"], parsed.series["seconds"]):
        if step > 120:
            break
        seconds += taken if step > 20 else 0.0
    if seconds <= 0 or max(parsed.series["steps"], default=0.0) < 120:
        raise RuleError(
            "the publisher's rule needs the times of steps 21 to 120, which the log does not have"
        )
    return round(identity.global_batch_size / (seconds / (100 * identity.devices)), 2)


RULES = (
    PublisherRule(
        "DLPerf: global batch size / mean step time of all ranks in steps 21 to 120",
        _time_100_steps,
    ),
)
