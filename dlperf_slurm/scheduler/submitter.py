"""Submit a run's staged groups: as many as limits allow, the rest as queue slots become free."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.jobs import journal
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.queue import make_queue_watcher
from dlperf_slurm.scheduler.sbatch_errors import (
    is_limit_that_passes,
    is_no_answer,
    refuse_impossible,
)
from dlperf_slurm.scheduler.submit import (
    BlockOrder,
    find_unsubmitted,
    recover_interrupted,
    submit_group,
)

AGAIN_SECONDS = 10.0
Answer = TypeVar("Answer")


class Submitter:
    """Submitter of a run's groups, which tries those again that exceeded a limit on jobs.

    `waiting` has these groups with Slurm's message; `refused` has groups that Slurm never takes,
    and groups that were to run after them. A scheduler that does not answer is asked again for
    `retry_seconds`. Nothing more is submitted once the run is cancelled. `report` gets each
    message. With `is_in_turns`, the run interleaved with this one is submitted too, block by block
    in turns.
    """

    def __init__(
        self,
        run: Run,
        report: Callable[[str], None],
        retry_seconds: float = 0.0,
        is_in_turns: bool = False,
    ) -> None:
        self.run = run
        other = run.find_interleaved() if is_in_turns else None
        # submitters that take turns, that of the first of two interleaved runs first
        self._turns = [self]
        if other is not None:
            name = other.run_id
            self._turns.append(
                Submitter(other, lambda line: report(f"{name}: {line}"), retry_seconds)
            )
            self._turns.sort(key=lambda one: run.manifest.interleaved.index(one.run.run_id))
        self.retry_seconds = retry_seconds
        self.waiting: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.started = 0
        self._report = report
        self._cancellations = self._count_cancellations()
        # number of jobs of groups that a limit refused in this round -> Slurm's message
        self._full: dict[int, str] = {}
        # number of the user's jobs in the queue, counted only if `max_submitted` is set
        self._queued = 0
        self._is_checked = False
        self._moved = time.monotonic()

    @property
    def is_waiting(self) -> bool:
        """Whether groups wait for a queue slot, also those of the interleaved run."""
        return any(one.waiting for one in self._turns)

    def submit(self) -> None:
        """Submit the groups for which there are free queue slots; the others are then in `waiting`.

        First searches the scheduler for groups whose submission was interrupted. A group that
        sbatch refuses for good is no error, but in `refused`: see `raise_if_unsubmitted`. Raises
        SchedulerError if the scheduler does not answer, `sbatch --test-only` says that a group can
        never run, or another process is submitting the run; JournalError, before any sbatch, for a
        full disk.
        """
        ask_until_answered(self._submit_once, self.retry_seconds, self._report)
        self._moved = time.monotonic()

    def submit_waiting(self) -> None:
        """Submit the groups that wait for a free queue slot.

        Raises SchedulerError if for `retry_seconds` none was accepted and no job is in the queue.
        """
        started = self.started
        try:
            self._submit_once()
            has_jobs = self._count_jobs() > 0
        except JournalError:
            raise
        except SchedulerError:
            has_jobs = False
        if has_jobs or self.started > started:
            self._moved = time.monotonic()
        elif self.is_waiting and time.monotonic() > self._moved + self.retry_seconds:
            self.raise_if_unsubmitted()

    def raise_if_unsubmitted(self) -> None:
        """Raise SchedulerError, with the command to use, if groups wait or were refused."""
        texts = [one._describe_rest() for one in self._turns if one.waiting or one.refused]
        if texts:
            raise SchedulerError("\n".join(texts))

    def _describe_rest(self) -> str:
        """Describe the groups that were refused or wait, and what to do, in lines of one text."""
        lines = [
            f"{group_id} was not submitted: {words}" for group_id, words in self.refused.items()
        ]
        lines += [_describe_wait(*waiting) for waiting in self.waiting.items()]
        count = len(self.run.list_group_ids())
        done = count - len(self.waiting) - len(self.refused)
        lines.append(f"{done} of {count} array jobs are submitted, and continue.")
        command = f"{COMMAND} resume {self.run.path}"
        if self.waiting:
            lines.append(
                f"To submit the rest when jobs have ended: {command}; with --wait, `resume` "
                "submits it as queue slots become free. An array job with more array tasks than "
                "the limit on jobs can never be submitted: submit the matrix again with --set "
                "max_array_size=N"
            )
        else:
            lines.append(
                f"After fixing the cause: {command} (--set KEY=VALUE changes a site value)"
            )
        return "\n".join(lines)

    def _submit_once(self) -> None:
        while True:
            started = sum(one.started for one in self._turns)
            for one in self._turns:
                one._submit_run()
            if len(self._turns) == 1 or started == sum(one.started for one in self._turns):
                return

    def _submit_run(self) -> None:
        run = self.run
        lock_timeout_seconds = min(self.retry_seconds, journal.LOCK_TIMEOUT_SECONDS)
        with journal.hold_submit_lock(run.path, timeout_seconds=lock_timeout_seconds) as lock:
            if self._count_cancellations() > self._cancellations:
                self._stop()
                return
            journal.reserve_disk_space(run.path)
            for group_id, array_job_id in recover_interrupted(run).items():
                self._report(f"{group_id}: array job {array_job_id} was already submitted")
            group_ids = list(find_unsubmitted(run))
            if run.manifest.scheduler == "slurm" and not self._is_checked:
                self._report_dropped_variables()
                refuse_impossible(run, group_ids)
                self._is_checked = True
            self._submit_groups(group_ids, lock)
            journal.release_disk_space(run.path)

    def _submit_groups(self, group_ids: Sequence[str], lock: int) -> None:
        self.waiting = {name: words for name, words in self.waiting.items() if name in group_ids}
        self._full.clear()
        if self.run.manifest.max_submitted is not None and group_ids:
            self._queued = self._count_jobs()
        order = BlockOrder(self.run)
        for group_id in group_ids:
            if group_id in self.refused:
                continue
            block = order.blocks.get(group_id, 1)
            missing = [name for name in self.refused if order.blocks.get(name, 1) < block]
            earlier = [name for name in self.waiting if order.blocks.get(name, 1) < block]
            size = self.run.count_jobs(group_id)
            if missing:
                self._refuse(group_id, f"{missing[0]}, which must run first, was refused")
            elif order.blocks.get(group_id, 0) > order.last:
                # no message here: the messages of the other run say why that run waits
                self.waiting[group_id] = (
                    "the run interleaved with this one has to be submitted first; "
                    "resume that run too"
                )
            elif earlier:
                self._wait(group_id, f"{earlier[0]} must run first")
            elif hindrance := self._find_limit(size):
                self._wait(group_id, hindrance)
            else:
                self._submit_group(group_id, lock, order, size)

    def _find_limit(self, size: int) -> str:
        """Describe the limit on jobs that `size` more jobs would exceed; "" if there is none."""
        limit = self.run.manifest.max_submitted
        if limit is not None and self._queued + size > limit:
            return f"more than max_submitted = {limit} jobs (site file) would be in the queue"
        return next((words for other, words in self._full.items() if other <= size), "")

    def _submit_group(self, group_id: str, lock: int, order: BlockOrder, size: int) -> None:
        """Submit a group of `size` jobs, and remember whether it waits or was refused.

        Raises SchedulerError, with the group's name, if the scheduler does not answer.
        """
        awaited = order.list_awaited(group_id)
        array_job_id, refusal = submit_group(self.run, group_id, lock, awaited)
        if array_job_id:
            order.add(group_id, array_job_id)
            self.started += 1
            self._queued += size
            self.waiting.pop(group_id, None)
            self._report(f"{group_id}: array job {array_job_id}")
        elif is_limit_that_passes(refusal):
            self._full[size] = refusal
            self._wait(group_id, refusal)
        elif is_no_answer(refusal):
            raise SchedulerError(
                f"{group_id} was not submitted: {refusal}\n"
                "Array jobs that were already submitted continue. After fixing the cause: "
                f"{COMMAND} resume {self.run.path}"
            )
        else:
            self._refuse(group_id, refusal)

    def _refuse(self, group_id: str, words: str) -> None:
        self.waiting.pop(group_id, None)
        self.refused[group_id] = words
        self._report(f"{group_id} was not submitted: {words}")

    def _wait(self, group_id: str, words: str) -> None:
        if self.waiting.get(group_id) != words:
            self._report(_describe_wait(group_id, words))
        self.waiting[group_id] = words

    def _stop(self) -> None:
        """Forget the waiting groups, because the run was cancelled meanwhile."""
        if self.waiting:
            self._report(
                f"the run was cancelled: {len(self.waiting)} array jobs are not submitted; to "
                f"submit them anyway: {COMMAND} resume {self.run.path}"
            )
        self.waiting = {}

    def _count_cancellations(self) -> int:
        return sum(
            event.event == journal.CANCELLED for event in journal.read_journal(self.run.path)
        )

    def _count_jobs(self) -> int:
        """Return how many jobs the user has in the queue; raises SchedulerError."""
        return make_queue_watcher(self.run, ()).count_jobs()

    def _report_dropped_variables(self) -> None:
        """Report the jobs' cluster, and which variables of the shell are not passed to sbatch."""
        for line in slurm_client.describe_clusters(os.environ, self.run.manifest.clusters):
            self._report(line)
        if not os.environ.get("HOME"):
            self._report("HOME is not set: jobs use the home folder named in /etc/passwd or LDAP")
        names = slurm_client.list_dropped_variables(os.environ, self.run.manifest.inherit)
        if names:
            self._report(
                f"ignored variables of your shell: {', '.join(names)}; to let sbatch read them, "
                "name them in `inherit` of the site file"
            )


def ask_until_answered(
    ask: Callable[[], Answer], retry_seconds: float, report: Callable[[str], None]
) -> Answer:
    """Call a function that asks the scheduler; again for `retry_seconds` while there is no answer.

    `report` gets a line before each further call. Raises the function's own errors.
    """
    deadline = time.monotonic() + retry_seconds
    while True:
        try:
            return ask()
        except JournalError:
            raise
        except SchedulerError as error:
            if time.monotonic() > deadline or not is_no_answer(str(error)):
                raise
            report(f"the scheduler does not respond, trying again: {error}".split("\n")[0])
            time.sleep(AGAIN_SECONDS)


def _describe_wait(group_id: str, words: str) -> str:
    first_line = words.split("\n")[0]
    return f"{group_id} is not submitted yet: {first_line}"
