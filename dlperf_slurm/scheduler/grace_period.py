"""Grace period before an array task that is missing is declared LOST.

Missing: the scheduler does not know the task, or reports COMPLETED while no file says that its
script ended. Clocks of hosts differ, so that this host's clock alone counts, from when this host
first saw the task missing.
"""

from collections.abc import Sequence
from datetime import datetime, timezone

from dlperf_slurm.config.folders import get_host_name
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.jobs.journal import SUBMITTED, UNMARKED, Event
from dlperf_slurm.scheduler.state import UNKNOWN, QueueRow
from dlperf_slurm.scheduler.task_facts import TaskFacts


class GracePeriod:
    """The time since each missing array task was first seen missing, kept in the journal."""

    def __init__(self, lost_after_seconds: float, events: Sequence[Event]) -> None:
        own = get_host_name()
        self._lost_after_seconds = lost_after_seconds
        self._since: dict[str, str] = {}
        self._submitted: dict[str, str] = {}
        for event in events:
            marker = f"{event.group_id}.{event.array_task_id}"
            if event.host == own and event.event == SUBMITTED:
                self._submitted[event.group_id] = event.time
            elif event.host == own and event.event == UNMARKED and event.state:
                self._since.setdefault(marker, event.time)
            elif event.event == UNMARKED and not event.state:
                self._since.pop(marker, None)
        self._new_events: list[Event] = []

    def is_over(self, facts: TaskFacts) -> bool:
        """Return whether a task has been missing for longer than the grace period.

        It then counts as LOST. The first call for a missing task adds an event, so that later
        processes continue the count. If this host submitted the task, and no marker of its job
        script says that it started or ended, the count begins at submission.
        """
        row, task = facts.row or QueueRow(), facts.task
        submitted = self._submitted.get(task.group_id)
        if row.state == UNKNOWN and not any(facts.files[:2]) and submitted is not None:
            return _compute_age_seconds(submitted) >= self._lost_after_seconds
        if task.marker not in self._since:
            self._since[task.marker] = self._note(facts, row.state).time
        return _compute_age_seconds(self._since[task.marker]) >= self._lost_after_seconds

    def forget(self, facts: TaskFacts) -> None:
        """Stop counting how long an array task is missing: the scheduler reports it again."""
        if self._since.pop(facts.task.marker, None) is not None:
            self._note(facts, "")

    def take_events(self) -> list[Event]:
        """Return the events to append to the journal, and clear the list of them."""
        events, self._new_events = self._new_events, []
        return events

    def _note(self, facts: TaskFacts, state: str) -> Event:
        event = Event(
            UNMARKED,
            group_id=facts.task.group_id,
            array_job_id=facts.array_job_id,
            array_task_id=facts.task.array_task_id,
            state=state,
            start=facts.start,
        )
        self._new_events.append(event)
        return event


def _compute_age_seconds(text: str) -> float:
    return (datetime.now(timezone.utc) - parse_time(text)).total_seconds()
