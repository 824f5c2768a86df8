"""A run directory -> the outcome of every repeat of every case: a sound record, or why not."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.attempts import judge_attempt
from dlperf_slurm.jobs.beside_record import NOTHING_BESIDE, Beside
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, read_journal
from dlperf_slurm.jobs.manifest import PlannedCase, find_block
from dlperf_slurm.jobs.markers import list_markers, list_skipped
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.results.processes import map_on_cores
from dlperf_slurm.stats.median import compute_median

# a process takes as long to start as a hundred records to be read
WORTH_A_PROCESS = 200


@dataclass(frozen=True)
class Outcome:
    """One repeat of a case: its record, or one line that says why there is none to use.

    `batch_seconds` is the latency of each inference batch, rank after rank; empty in training.
    `step_seconds` is the slowest rank's time of each measured step; empty where none were kept.
    `rank_step_seconds` is the array of all [ranks, steps], in the order of the record's ranks.
    `beside` is what else was written of it. `is_unhealthy` says that a node was not fit to measure.
    `submitted_at` is when its job was, as files of a run have times; empty where nobody wrote it.
    """

    case_id: str
    repeat: int
    record: Optional[Record]
    problem: str
    batch_seconds: tuple[float, ...] = ()
    step_seconds: tuple[float, ...] = ()
    rank_step_seconds: Any = field(default=None, compare=False, repr=False)
    beside: Beside = NOTHING_BESIDE
    is_unhealthy: bool = False
    submitted_at: str = ""

    def with_times(self, seconds: Any) -> "Outcome":
        """The outcome with its step times [ranks, steps], and what is made of them; None has none.

        Only a sound record has any.
        """
        if seconds is None or self.record is None:
            return self
        is_inference = self.record.case.axes.mode == INFER
        return replace(
            self,
            batch_seconds=tuple(seconds.ravel().tolist()) if is_inference else (),
            step_seconds=tuple(seconds.max(axis=0).tolist()),
            rank_step_seconds=seconds,
        )


@dataclass(frozen=True)
class CaseOutcomes:
    """A planned case with the outcomes of its repeats; none for a case that was left out.

    For `skipped_repeats` of them there was no time.
    """

    case: PlannedCase
    outcomes: tuple[Outcome, ...]
    skipped_repeats: int = 0

    @property
    def has_blocks(self) -> bool:
        """Whether repeats were spread over array jobs, which then are what is independent."""
        return self.case.blocks > 1

    def unite(self, values: Sequence[tuple[int, float]]) -> tuple[float, ...]:
        """The independent values of (repeat, value): the median of each block, else all."""
        if not self.has_blocks:
            return tuple(value for _, value in values)
        blocks: dict[int, list[float]] = {}
        for repeat, value in values:
            blocks.setdefault(find_block(repeat, self.case.blocks), []).append(value)
        return tuple(compute_median(blocks[block]) for block in sorted(blocks))

    @property
    def units(self) -> tuple[float, ...]:
        """Throughputs that are independent of each other: of blocks, or of repeats without them."""
        return self.unite([(o.repeat, o.record.samples_per_s) for o in self.outcomes if o.record])

    @property
    def records(self) -> tuple[Record, ...]:
        """Sound records only, by repeat."""
        return tuple(o.record for o in self.outcomes if o.record is not None)


@dataclass(frozen=True)
class Attempts:
    """What was tried of each repeat of a run, by its plan and its journal, and the way to read it.

    `tasks` has the array tasks by case and repeat, `states` the last state of each by its marker,
    `submitted` when each group was, by its id, and "" where only its marker tells that it was; for
    the `skipped` repeats there was no time.
    """

    run: Run
    tasks: Mapping[tuple[str, int], Sequence[RunTask]]
    states: Mapping[str, Event]
    submitted: Mapping[str, str]
    skipped: Set[tuple[str, int]]

    def list_repeats(self, case: PlannedCase) -> list[int]:
        """The repeats that were planned and not skipped; none of a case that was left out."""
        planned = range(1, 1 + (0 if case.reason else case.repeats))
        return [repeat for repeat in planned if (case.case_id, repeat) not in self.skipped]

    def read(self, case: PlannedCase, repeat: int) -> Outcome:
        """The outcome of a repeat: its first attempt with a sound record, else its last one."""
        tasks = self.tasks.get((case.case_id, repeat))
        if tasks is None:
            return Outcome(case.case_id, repeat, None, "the journal knows no array task of it")
        outcomes = [
            read_outcome(
                *(self.run, case, task),
                self.states.get(task.marker),
                self.submitted.get(task.group_id),
            )
            for task in sorted(tasks, key=lambda task: task.attempt)
        ]
        return next((outcome for outcome in outcomes if outcome.record), outcomes[-1])

    def gather(self, case: PlannedCase, outcomes: Sequence[Outcome]) -> CaseOutcomes:
        """A case with these outcomes, which are those of `list_repeats`."""
        planned = 0 if case.reason else case.repeats
        return CaseOutcomes(case, tuple(outcomes), planned - len(outcomes))


def find_attempts(run: Run) -> Attempts:
    """The attempts of a run, whose plan and journal are read, and nothing else."""
    events = read_journal(run.path)
    submitted = {marker.rpartition(".")[0]: "" for marker in list_markers(run.path)}
    submitted.update((event.group_id, event.time) for event in events if event.event == SUBMITTED)
    states = {
        f"{event.group_id}.{event.array_task_id}": event for event in events if event.event == STATE
    }
    tasks: dict[tuple[str, int], list[RunTask]] = {}
    for task in run.read_all_tasks():
        tasks.setdefault((task.case_id, task.repeat), []).append(task)
    return Attempts(run, tasks, states, submitted, _list_skipped(run, tasks))


def collect_outcomes(run: Run) -> list[CaseOutcomes]:
    """Read all records of a run, in the order of its plan; needs the files and nothing else."""
    attempts = find_attempts(run)
    repeats = [attempts.list_repeats(case) for case in run.manifest.cases]
    planned = [(case, n) for case, own in zip(run.manifest.cases, repeats) for n in own]
    outcomes = map_on_cores(lambda one: attempts.read(*one), planned, WORTH_A_PROCESS)
    return [
        attempts.gather(case, list(islice(outcomes, len(own))))
        for case, own in zip(run.manifest.cases, repeats)
    ]


def _list_skipped(
    run: Run, attempts: Mapping[tuple[str, int], Sequence[RunTask]]
) -> set[tuple[str, int]]:
    """The repeats, by case, for which there was no time, and that nobody has tried again."""
    if not run.manifest.within_seconds:
        return set()
    skipped = list_skipped(run.path)
    return {
        repeat
        for repeat, tasks in attempts.items()
        if max(tasks, key=lambda task: task.attempt).marker in skipped
    }


def read_outcome(
    run: Run,
    planned: PlannedCase,
    task: RunTask,
    last_state: Optional[Event],
    submitted_at: Optional[str],
) -> Outcome:
    """The outcome of one attempt at a planned case; `submitted_at` is None before it was."""
    judged = judge_attempt(run, planned, task)
    if judged.record is None or judged.problem:
        problem = judged.problem or _explain_absence(last_state, submitted_at is not None)
        is_unhealthy = judged.record is not None and describe_unhealthy(judged.record) != ""
        return Outcome(task.case_id, task.repeat, None, problem, is_unhealthy=is_unhealthy)
    outcome = Outcome(
        *(task.case_id, task.repeat, judged.record, ""),
        beside=judged.beside,
        submitted_at=submitted_at or "",
    )
    return outcome.with_times(judged.step_seconds)


def _explain_absence(last_state: Optional[Event], is_submitted: bool) -> str:
    if last_state is not None:
        detail = f" ({last_state.detail})" if last_state.detail else ""
        return f"no record: {last_state.state}{detail}"
    if is_submitted:
        return "no record yet: pending, running, or its end was not seen (see `status`)"
    return "not submitted"
