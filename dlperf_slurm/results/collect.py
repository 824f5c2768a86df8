"""A run directory -> the outcome of every repeat of every case: a valid record, or the problem."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import islice
from operator import attrgetter
from typing import Any, Optional, TypeVar

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.phases import MEANINGS, RANKS, TO_FIRST_STEP
from dlperf_slurm.contract.record import TERMINATED, Record
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.jobs.attempts import NO_SIDECARS, Sidecars, validate_attempt
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, read_journal
from dlperf_slurm.jobs.manifest import PlannedCase, compute_block
from dlperf_slurm.jobs.markers import list_markers, list_skipped
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.results.process_pool import map_on_cores
from dlperf_slurm.stats.median import Latency, compute_last_medians, compute_latency, compute_median

Value = TypeVar("Value")

# starting a process takes as long as reading about a hundred records
WORTH_A_PROCESS = 200
# the problems of repeats that may still run
NO_RECORD_YET = (
    "no record yet: the array task is pending or running, or its end is not known (see `status`)"
)
NOT_SUBMITTED = "not submitted"

QUEUE = "queue"
# from the start of the job script to the end of the first step: the sum of several phases
TO_FIRST_STEP_SUM = "to first step"
# the phases before the start time in the record
_BEFORE_RECORD = tuple(MEANINGS)[: tuple(MEANINGS).index(RANKS) + 1]


@dataclass(frozen=True)
class Outcome:
    """One repeat of a case: its valid record, or one line that says why there is none (`problem`).

    `rank_step_seconds` are the times of the measured steps, [ranks, steps], in the order of the
    record's ranks; None if none were stored. `sidecars` has the other files that the attempt wrote
    next to its record. `is_cancelled`: the job was cancelled, before or while the ranks ran.
    `submitted_at` is the submission time of the job, formatted as in the run's files; empty if
    unknown. `failed_record` is that of an attempt that failed.
    """

    case_id: str
    repeat: int
    record: Optional[Record]
    problem: str
    rank_step_seconds: Any = field(default=None, compare=False, repr=False)
    sidecars: Sidecars = NO_SIDECARS
    is_cancelled: bool = False
    submitted_at: str = ""
    failed_record: Optional[Record] = field(default=None, compare=False, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether a valid record may still follow: no fault of the nodes, as far as is known.

        The array task was cancelled, is not submitted, or has not ended.
        """
        return self.is_cancelled or self.problem in (NOT_SUBMITTED, NO_RECORD_YET)

    @property
    def is_unhealthy(self) -> bool:
        """Whether a node failed its health check."""
        return self.failed_record is not None and describe_unhealthy(self.failed_record) != ""

    @cached_property
    def step_seconds(self) -> tuple[float, ...]:
        """The slowest rank's time of each measured step; empty if none were stored."""
        seconds = self.rank_step_seconds
        return () if seconds is None else tuple(seconds.max(axis=0).tolist())

    @cached_property
    def latency_seconds(self) -> dict[str, Any]:
        """The latencies of an inference in seconds, as flat arrays by name; empty for training.

        "latency" is of each batch, rank after rank. Of text generation, "ttft" is of the first
        token, "tpot" the mean of each batch's later tokens, and "itl" of each later token.
        """
        if self.record is None or self.record.case.axes.mode != INFER:
            return {}
        seconds, tokens = self.rank_step_seconds, self.sidecars.token_seconds
        found = {} if seconds is None else {"latency": seconds.ravel()}
        if tokens is not None:
            found["ttft"] = tokens[:, :, 0].ravel()
            if tokens.shape[2] > 1:
                found["tpot"] = tokens[:, :, 1:].mean(axis=2).ravel()
                found["itl"] = tokens[:, :, 1:].ravel()
        return found

    @cached_property
    def latencies(self) -> dict[str, Latency]:
        """Mean and percentiles of each of `latency_seconds`."""
        return {name: compute_latency(own) for name, own in self.latency_seconds.items()}

    @cached_property
    def median_steps(self) -> Any:
        """The median step of each rank in seconds, [ranks]; None without step times."""
        seconds = self.rank_step_seconds
        return None if seconds is None else compute_last_medians(seconds)

    @cached_property
    def slowness(self) -> Any:
        """The median step of each rank over that of the median rank, [ranks]; None for one rank.

        All ones if the median is 0, because the clock is too coarse for the steps.
        """
        import numpy

        if self.median_steps is None or len(self.median_steps) < 2:
            return None
        usual = compute_last_medians(self.median_steps)
        return self.median_steps / usual if usual else numpy.ones_like(self.median_steps)

    @cached_property
    def phases(self) -> dict[str, float]:
        """The phases of the repeat's job before the measured steps, in seconds by name.

        The first is QUEUE, the last TO_FIRST_STEP_SUM; phases of unknown length are missing, as all
        are for failed repeats and imported logs.
        """
        record, noise = self.record, self.sidecars.noise
        if record is None or noise is None or not noise.phases:
            return {}
        phases = {phase.name: phase.seconds for phase in noise.phases}
        before = sum(phases.get(name, 0.0) for name in _BEFORE_RECORD)
        known = {name: phases[name] for name in MEANINGS if name in phases}
        with suppress(ValueError):  # no submission time
            waited = parse_time(record.started_at) - parse_time(self.submitted_at)
            known = {QUEUE: max(0.0, waited.total_seconds() - before), **known}
        return {**known, TO_FIRST_STEP_SUM: sum(phases.get(name, 0.0) for name in TO_FIRST_STEP)}


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
        """Reduce values, given as (repeat, value), to independent samples.

        Without blocks every value is a sample; with blocks, the median of each block (array job).
        """
        if not self.has_blocks:
            return tuple(value for _, value in values)
        return tuple(map(compute_median, self.group_by_block(values)))

    def group_by_block(self, values: Sequence[tuple[int, float]]) -> list[list[float]]:
        """Group values, given as (repeat, value), by block (array job), in the order of blocks."""
        blocks: dict[int, list[float]] = {}
        for repeat, value in values:
            blocks.setdefault(compute_block(repeat, self.case.blocks), []).append(value)
        return [blocks[block] for block in sorted(blocks)]

    @property
    def rates(self) -> list[tuple[int, float]]:
        """The throughput of each valid repeat: (repeat, samples/s)."""
        return [(o.repeat, o.record.samples_per_s) for o in self.outcomes if o.record]

    @property
    def units(self) -> tuple[float, ...]:
        """The independent throughputs in samples/s: one per block (array job), or per repeat."""
        return self.reduce_to_samples(self.rates)

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
        ordered = sorted(tasks, key=attrgetter("attempt"))
        outcomes = [self._read_attempt(case, task) for task in ordered]
        return next((outcome for outcome in outcomes if outcome.record), outcomes[-1])

    def _read_attempt(self, case: PlannedCase, task: RunTask) -> Outcome:
        """Read the outcome of one attempt, which is the array task `task`."""
        found = validate_attempt(self.run, case, task)
        if found.is_valid:
            return Outcome(
                *(task.case_id, task.repeat, found.record, "", found.step_seconds, found.sidecars),
                submitted_at=self.submitted.get(task.group_id, ""),
            )
        last_state, problem = self.states.get(task.marker), found.problem
        failures = found.record.failures if found.record else ()
        is_terminated = any(one.error == TERMINATED for one in failures)
        if last_state is None and not problem:
            problem = NO_RECORD_YET if task.group_id in self.submitted else NOT_SUBMITTED
        elif last_state is not None and not problem:
            detail = f" ({last_state.detail})" if last_state.detail else ""
            # the detail may say itself that there is no record
            missing = "" if last_state.detail.startswith("no record") else "no record: "
            problem = f"{missing}{last_state.state}{detail}"
        elif last_state is not None and is_terminated:
            problem += f": {last_state.state}"
        is_cancelled = last_state is not None and last_state.state == "CANCELLED"
        return Outcome(
            *(task.case_id, task.repeat, None, problem),
            is_cancelled=is_cancelled and (is_terminated or not found.problem),
            failed_record=found.record,
        )

    def gather(self, case: PlannedCase, outcomes: Iterator[Outcome]) -> CaseOutcomes:
        """Take the outcomes of a case's repeats, which come next, from `outcomes`."""
        own = tuple(islice(outcomes, len(self.list_repeats(case))))
        return CaseOutcomes(case, own, (0 if case.reason else case.repeats) - len(own))

    def read_case(self, case: PlannedCase) -> CaseOutcomes:
        """Read the outcomes of all repeats of a case."""
        repeats = self.list_repeats(case)
        return self.gather(case, (self.read(case, repeat) for repeat in repeats))

    def map_cases(
        self, function: Callable[[CaseOutcomes], Value], cases: Sequence[PlannedCase]
    ) -> Iterator[Value]:
        """Yield the function's value for each case, in order; several processes compute them."""
        repeats = sum(len(self.list_repeats(case)) for case in cases)
        least = max(1, WORTH_A_PROCESS * len(cases) // max(1, repeats))
        # before forking, so that the processes need not import it
        import_module("numpy")
        return map_on_cores(lambda case: function(self.read_case(case)), cases, least)


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
    skipped = set()
    if run.manifest.within_seconds:
        markers = list_skipped(run.path)
        last = ((repeat, max(own, key=attrgetter("attempt"))) for repeat, own in tasks.items())
        skipped = {repeat for repeat, task in last if task.marker in markers}
    return Attempts(run, tasks, states, submitted, skipped)


def collect_outcomes(run: Run) -> list[CaseOutcomes]:
    """Read the outcomes of a run's cases from its records (no scheduler), in the plan's order."""
    attempts = find_attempts(run)
    repeats = [(case, one) for case in run.manifest.cases for one in attempts.list_repeats(case)]
    # before forking, so that the processes need not import it
    import_module("numpy")
    outcomes = map_on_cores(lambda one: attempts.read(*one), repeats, WORTH_A_PROCESS)
    return [attempts.gather(case, outcomes) for case in run.manifest.cases]
