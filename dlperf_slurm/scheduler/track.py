"""A run -> the state of each of its array tasks: files first, then one scheduler call a poll."""

from collections.abc import Mapping

from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.jobs.attempts import Judgement, judge_attempt, print_files
from dlperf_slurm.jobs.journal import (
    REFUSED,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_events,
    read_journal,
    read_whole_journal,
)
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.markers import (
    NO_START,
    NOTHING_SEEN,
    OF_NO_START,
    OVER,
    MarkerFolder,
    Seen,
)
from dlperf_slurm.jobs.run_directory import Run, RunTask, make_job_name
from dlperf_slurm.scheduler.in_turn import find_begun_jobs, see_in_turn
from dlperf_slurm.scheduler.known import (
    Kept,
    Known,
    list_cancelled_ids,
    make_event,
    print_markers,
    read_known,
)
from dlperf_slurm.scheduler.owners import Owners
from dlperf_slurm.scheduler.queue import ProcessWatcher, QueueWatcher, make_watcher
from dlperf_slurm.scheduler.states import (
    COMPLETED,
    FAILED,
    FINAL_STATES,
    LOST,
    PENDING,
    RUNNING,
    UNKNOWN,
    TaskState,
)
from dlperf_slurm.scheduler.verdict import Patience, Sight, judge_state

_OVER = FINAL_STATES | {UNKNOWN}
_RECORD_GONE = "it had completed, and its record is gone"

# the states that hold until a marker or the scheduler says something else, whatever time it is
_STEADY = frozenset((PENDING, RUNNING))


class Tracker:
    """A follower of one run's array tasks.

    A final state is journaled, and holds until a later start, a sound record or the queue shows
    that there is more to come. `poll_count` is how often the scheduler has answered. Who trusts the
    journal asks of a final state there for no more than the same markers: not whether the attempt's
    files, two folders for each array task, are still the same.
    """

    def __init__(self, run: Run, trusts_journal: bool = False) -> None:
        self.run = run
        self._trusts_journal = trusts_journal
        self.events, self.has_whole_journal = read_whole_journal(run.path)
        self._planned = {case.case_id: case for case in run.manifest.cases}
        # what the plan does not name is no array task of the run
        self.tasks = [task for task in run.read_all_tasks() if task.case_id in self._planned]
        self._markers = [task.marker for task in self.tasks]
        # the array tasks of each job that has several
        self._mates: dict[tuple[str, int], list[str]] = {}
        for task in self.tasks:
            if task.shared_job is not None:
                self._mates.setdefault(task.job, []).append(task.marker)
        submitted = [event for event in self.events if event.event == SUBMITTED]
        self.cancelled_ids = list_cancelled_ids(self.events)
        self.known = read_known(dict(zip(self._markers, self.tasks)), self.events)
        begun = {e.group_id for e in self.events if e.event in (SUBMITTING, REFUSED, SUBMITTED)}
        group_ids = [
            group_id
            for group_id in run.list_group_ids()
            if group_id in begun or not self.has_whole_journal
        ]
        self.watcher = make_watcher(run, group_ids)
        self.owners = Owners(run, {e.group_id: e.array_job_id for e in submitted}, self.watcher)
        self.poll_count = 0
        self.scheduler_error = ""
        self.journal_error = ""
        self.patience = Patience(run.manifest.lost_after_seconds, self.events)
        # the ids of the jobs that the watcher was told of, by the markers of their array tasks
        self.jobs: dict[str, str] = {}
        self._folder = MarkerFolder(run.path)
        self._kept: dict[str, Kept] = {}
        self._judgements: dict[str, tuple[Seen, Judgement]] = {}
        self._files: dict[str, str] = {}
        self._unwritten: list[Event] = []
        self._begun_jobs: set[tuple[str, int]] = set()

    @property
    def array_job_ids(self) -> Mapping[str, str]:
        """The id of each group's array job."""
        return self.owners.by_group

    @property
    def must_ask(self) -> bool:
        """Whether the scheduler could tell anything new."""
        return any(
            marker not in self.known or self.known[marker].state.state != COMPLETED
            for marker in self._markers
        )

    def refresh(self, ask_scheduler: bool) -> list[TaskState]:
        """The states of all array tasks, in the order of the plan.

        A scheduler that does not answer leaves what the files say; `scheduler_error` says so
        until it answers again, as `journal_error` does of a journal that cannot be written.
        Raises OSError while the run directory is away: nothing would be told from a record gone.
        """
        (self.run.path / MANIFEST_FILE).stat()
        if self.must_ask and (ask_scheduler or isinstance(self.watcher, ProcessWatcher)):
            self._register()
            try:
                self.watcher.update()
                self.poll_count += 1
                self.owners.look_for_rivals()
                self.scheduler_error = ""
            except SchedulerError as error:
                self.scheduler_error = str(error)
            # The journal is read after the scheduler: who cancels writes there before doing so.
            self.cancelled_ids = list_cancelled_ids(read_journal(self.run.path))
        self.patience.has_open_question = False
        seen = self._folder.read()
        self._begun_jobs = find_begun_jobs(self.tasks, seen) if self._mates else set()
        states = [
            self._find_state(task, marker, seen.get(marker, NOTHING_SEEN))
            for task, marker in zip(self.tasks, self._markers)
        ]
        self._journal()
        return states

    def read_submissions(self) -> None:
        """Follow the array jobs that were submitted since the tracker was made, by whomever."""
        for event in read_journal(self.run.path):
            if event.event == SUBMITTED and event.group_id not in self.owners.by_group:
                self.owners.by_group[event.group_id] = event.array_job_id
                if isinstance(self.watcher, QueueWatcher):
                    self.watcher.add_job_name(make_job_name(self.run.run_id, event.group_id))

    def _register(self) -> None:
        """Have the watcher ask about what is not final."""
        for task, marker in zip(self.tasks, self._markers):
            array_job_id = self.array_job_ids.get(task.group_id)
            if array_job_id and marker not in self.known and marker not in self.jobs:
                self._follow_job(marker, task.find_job_id(array_job_id))

    def _find_state(self, task: RunTask, marker: str, seen: Seen) -> TaskState:
        kept = self._kept.get(marker)
        if kept is not None and kept.seen == seen and kept.told == self._repeat_told(marker):
            return kept.state
        known = self.known.get(marker)
        is_over = any(kind == OVER for _, kind in seen)
        is_back = known is not None and not is_over and self._is_queued(known.state)
        if known is not None and not is_back and self._is_unchanged(task, known, seen):
            if known.seen is None:
                self.known[marker] = Known(known.state, seen, known.files)
            return known.state
        sight = self._look(task, seen, is_final=known is not None)
        if sight.judgement.is_sound and not sight.runs_again:
            state = sight.make_state(COMPLETED)
        elif known is not None and self._holds(known.state, sight, is_back):
            state = known.state
        elif known is not None and known.state.state == COMPLETED and not sight.runs_again:
            state = sight.make_state(FAILED, sight.judgement.problem or _RECORD_GONE)
        else:
            state = judge_state(sight, self.patience)
        self._keep(state, seen)
        self._kept.pop(marker, None)
        if self._is_steady(state):
            self._kept[marker] = Kept(state, seen, self._repeat_told(marker))
        return state

    def _is_steady(self, state: TaskState) -> bool:
        """Whether a state can change by nothing but a marker, or what the scheduler tells of it.

        What shares a job hangs on its mates too, what has a rival on whose claim is there, and
        where the journal has lost lines records tell.
        """
        is_alone = not (self._mates or self.owners.has_rivals)
        return state.state in _STEADY and is_alone and self.has_whole_journal

    def _repeat_told(self, marker: str) -> tuple[str, str, str]:
        """State, reason and nodes as the scheduler told them when it was last asked."""
        info = self.watcher.find_info(self.jobs.get(marker, ""))
        return info.get("State", ""), info.get("Reason", ""), info.get("NodeList", "")

    def _is_unchanged(self, task: RunTask, known: Known, seen: Seen) -> bool:
        if known.seen is None and known.files:
            if self._trusts_journal:
                return known.files.partition(" ")[2] == print_markers(seen)
            return known.files == self._print_files(task, seen)
        return known.seen == seen

    def _print_files(self, task: RunTask, seen: Seen) -> str:
        """The print of all by which a state is judged: the attempt's files, and its markers."""
        files = print_files(self.run, self._planned[task.case_id], task)
        return f"{files} {print_markers(seen)}".strip()

    def _holds(self, state: TaskState, sight: Sight, is_back: bool) -> bool:
        """Whether a final state, which is not COMPLETED, is still the last word."""
        is_newer = sight.start > state.start
        is_found = state.state == LOST and sight.has_ended
        return state.state != COMPLETED and not (is_back or is_newer or is_found)

    def _is_queued(self, state: TaskState) -> bool:
        """Whether the queue shows an array task as pending or running that was final."""
        if isinstance(self.watcher, ProcessWatcher) or state.state == COMPLETED:
            return False
        info = self.watcher.queue.get(state.task.find_job_id(state.array_job_id), {})
        return state.is_final and info.get("State", LOST) not in FINAL_STATES

    def _look(self, task: RunTask, seen: Seen, is_final: bool) -> Sight:
        """All that is known of an array task now."""
        start = max((n for n, kind in seen if kind not in OF_NO_START), default=NO_START)
        kinds = frozenset(kind for n, kind in seen if n == start or kind in OF_NO_START)
        array_job_id = self.owners.find_job_id(task, start)
        info: Mapping[str, str] = {}
        if array_job_id:
            job_id = task.find_job_id(array_job_id)
            self._follow_job(task.marker, job_id)
            info = self.watcher.find_info(job_id)
        if task.shared_job is not None:
            info = see_in_turn(info, kinds, task.job in self._begun_jobs)
        asked = info.get("State", "")
        has_ended = any(kind == "ended" for _, kind in seen)
        judgement = Judgement(None, None, "")
        if has_ended or is_final or asked in _OVER or not self.has_whole_journal:
            judgement = self._judge(task, seen, has_ended)
        return Sight(
            run=self.run,
            task=task,
            array_job_id=array_job_id,
            start=start,
            kinds=kinds,
            judgement=judgement,
            asked=asked,
            reason=info.get("Reason", ""),
            nodes=info.get("NodeList", ""),
            is_cancelled=array_job_id in self.cancelled_ids and OVER not in kinds,
            is_local=isinstance(self.watcher, ProcessWatcher),
        )

    def _judge(self, task: RunTask, seen: Seen, has_ended: bool) -> Judgement:
        """What its records are worth; where it has ended, judged once for the same markers."""
        known = self._judgements.get(task.marker)
        if known is not None and has_ended and known[0] == seen:
            return known[1]
        # first, so that what is written meanwhile is judged again
        self._files[task.marker] = self._print_files(task, seen)
        judgement = judge_attempt(self.run, self._planned[task.case_id], task)
        if has_ended:
            self._judgements[task.marker] = (seen, judgement)
        return judgement

    def _follow_job(self, marker: str, job_id: str) -> None:
        if self.jobs.get(marker) != job_id:
            self.jobs[marker] = job_id
            self.watcher.register_job(job_id)

    def _keep(self, state: TaskState, seen: Seen) -> None:
        """Remember a final state, or that one is none any more."""
        marker = state.task.marker
        before = self.known.pop(marker, None)
        job = self.jobs.get(marker)
        if not state.is_final:
            if before is not None and job is not None:
                self.watcher.mark_unfinished(job)
            return
        files = self._files.get(marker, "")
        self.known[marker] = Known(state, seen, files)
        if before is None or before.state != state:
            self._unwritten.append(make_event(state, files))
        mates = self._mates.get(state.task.job, ())
        if job is not None and all(mate in self.known for mate in mates):
            self.watcher.mark_finished(job)

    def _journal(self) -> None:
        """Write what is new; what cannot be written now is tried again the next time."""
        events = [*self._unwritten, *self.patience.take_events()]
        self._unwritten = []
        if not events:
            return
        try:
            append_events(self.run.path, events)
            self.journal_error = ""
        except JournalError as error:
            self._unwritten = events
            self.journal_error = str(error)
