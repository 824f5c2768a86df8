"""A run directory -> the outcome of every repeat of every case: a valid record, or the problem."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from typing import Any, Optional, TypeVar

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.record import TERMINATED, Record
from dlperf_slurm.jobs.attempts import NO_SIDECARS, Sidecars, validate_attempt
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, read_journal
from dlperf_slurm.jobs.manifest import PlannedCase, compute_block
from dlperf_slurm.jobs.markers import list_markers, list_skipped
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.results.process_pool import map_on_cores
from dlperf_slurm.stats.median import compute_median

Value = TypeVar("Value")

# starting a process takes as long as reading about a hundred records
WORTH_A_PROCESS = 200
# the problems of repeats that may still run
NO_RECORD_YET = (
    "no record yet: the array task is pending or running, or its end is not known (see `status`)"
)
NOT_SUBMITTED = "not submitted"


@dataclass(frozen=True)
class Outcome:
    """One repeat of a case: its valid record, or one line that says why there is none (`problem`).

    `batch_seconds` is the latency of each inference batch, rank after rank; empty in training.
    `step_seconds` is the slowest rank's time of each measured step; empty if none were stored.
    `rank_step_seconds` is the array [ranks, steps], in the order of the record's ranks, or None.
    `sidecars` has the other files that the attempt wrote next to its record. `is_unhealthy`: a node
    failed its health check. `submitted_at` is the submission time of the job, formatted as in the
    run's files; empty if unknown. `failed_record` is that of an attempt that failed.
    """

    case_id: str
    repeat: int
    record: Optional[Record]
    problem: str
    batch_seconds: tuple[float, ...] = ()
    step_seconds: tuple[float, ...] = ()
    rank_step_seconds: Any = field(default=None, compare=False, repr=False)
    sidecars: Sidecars = NO_SIDECARS
    is_unhealthy: bool = False
    submitted_at: str = ""
    failed_record: Optional[Record] = field(default=None, compare=False, repr=False)

    def with_times(self, seconds: Any) -> "Outcome":
        """Return a copy with the step times `seconds`, [ranks, steps], and what follows from them.

        Without step times (None) or without a valid record, return the outcome unchanged.
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
    """A planned case with the outcomes of its repeats; no outcomes if the matrix left the case out.

    `skipped_repeats` were not run, because the time limit of `submit --within` was reached.
    """

    case: PlannedCase
    outcomes: tuple[Outcome, ...]
    skipped_repeats: int = 0

    @property
    def has_blocks(self) -> bool:
        """Whether repeats were spread over array jobs (blocks), so that a block is one sample."""
        return self.case.blocks > 1

    def reduce_to_samples(self, values: Sequence[tuple[int, float]]) -> tuple[float, ...]:
        """Reduce values by repeat to independent samples.

        `values` are (repeat, value). Without blocks every value is a sample; with blocks, the
        median of each block (array job).
        """
        if not self.has_blocks:
            return tuple(value for _, value in values)
        blocks: dict[int, list[float]] = {}
        for repeat, value in values:
            blocks.setdefault(compute_block(repeat, self.case.blocks), []).append(value)
        return tuple(compute_median(blocks[block]) for block in sorted(blocks))

    @property
    def units(self) -> tuple[float, ...]:
        """The independent throughputs in samples/s: one per block (array job), or per repeat."""
        return self.reduce_to_samples(
            [(o.repeat, o.record.samples_per_s) for o in self.outcomes if o.record]
        )

    @property
    def records(self) -> tuple[Record, ...]:
        """The valid records, in the order of their repeats."""
        return tuple(o.record for o in self.outcomes if o.record is not None)


@dataclass(frozen=True)
class Attempts:
    """The array tasks that attempted each repeat of a run, from its plan and its journal.

    `tasks`: array tasks by case id and repeat. `states`: the last state event by marker
    ("GROUP_ID.ARRAY_TASK_ID"). `submitted`: submission time by group id, "" if only a marker file
    shows that the group was submitted. `skipped`: (case id, repeat) of repeats that did not run
    because the time limit of `submit --within` was reached.
    """

    run: Run
    tasks: Mapping[tuple[str, int], Sequence[RunTask]]
    states: Mapping[str, Event]
    submitted: Mapping[str, str]
    skipped: Set[tuple[str, int]]

    def list_repeats(self, case: PlannedCase) -> list[int]:
        """Return the numbers of a case's repeats, from 1, without skipped ones.

        Empty for a case that the matrix left out.
        """
        planned = range(1, 1 + (0 if case.reason else case.repeats))
        return [repeat for repeat in planned if (case.case_id, repeat) not in self.skipped]

    def read(self, case: PlannedCase, repeat: int) -> Outcome:
        """Read the outcome of a repeat: its first attempt with a valid record, or the last one."""
        tasks = self.tasks.get((case.case_id, repeat))
        if tasks is None:
            return Outcome(
                case.case_id, repeat, None, "the journal of the run has no entry for this repeat"
            )
        outcomes = [
            read_outcome(
                *(self.run, case, task),
                self.states.get(task.marker),
                self.submitted.get(task.group_id),
            )
            for task in sorted(tasks, key=lambda task: task.attempt)
        ]
        return next((outcome for outcome in outcomes if outcome.record), outcomes[-1])

    def read_case(self, case: PlannedCase) -> CaseOutcomes:
        """Read the outcomes of all repeats of a case."""
        return self.gather(case, [self.read(case, repeat) for repeat in self.list_repeats(case)])

    def map_cases(
        self, function: Callable[[CaseOutcomes], Value], cases: Sequence[PlannedCase]
    ) -> Iterator[Value]:
        """Yield the function's value for each case, in order; several processes compute them."""
        repeats = sum(len(self.list_repeats(case)) for case in cases)
        least = max(1, WORTH_A_PROCESS * len(cases) // max(1, repeats))
        # import before forking, so that the processes need not do it
        for name in ("duckdb", "pandas"):
            import_module(name)
        return map_on_cores(lambda case: function(self.read_case(case)), cases, least)

    def gather(self, case: PlannedCase, outcomes: Sequence[Outcome]) -> CaseOutcomes:
        """Combine a case with the outcomes of all its repeats, in the order of `list_repeats`."""
        planned = 0 if case.reason else case.repeats
        return CaseOutcomes(case, tuple(outcomes), planned - len(outcomes))


def find_attempts(run: Run) -> Attempts:
    """Find the attempts of a run from its plan, markers and journal, without reading records."""
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
    """Read the outcomes of a run's cases from its records (no scheduler), in the plan's order."""
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
    """List (case id, repeat) of repeats whose last attempt `submit --within` skipped."""
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
    """Read the outcome of one attempt, which is the array task `task`.

    `last_state` is the task's last state in the journal; `submitted_at` is None if the attempt is
    not submitted, and "" if only the time is unknown.
    """
    judged = validate_attempt(run, planned, task)
    if judged.record is None or judged.problem:
        problem = judged.problem or _explain_absence(last_state, submitted_at is not None)
        failures = judged.record.failures if judged.record else ()
        if last_state is not None and any(one.error == TERMINATED for one in failures):
            problem += f": {last_state.state}"
        is_unhealthy = judged.record is not None and describe_unhealthy(judged.record) != ""
        return Outcome(
            *(task.case_id, task.repeat, None, problem),
            is_unhealthy=is_unhealthy,
            failed_record=judged.record,
        )
    outcome = Outcome(
        *(task.case_id, task.repeat, judged.record, ""),
        sidecars=judged.sidecars,
        submitted_at=submitted_at or "",
    )
    return outcome.with_times(judged.step_seconds)


def _explain_absence(last_state: Optional[Event], is_submitted: bool) -> str:
    """Say why an attempt has no record: its last state, "not finished" or "not submitted"."""
    if last_state is not None:
        detail = f" ({last_state.detail})" if last_state.detail else ""
        return f"no record: {last_state.state}{detail}"
    if is_submitted:
        return NO_RECORD_YET
    return NOT_SUBMITTED
