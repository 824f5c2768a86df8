"""A run -> the state of each array task, from one scheduler call per poll and the run's files."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.jobs import journal
from dlperf_slurm.jobs.attempts import AttemptValidity, fingerprint_attempt, validate_attempt
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.markers import (
    NO_MARKERS,
    NO_START,
    OF_NO_START,
    OVER,
    MarkerFolder,
    MarkerState,
    read_claim,
    read_marker,
)
from dlperf_slurm.jobs.run_directory import Run, RunTask, make_job_name
from dlperf_slurm.scheduler.grace_period import GracePeriod
from dlperf_slurm.scheduler.queue import ProcessWatcher, QueueWatcher, make_watcher
from dlperf_slurm.scheduler.state import (
    COMPLETED,
    COMPLETING,
    FINAL_STATES,
    UNKNOWN,
    QueueRow,
    StartFiles,
    TaskState,
    classify_row,
    find_begun_jobs,
    get_row_of_array_task,
    needs_record,
)
from dlperf_slurm.scheduler.task_facts import TaskFacts, describe_state, read_files


class CachedState(NamedTuple):
    """A cached state of an array task, with the markers, queue row and files that decided it.

    For a final state from the journal `seen`, the markers, is None until `files`, the fingerprint
    of files and markers, has been compared.
    """

    state: TaskState
    seen: Optional[MarkerState]
    row: QueueRow
    files: str


class Tracker:
    """Tracker of the states of one run's array tasks.

    A final state is journaled, and kept until a later start, a valid record or the queue
    contradicts it. `poll_count` counts the scheduler's answers. With `trusts_journal` a journaled
    final state is checked against the marker files alone, which saves reading two folders per array
    task.
    """

    def __init__(self, run: Run, trusts_journal: bool = False) -> None:
        self.run = run
        self._trusts_journal = trusts_journal
        events, self._has_whole_journal = journal.read_whole_journal(run.path)
        self._planned = {case.case_id: case for case in run.manifest.cases}
        group_ids = run.list_group_ids((events, self._has_whole_journal))
        tasks = (task for group_id in group_ids for task in run.read_tasks(group_id))
        # the run directory may contain tasks of cases that the plan does not name
        self.tasks = [task for task in tasks if task.case_id in self._planned]
        self._markers = [task.marker for task in self.tasks]
        self._cancelled_ids = _list_cancelled_ids(events)
        self._cache = _read_final_states(dict(zip(self._markers, self.tasks)), events)
        begun = {
            e.group_id
            for e in events
            if e.event in (journal.SUBMITTING, journal.REFUSED, journal.SUBMITTED)
        }
        self._job_names = {make_job_name(run.run_id, name): name for name in group_ids}
        followed = [
            group_id
            for group_id in self._job_names.values()
            if group_id in begun or not self._has_whole_journal
        ]
        self.watcher = make_watcher(run, followed)
        # group -> array job, from the journal, or else found in the queue or in markers
        self.array_job_ids = {
            e.group_id: e.array_job_id for e in events if e.event == journal.SUBMITTED
        }
        # group -> array jobs that the journal does not know, and marker -> the job that started it
        self._unjournaled_jobs: dict[str, list[str]] = {}
        self._owners: dict[str, str] = {}
        self.poll_count = 0
        self.scheduler_error = ""
        self.journal_error = ""
        # whether a state waits for the scheduler's next answer
        self.has_open_question = False
        self._grace = GracePeriod(run.manifest.lost_after_seconds, events)
        self._folder = MarkerFolder(run.path)
        self._begun_jobs: set[tuple[str, int]] = set()
        self._unwritten: list[journal.Event] = []

    def refresh(self, ask_scheduler: bool) -> list[TaskState]:
        """Return the states of all array tasks, in the order of the plan; journal new final states.

        With `ask_scheduler` False, Slurm is not asked. If the scheduler does not answer, states
        come from files alone and `scheduler_error` is set until it answers again; `journal_error`
        is the same for a journal that cannot be written. Raises OSError while the run directory is
        missing, because all records would seem to be gone.
        """
        (self.run.path / MANIFEST_FILE).stat()
        cached = map(self._cache.get, self._markers)
        is_unfinished = any(one is None or one.state.state != COMPLETED for one in cached)
        if is_unfinished and (ask_scheduler or isinstance(self.watcher, ProcessWatcher)):
            self._ask_scheduler()
        seen = self._folder.read()
        self._begun_jobs = find_begun_jobs(self.tasks, seen)
        states = [
            self._find_state(task, marker, seen.get(marker, NO_MARKERS))
            for task, marker in zip(self.tasks, self._markers)
        ]
        self.has_open_question = any(state.state == COMPLETING for state in states)
        self._journal()
        return states

    def read_submissions(self) -> bool:
        """Follow array jobs that the journal now has for groups without one; return whether any."""
        count = len(self.array_job_ids)
        for event in journal.read_journal(self.run.path):
            if event.event == journal.SUBMITTED and event.group_id not in self.array_job_ids:
                self.array_job_ids[event.group_id] = event.array_job_id
                if isinstance(self.watcher, QueueWatcher):
                    self.watcher.job_names.add(make_job_name(self.run.run_id, event.group_id))
        return len(self.array_job_ids) > count

    def _ask_scheduler(self) -> None:
        """Call the scheduler once for all tasks without a final state; note `scheduler_error`."""
        self.watcher.followed = {
            task.get_job_id(job_id)
            for task, marker in zip(self.tasks, self._markers)
            if (job_id := self._owners.get(marker) or self.array_job_ids.get(task.group_id))
            and ((cached := self._cache.get(marker)) is None or not cached.state.is_final)
        }
        try:
            self.watcher.update()
            self.poll_count += 1
            self.scheduler_error = ""
        except SchedulerError as error:
            self.scheduler_error = str(error)
        # the journal is read after the scheduler: `cancel` writes there before it calls scancel
        self._cancelled_ids = _list_cancelled_ids(journal.read_journal(self.run.path))
        if isinstance(self.watcher, QueueWatcher):
            self._find_unjournaled_jobs(self.watcher)

    def _find_unjournaled_jobs(self, watcher: QueueWatcher) -> None:
        """Find queued array jobs that the journal lacks; follow the oldest job of each group.

        A controller may have accepted an array twice, or the journal may have lost the line.
        """
        known = set(self.array_job_ids.values())
        for name, job_ids in watcher.list_array_job_ids().items():
            new_ids = sorted(filter(slurm_client.is_job_id, {*job_ids} - known), key=int)
            group_id = self._job_names.get(name)
            if new_ids and group_id is not None:
                self.array_job_ids.setdefault(group_id, new_ids[0])
                rivals = self._unjournaled_jobs.setdefault(group_id, [])
                rivals += [job_id for job_id in new_ids if job_id not in rivals]

    def _find_array_job_id(self, task: RunTask, newest_start: int) -> str:
        """Return the id of the array job to follow for a task, or '' if none is known.

        Usually it is the journaled one; of several, the one that started the task, else one that
        has not ended. `newest_start` is the number of the task's newest start.
        """
        journaled = self.array_job_ids.get(task.group_id, "")
        rivals = self._unjournaled_jobs.get(task.group_id, [])
        if isinstance(self.watcher, ProcessWatcher):
            return journaled
        if journaled and not rivals and not self._is_over(journaled, task):
            return journaled
        owner = self._owners.get(task.marker) or self._read_owner(task, newest_start)
        if owner:
            self._owners[task.marker] = owner
            self.array_job_ids.setdefault(task.group_id, owner)
            return owner
        job_ids = filter(None, (journaled, *rivals))
        waiting = [job_id for job_id in job_ids if not self._is_over(job_id, task)]
        return waiting[0] if waiting else journaled

    def _read_owner(self, task: RunTask, newest_start: int) -> str:
        """Return the id of the array job that started the task last, or has claimed it; else "".

        `newest_start` is the number of the task's newest start, whose marker has the job's id.
        """
        marker = read_marker(self.run.path, task.marker, "started", newest_start)
        claim = read_claim(self.run.path / task.attempt_dir) if marker is None else marker.job_id
        # a script that was run by hand has no job id
        return claim if claim is not None and slurm_client.is_job_id(claim) else ""

    def _is_over(self, array_job_id: str, task: RunTask) -> bool:
        """Return whether a task has ended in this array job, or is unknown to the scheduler."""
        state = self.watcher.get_row(task.get_job_id(array_job_id)).state
        return state in FINAL_STATES or state == UNKNOWN

    def _find_state(self, task: RunTask, marker: str, seen: MarkerState) -> TaskState:
        cached = self._cache.get(marker)
        if cached is not None and self._is_current(cached, task, seen):
            if cached.seen is None:
                self._cache[marker] = cached._replace(seen=seen)
            return cached.state
        final = cached.state if cached is not None and cached.state.is_final else None
        facts, files, row = self._gather(task, seen, final)
        decision = facts.decide()
        if row.state not in ("", COMPLETED, UNKNOWN):
            self._grace.forget(facts)
        elif (
            decision.state in (UNKNOWN, COMPLETING)
            and facts.row is not None
            and facts.row.state in (UNKNOWN, COMPLETED)
            and self._grace.is_over(facts)
        ):
            facts = facts._replace(row=row._replace(is_overdue=True))
            decision = facts.decide()
        detail = describe_state(facts, decision)
        state = TaskState(task, facts.array_job_id, decision.state, detail, facts.start)
        self._keep(CachedState(state, seen, row, files), facts)
        return state

    def _is_current(self, cached: CachedState, task: RunTask, seen: MarkerState) -> bool:
        """Return whether a cached state still applies: markers, files and queue are unchanged."""
        state = cached.state
        job_id = task.get_job_id(state.array_job_id)
        if not state.is_final:
            return cached.seen == seen and cached.row == self.watcher.get_row(job_id)
        is_queued = classify_row(self.watcher.queue.get(job_id)) in ("pending", "requeued", "live")
        if is_queued and state.state != COMPLETED and not any(kind == OVER for _, kind in seen):
            return False
        if cached.seen is not None or not cached.files:
            return cached.seen == seen
        if self._trusts_journal:
            return cached.files.partition(" ")[2] == _fingerprint_markers(seen)
        return cached.files == self._fingerprint(task, seen)

    def _gather(
        self, task: RunTask, seen: MarkerState, final: Optional[TaskState]
    ) -> tuple[TaskFacts, str, QueueRow]:
        """Return the facts about an array task, its files' fingerprint, and its job's queue row.

        `seen` are the task's markers, `final` its final state so far, or None. The row is that of
        the whole job, also if several array tasks share the job.
        """
        start = max((n for n, kind in seen if kind not in OF_NO_START), default=NO_START)
        kinds = frozenset(kind for n, kind in seen if n == start or kind in OF_NO_START)
        array_job_id = self._find_array_job_id(task, start)
        job_row = (
            self.watcher.get_row(task.get_job_id(array_job_id)) if array_job_id else QueueRow()
        )
        row = job_row
        if task.shared_job is not None:
            is_begun = task.job in self._begun_jobs
            row = get_row_of_array_task(row, "started" in kinds, OVER in kinds, is_begun)
        if final is not None and row.state in ("", UNKNOWN) and final.start >= start:
            # the scheduler no longer knows the job, but the journal has its final state
            row = QueueRow(final.state, final.detail, row.nodes)
        files = StartFiles("started" in kinds, "ended" in kinds)
        known_row = row if array_job_id or final is not None else None
        attempt, fingerprint = AttemptValidity(None, None, ""), ""
        if not self._has_whole_journal or needs_record(files, known_row):
            # fingerprinted before reading: files written meanwhile change it, and are read again
            fingerprint = self._fingerprint(task, seen)
            attempt = validate_attempt(self.run, self._planned[task.case_id], task)
        if not attempt.is_valid:
            files = read_files(self.run, task, start, kinds)
        is_cancelled = array_job_id in self._cancelled_ids and OVER not in kinds
        facts = TaskFacts(
            self.run, task, array_job_id, start, files, attempt, known_row, is_cancelled
        )
        return facts, fingerprint, job_row

    def _fingerprint(self, task: RunTask, seen: MarkerState) -> str:
        """Return a text that changes with the files and markers that decide the task's state."""
        files = fingerprint_attempt(self.run, self._planned[task.case_id], task)
        return f"{files} {_fingerprint_markers(seen)}".strip()

    def _keep(self, new: CachedState, facts: TaskFacts) -> None:
        """Cache a state, and note it for the journal if it is a new final state.

        Other states are cached only if nothing but the task's markers and its queue row can change
        them. That excludes tasks that share a job or have none, jobs that ended or are unknown, as
        files may still come, and runs whose journal has lost lines.
        """
        before = self._cache.pop(facts.task.marker, None)
        if new.state.is_final:
            if before is None or before.state != new.state:
                self._unwritten.append(_make_event(new))
        elif (
            new.row.state in (COMPLETED, UNKNOWN)
            or facts.task.shared_job is not None
            or not facts.array_job_id
            or not self._has_whole_journal
        ):
            return
        self._cache[facts.task.marker] = new

    def _journal(self) -> None:
        """Append new events to the journal; those that cannot be written are retried next time."""
        events = [*self._unwritten, *self._grace.take_events()]
        self._unwritten = []
        if not events:
            return
        try:
            journal.append_events(self.run.path, events)
            self.journal_error = ""
        except JournalError as error:
            self._unwritten = events
            self.journal_error = str(error)


def _read_final_states(
    tasks: Mapping[str, RunTask], events: Sequence[journal.Event]
) -> dict[str, CachedState]:
    """Return the newest final state in the journal of each of these array tasks."""
    found: dict[str, CachedState] = {}
    for event in events:
        if event.event == journal.STATE and event.state in FINAL_STATES:
            marker = f"{event.group_id}.{event.array_task_id}"
            task = tasks.get(marker)
            if task is not None:
                job_id, start = event.array_job_id, event.start
                state = TaskState(task, job_id, event.state, event.detail, start)
                found[marker] = CachedState(state, None, QueueRow(), event.files)
    return found


@lru_cache(maxsize=4096)
def _fingerprint_markers(seen: MarkerState) -> str:
    """Format markers, (start number, kind), as number and first letter of the kind: "0e 0s"."""
    return " ".join(f"{start}{kind[0]}" for start, kind in sorted(seen))


def _list_cancelled_ids(events: Sequence[journal.Event]) -> set[str]:
    """Return the ids of the array jobs for which `cancel` was called."""
    cancelled = (event.detail.split() for event in events if event.event == journal.CANCELLED)
    return {job_id for job_ids in cancelled for job_id in job_ids}


def _make_event(cached: CachedState) -> journal.Event:
    """Return the journal event of a final state."""
    state = cached.state
    return journal.Event(
        journal.STATE,
        group_id=state.task.group_id,
        array_job_id=state.array_job_id,
        array_task_id=state.task.array_task_id,
        state=state.state,
        detail=state.detail,
        start=state.start,
        files=cached.files,
    )
