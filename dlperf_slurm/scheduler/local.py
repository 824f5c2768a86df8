"""Run the array tasks of a group on this machine, one after the other.

`submit` starts this module as a separate process, so that it outlives the terminal.
"""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from dlperf_slurm.config.folders import get_host_name
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.files.writing import open_to_append, write_file, write_once
from dlperf_slurm.jobs.markers import MARKER_LIMIT_BYTES, MARKERS_DIR, SKIPPED, read_hold
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, Run, RunTask, open_run
from dlperf_slurm.scheduler.machine_lock import LOOK_SECONDS, lock_machine
from dlperf_slurm.slurm_client import DEVICE_VARIABLES, clean_environment

if TYPE_CHECKING:
    import subprocess
    import threading

MODULE = "dlperf_slurm.scheduler.local"
# `python -m` would import from the working directory first, where a file may shadow a module
_START = """\
import os, sys
home, module = sys.argv[1:3]
del sys.argv[1:3]
here = os.getcwd()
sys.path[:] = [path for path in sys.path if path == home or os.path.abspath(path) != here]
if home not in sys.path:
    sys.path.insert(0, home)
import runpy
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
_JOB_ID = r"local-([1-9][0-9]{0,9})-([0-9]{1,20})@(.*)"

START_SECONDS = 20.0
TERMINATION_GRACE_SECONDS = 20.0
GROUP_POLL_SECONDS = 0.1


class TimeBudget:
    """The time budget of a local run (`submit --within`), which begins at the first array task.

    0 is no limit.
    """

    def __init__(self, within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_seconds = within_seconds
        self._clock = clock
        self._began: Optional[float] = None
        self._task_began = 0.0
        self._longest_seconds = 0.0

    def order(self, tasks: Sequence[RunTask]) -> list[RunTask]:
        """Return array tasks sorted by repeat if there is a time budget, else unchanged."""
        return sorted(tasks, key=lambda task: task.repeat) if self._within_seconds else list(tasks)

    def has_time_for(self, task: RunTask) -> bool:
        """Return whether the time left suffices for a task as long as the longest task so far.

        True for the first repeat of a case, for retries (`task.attempt` above 1) and without a
        budget. The call also begins the timing of the task.
        """
        now = self._clock()
        if self._began is None:
            self._began = now
        self._task_began = now
        if not self._within_seconds or task.repeat == 1 or task.attempt > 1:
            return True
        return now + self._longest_seconds <= self._began + self._within_seconds

    def note_end(self) -> None:
        """Record the end of the task of the last `has_time_for` call, to know its duration."""
        self._longest_seconds = max(self._longest_seconds, self._clock() - self._task_began)


class TimeLimit(NamedTuple):
    """Time limit of each array task, and how long before it the ranks are warned (0: never)."""

    seconds: int
    warning_seconds: int = 0


def make_command(run_dir: Path, group_id: str, array_size: int, limit: TimeLimit) -> list[str]:
    """Return the command that runs the first `array_size` array tasks of a group on this machine.

    It starts this module, with no imports from the working directory. `limit` is for each task.
    """
    home = str(Path(__file__).parents[2])
    start = [sys.executable, "-c", _START, home, MODULE]
    seconds = [str(limit.seconds), str(limit.warning_seconds)]
    return [*start, str(run_dir), group_id, str(array_size), *seconds]


def start_array_job(run: Run, group_id: str, limit: TimeLimit) -> str:
    """Start a local process that runs the array tasks of a group; return its id (`make_job_id`).

    Raises SchedulerError if the process does not claim the group within START_SECONDS.
    """
    log = run.get_script_path(group_id).with_suffix(".local.log")
    command = make_command(run.path, group_id, len(run.read_tasks(group_id)), limit)
    process = _start(command, log, run.path)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        job_id = read_claim(run.path, group_id)
        if job_id is not None:
            return job_id
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise SchedulerError(f"the local array job did not start; see {log}")


def main(arguments: list[str]) -> int:
    """Run the array tasks of a group, as the process that `make_command` starts.

    Remaining tasks are skipped after several launches failed in the same way, or once the time
    budget is used up. Returns the exit code: 1 if another process runs the group, or if this one
    was cancelled before it started its last task.
    """
    run_dir, group_id = Path(arguments[0]), arguments[1]
    array_size, limit_seconds, warning_seconds = map(int, arguments[2:])
    limit = TimeLimit(limit_seconds, warning_seconds)
    job_id = make_job_id(os.getpid())
    if job_id is None or not claim_group(run_dir, group_id, job_id):
        return 1
    # SIGTERM sets an event: an exception could strike between a script's start and the wait for it
    import threading

    cancelled = threading.Event()
    signal.signal(signal.SIGTERM, lambda signal_number, frame: cancelled.set())
    run = open_run(run_dir)
    budget = TimeBudget(run.manifest.within_seconds)
    for task in budget.order(run.read_tasks(group_id)[:array_size]):
        # array tasks of all runs wait for each other: two at a time would share the cores
        with lock_machine(cancelled, run.run_id):
            if cancelled.is_set():
                return 1
            if read_hold(run_dir, group_id):
                mark_killed(run_dir, group_id, task.array_task_id, "CANCELLED")
            elif budget.has_time_for(task):
                run_array_task(run_dir, group_id, task.array_task_id, job_id, limit, cancelled)
                budget.note_end()
            else:
                mark_killed(run_dir, group_id, task.array_task_id, SKIPPED)
    return 0


def mark_killed(run_dir: Path, group_id: str, array_task_id: int, state: str) -> None:
    """Write the marker that says why an array task was ended early, or was not started.

    `state` is TIMEOUT or CANCELLED; for a task that was not started, SKIPPED if the run's time is
    used up, and CANCELLED if the group is held.
    """
    marker = run_dir / MARKERS_DIR / f"{group_id}.{array_task_id}.killed"
    write_file(marker, state.encode(), root=run_dir)


def run_array_task(
    run_dir: Path,
    group_id: str,
    array_task_id: int,
    job_id: str,
    limit: TimeLimit,
    cancelled: "threading.Event",
) -> None:
    """Run the group's script for one array task until it ends, or is cancelled or timed out.

    Its output is appended to scripts/GROUP_ID_N.log. At the end, processes that it left are ended.
    """
    script = run_dir / SCRIPTS_DIR / f"{group_id}.sbatch"
    log = run_dir / SCRIPTS_DIR / f"{group_id}_{array_task_id}.log"
    environment = clean_environment(os.environ, DEVICE_VARIABLES)
    environment["DLPERF_SLURM_JOB_ID"] = job_id
    process = _start(["bash", str(script), str(array_task_id)], log, run_dir, environment)
    started = time.monotonic()
    is_warned = not limit.warning_seconds
    while process.poll() is None:
        left_seconds = started + limit.seconds - time.monotonic()
        if not is_warned and left_seconds < limit.warning_seconds:
            process.send_signal(signal.SIGUSR1)
            is_warned = True
        if left_seconds < 0 or cancelled.is_set():
            state = "CANCELLED" if cancelled.is_set() else "TIMEOUT"
            mark_killed(run_dir, group_id, array_task_id, state)
            break
        cancelled.wait(LOOK_SECONDS)
    # also after a normal end: what is left would run beside the next array task
    end_process_group(process)


def _start(
    command: Sequence[str], log: Path, run_dir: Path, environment: Optional[dict[str, str]] = None
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own; its output is appended to `log`."""
    import subprocess

    with open_to_append(log, root=run_dir) as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def end_process_group(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to a process's group, and SIGKILL after TERMINATION_GRACE_SECONDS if needed."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + TERMINATION_GRACE_SECONDS
        if has_processes(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)
        while has_processes(process.pid) and time.monotonic() < deadline:
            time.sleep(GROUP_POLL_SECONDS)
    process.poll()


def has_processes(group: int) -> bool:
    """Return whether the process group of this id has a living process (proc_pid_stat(5))."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group_id = _read_stat(path)[:3]
            if int(group_id) == group and state not in "ZX":
                return True
    return False


def get_claim_path(run_dir: Path, group_id: str) -> Path:
    """Return the path of the file with the job id of the local process that runs a group."""
    return run_dir / SCRIPTS_DIR / f"{group_id}.local"


def claim_group(run_dir: Path, group_id: str, job_id: str) -> bool:
    """Claim a group for the process of this job id; return False if another has claimed it."""
    return write_once(get_claim_path(run_dir, group_id), job_id.encode(), root=run_dir)


def read_claim(run_dir: Path, group_id: str) -> Optional[str]:
    """Return the job id of the local process that claimed a group, or None if none has."""
    try:
        return read_text(get_claim_path(run_dir, group_id), MARKER_LIMIT_BYTES, root=run_dir)
    except OSError:
        return None


def make_job_id(pid: int) -> Optional[str]:
    """Return a process's job id, "local-PID-STARTTIME@HOST"; None if no process has this PID.

    The start time, in clock ticks since boot, distinguishes it from a later process with the same
    PID.
    """
    start_time = _read_start_time(pid)
    return None if start_time is None else f"local-{pid}-{start_time}@{get_host_name()}"


def find_other_host(job_id: str) -> str:
    """Return the host on which a local job was started, or '' for this host."""
    host = job_id.partition("@")[2]
    return "" if host == get_host_name() else host


def is_alive(job_id: str) -> bool:
    """Return whether the process of a local job id runs on this host."""
    match = re.fullmatch(_JOB_ID, job_id, flags=re.ASCII | re.DOTALL)
    return match is not None and make_job_id(int(match[1])) == job_id


def terminate(job_id: str, run_dir: Path) -> None:
    """Send SIGTERM to the process of a local job id, if it runs tasks of the run in `run_dir`."""
    match = re.fullmatch(_JOB_ID, job_id, flags=re.ASCII | re.DOTALL)
    if match is not None and is_alive(job_id) and _runs_tasks_of(int(match[1]), run_dir):
        os.kill(int(match[1]), signal.SIGTERM)


def _runs_tasks_of(pid: int, run_dir: Path) -> bool:
    """Return whether a process was started by `make_command` for this run (proc_pid_cmdline(5))."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        place = arguments.index(MODULE.encode())
        return run_dir.samefile(os.fsdecode(arguments[place + 1]))
    except (OSError, ValueError, IndexError):
        return False


def _read_start_time(pid: int) -> Optional[str]:
    try:
        state, *rest = _read_stat(Path(f"/proc/{pid}/stat"))
    except OSError:
        return None
    return None if state == "Z" else rest[18]


def _read_stat(path: Path) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; raises OSError."""
    # the second field is the program's name in parentheses, and may contain any characters
    return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
