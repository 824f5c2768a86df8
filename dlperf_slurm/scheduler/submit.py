"""Staged groups -> array jobs, through submitit: one sbatch each, journaled before and after."""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from submitit.core import core, utils
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.files.appending import open_to_append
from dlperf_slurm.jobs.journal import (
    REFUSED,
    STAGED,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_event,
    append_reserved,
    hold_submit_lock,
    read_whole_journal,
    release_room,
    reserve_room,
)
from dlperf_slurm.jobs.markers import read_claim
from dlperf_slurm.jobs.run_directory import Run, find_block
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.queue import (
    LocalArrayTaskJob,
    QueueWatcher,
    SlurmArrayTaskJob,
    make_watcher,
)

LOCAL_START_SECONDS = 20.0
AGAIN_SECONDS = 10.0
# how Slurm's clients say that the controller is away, and `run_client` that it takes too long
_NO_ANSWER = re.compile(
    r"did not answer in|Unable to contact slurm controller|Socket timed out|Connection refused|"
    r"Zero Bytes were transmitted|in standby mode|Communication connection failure"
)

# of `sbatch --test-only`, about a request that no waiting makes possible
IMPOSSIBLE = (
    "Requested node configuration is not available",
    "nvalid partition",
    "Invalid account",
    "Invalid qos",
    "Invalid feature",
    "Requested reservation is invalid",
    "Requested time limit is invalid",
    "Node count specification invalid",
    "More processors requested than permitted",
    "Invalid generic resource",
    "QOSMaxWallDurationPerJobLimit",
)


@dataclass(frozen=True)
class ScriptCall:
    """What submitit is asked to run: one element of the array that a rendered script makes."""

    script: Path
    array_task_id: int

    def __call__(self) -> None:
        """Run it here and now, as submitit's debug executor would."""
        subprocess.run(["bash", str(self.script), str(self.array_task_id)], check=True)


class SlurmArrayExecutor(submitit_slurm.SlurmExecutor):
    """Submits one rendered script as one array job.

    submitit's own array code makes fresh stock executors and pickles; this replaces the one
    method where that happens, and keeps its batches and jobs.
    """

    job_class: type[SlurmArrayTaskJob[Any]] = SlurmArrayTaskJob

    def __init__(self, script: Path, lock: int, awaited: Sequence[str] = ()) -> None:
        super().__init__(script.parent)
        self.script = script
        self.awaited = awaited
        self.lock = lock

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        after = [f"--dependency=afterany:{':'.join(self.awaited)}"] if self.awaited else []
        command = ["sbatch", "--parsable", *after, str(self.script)]
        output = slurm_client.run_client(command, keep_open=(self.lock,))
        job_id = self._get_job_id_from_submission_command(output)
        count = len(delayed_submissions)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(count)]

    @staticmethod
    def _get_job_id_from_submission_command(string: Any) -> str:
        """The job id that sbatch printed, alone or as "id;cluster", on its last line that has one.

        Sites print banners around it. Raises SchedulerError when there is no job id.
        """
        text = string.decode() if isinstance(string, bytes) else string
        for line in reversed(text.splitlines()):
            job_id = str(line).strip().partition(";")[0]
            if job_id.isdigit():
                return job_id
        raise SchedulerError(f"sbatch did not print a job id: {text.strip()!r}")


class LocalArrayExecutor(core.Executor):
    """Starts one rendered script as an array job of this machine, in a process of its own."""

    job_class: type[LocalArrayTaskJob[Any]] = LocalArrayTaskJob

    def __init__(self, run: Run, group_id: str) -> None:
        super().__init__(run.path)
        self.run = run
        self.group_id = group_id

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        count = len(delayed_submissions)
        log = self.run.find_script(self.group_id).with_suffix(".local.log")
        with open_to_append(log, root=self.run.path) as output:
            process = subprocess.Popen(
                local.make_command(self.run.path, self.group_id, count),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        job_id = self._wait_for_claim(process, log)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(count)]

    def _wait_for_claim(self, process: "subprocess.Popen[bytes]", log: Path) -> str:
        deadline = time.monotonic() + LOCAL_START_SECONDS
        while time.monotonic() < deadline:
            job_id = local.read_claim(self.run.path, self.group_id)
            if job_id is not None:
                return job_id
            if process.poll() is not None:
                break
            time.sleep(0.02)
        raise SchedulerError(f"the local array job did not start; see {log}")


def submit_run(run: Run, report: Callable[[str], None], patience_seconds: float = 0.0) -> int:
    """Submit every staged group that has not been submitted; returns how many array jobs started.

    A controller that does not answer is asked again for so long, in all.

    It can be killed at any moment and called again: a group whose submission was begun and not
    journaled to its end is first looked for in the scheduler by its name.
    Raises SchedulerError when the scheduler refuses a group; those before it stay submitted.
    JournalError when there is no room for the journal, before anything that it could not hold.
    """
    deadline = time.monotonic() + patience_seconds
    started = 0
    with hold_submit_lock(run.path) as lock:
        reserve_room(run.path)
        while True:
            try:
                for group_id, array_job_id in find_cut_short(run).items():
                    report(f"{group_id}: array job {array_job_id} was submitted already")
                if run.manifest.scheduler == "slurm":
                    refuse_impossible(run, list(find_unsubmitted(run)))
                for group_id in find_unsubmitted(run):
                    array_job_id = _submit_group(run, group_id, lock)
                    started += 1
                    report(f"{group_id}: array job {array_job_id}")
                break
            except JournalError:
                raise
            except SchedulerError as error:
                if time.monotonic() > deadline or not _NO_ANSWER.search(str(error)):
                    raise
                report(f"the scheduler does not answer, and is asked again: {error}".split("\n")[0])
                time.sleep(AGAIN_SECONDS)
        release_room(run.path)
    return started


def refuse_impossible(run: Run, group_ids: Sequence[str]) -> None:
    """Ask Slurm about these groups before any is submitted; what it never takes is journaled.

    Raises SchedulerError, which names all of them, where there are such. What a limit on the
    number of jobs is against may be possible later, and a controller that does not answer says
    nothing: sbatch will.
    """
    problems = {}
    for group_id in group_ids:
        command = ["sbatch", "--test-only", str(run.find_script(group_id))]
        try:
            slurm_client.run_client(command)
        except SchedulerError as error:
            if any(sign in str(error) for sign in IMPOSSIBLE):
                problems[group_id] = str(error)
    for group_id, problem in problems.items():
        append_event(run.path, Event(REFUSED, format_now(), group_id=group_id, detail=problem))
    if problems:
        lines = (f"{group_id} cannot run: {problem}" for group_id, problem in problems.items())
        raise SchedulerError(
            "\n".join(lines) + "\nNothing more was submitted. When the cause is gone: "
            f"dlperf-slurm resume {run.path}"
        )


def find_cut_short(run: Run) -> dict[str, str]:
    """Journal the array jobs that an earlier submission began and did not journal.

    Returns their ids by group. Only the process that holds the submit lock may call it.
    """
    found = {}
    for group_id, last in find_unsubmitted(run).items():
        array_job_id = find_submitted(run, group_id) if last != STAGED else None
        if array_job_id is not None:
            _journal_submitted(run, group_id, array_job_id)
            found[group_id] = array_job_id
    return found


def find_unsubmitted(run: Run) -> dict[str, str]:
    """The groups without a job id in the journal, in the order of staging, with their last event.

    A group that was refused may have been taken after all: a busy controller answered, and the
    queue showed nothing yet. So may any other one, when the journal has lost lines.
    """
    events, is_whole = read_whole_journal(run.path)
    last = dict.fromkeys(run.list_group_ids(), STAGED if is_whole else SUBMITTING)
    for event in events:
        if event.event in (SUBMITTING, REFUSED, SUBMITTED):
            last[event.group_id] = event.event
    return {group_id: name for group_id, name in last.items() if name != SUBMITTED}


def find_submitted(run: Run, group_id: str) -> Optional[str]:
    """The id of the array job of a group whose submission was cut short, or None.

    Files are asked first, then the scheduler; raises SchedulerError when it does not answer.
    """
    if run.manifest.scheduler == "local":
        return local.read_claim(run.path, group_id)
    for task in run.read_tasks(group_id):
        job_id = read_claim(run.path / task.attempt_dir)
        if job_id is not None and slurm_client.is_job_id(job_id):
            return job_id
    watcher = make_watcher(run, [group_id])
    assert isinstance(watcher, QueueWatcher), "a run is either local or Slurm's"
    return watcher.find_array_job_id()


def _make_executor(run: Run, group_id: str, lock: int) -> core.Executor:
    if run.manifest.scheduler == "local":
        return LocalArrayExecutor(run, group_id)
    try:
        return SlurmArrayExecutor(run.find_script(group_id), lock, find_awaited(run, group_id))
    except RuntimeError as error:
        # submitit raises it where there is no srun
        raise SchedulerError(
            f"{group_id} was not submitted: {error}; this takes a login node"
        ) from error


def find_awaited(run: Run, group_id: str) -> list[str]:
    """The array jobs after which one of a later block begins: those of the block before it.

    Further attempts wait for nothing.
    """
    blocks = {case.case_id: case.blocks for case in run.manifest.cases}
    if all(count == 1 for count in blocks.values()):
        return []
    found: dict[str, int] = {}
    for other in run.list_group_ids():
        first = run.read_tasks(other)[0]
        if first.attempt == 1:
            found[other] = find_block(first.repeat, blocks[first.case_id])
    before = found.get(group_id, 1) - 1
    return [
        event.array_job_id
        for event in read_whole_journal(run.path)[0]
        if event.event == SUBMITTED and found.get(event.group_id) == before
    ]


def _submit_group(run: Run, group_id: str, lock: int) -> str:
    """Submit a group, journaled before and after; returns the id of its array job."""
    executor = _make_executor(run, group_id, lock)
    append_event(run.path, Event(SUBMITTING, format_now(), group_id=group_id))
    array_job_id = _call_sbatch(run, group_id, executor)
    _journal_submitted(run, group_id, array_job_id)
    return array_job_id


def _call_sbatch(run: Run, group_id: str, executor: core.Executor) -> str:
    script = run.find_script(group_id)
    try:
        with executor.batch():
            jobs = [
                executor.submit(ScriptCall(script, task.array_task_id))
                for task in run.read_tasks(group_id)
            ]
    except SchedulerError as error:
        # "Socket timed out" comes also from a controller that did take the job
        array_job_id = find_submitted(run, group_id)
        if array_job_id is not None:
            return array_job_id
        detail = str(error)
        # who reads "submitting" looks for the job all the same
        with contextlib.suppress(JournalError):
            append_event(run.path, Event(REFUSED, format_now(), group_id=group_id, detail=detail))
        raise SchedulerError(
            f"{group_id} was not submitted: {error}\n"
            f"What was submitted before it runs on. When the cause is gone: "
            f"dlperf-slurm resume {run.path}"
        ) from error
    return jobs[0].job_id.rpartition("_")[0]


def _journal_submitted(run: Run, group_id: str, array_job_id: str) -> None:
    event = Event(SUBMITTED, format_now(), group_id=group_id, array_job_id=array_job_id)
    try:
        append_reserved(run.path, event)
    except JournalError as error:
        raise JournalError(
            f"{group_id}: array job {array_job_id} was submitted, and {error}\n"
            f"It runs on. When the journal can be written again: dlperf-slurm resume {run.path}"
        ) from error
