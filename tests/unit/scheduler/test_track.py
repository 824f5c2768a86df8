"""States of array tasks from files and a scheduler of fake programs on PATH, and who is retried."""

from datetime import datetime, timedelta, timezone

import pytest
from builders import make_failed_record, read_case, write_program, write_record

from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.run_directory import MARKERS_DIR, RunTask
from dlperf_slurm.scheduler.queue import UNKNOWN
from dlperf_slurm.scheduler.retry import stage_retry
from dlperf_slurm.scheduler.track import TaskState, Tracker, follow_run

GROUP = "1n1g"

# the states of squeue(1), "job state codes"
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
GOING_ON = (
    *("COMPLETING", "CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT"),
    *("STOPPED", "SUSPENDED"),
)


@pytest.fixture
def submitted_run(bin_dir, staged_run):
    """Its groups are the array jobs 1, 2 and 3; the queue shows nothing."""
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "true")
    for number, group_id in enumerate(staged_run.list_group_ids(), start=1):
        event = Event(SUBMITTED, format_now(), group_id=group_id, array_job_id=str(number))
        append_event(staged_run.path, event)
    return staged_run


def show_queue(bin_dir, state, reason=""):
    write_program(bin_dir, "squeue", f"echo '1_0|{state}||{reason}'")


def write_marker(run, task, kind, exit_code=0):
    text = f'{{"job_id": "1", "time": "{format_now()}", "nodes": "n1", "exit_code": {exit_code}}}'
    (run.path / MARKERS_DIR / f"{task.marker}.{kind}").write_text(text, encoding="utf-8")


def find_state(run):
    """State and detail of the first array task."""
    state = Tracker(run).refresh(ask_scheduler=True)[0]
    return state.state, state.detail


def test_task_that_has_started_runs_though_the_queue_still_says_pending(bin_dir, submitted_run):
    show_queue(bin_dir, "PENDING")
    assert find_state(submitted_run)[0] == "PENDING"
    write_marker(submitted_run, submitted_run.read_tasks(GROUP)[0], "started")
    assert find_state(submitted_run)[0] == "RUNNING"


def test_state_of_a_started_task_is_that_of_the_queue(bin_dir, submitted_run):
    show_queue(bin_dir, "SUSPENDED")
    write_marker(submitted_run, submitted_run.read_tasks(GROUP)[0], "started")
    assert find_state(submitted_run)[0] == "SUSPENDED"


# a run calls lost after 300 seconds what neither queue nor accounting nor files know
@pytest.mark.parametrize(("seconds", "state"), [(200, UNKNOWN), (400, "LOST")])
def test_task_that_nobody_knows_is_lost_after_a_while_and_not_before(submitted_run, seconds, state):
    then = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    event = Event(SUBMITTED, f"{then:%Y-%m-%dT%H:%M:%SZ}", GROUP, array_job_id="1")
    append_event(submitted_run.path, event)
    assert find_state(submitted_run)[0] == state


@pytest.mark.parametrize(("reason", "detail"), [("Priority", "Priority"), ("None", "")])
def test_reason_of_the_queue_is_told_when_it_has_one(bin_dir, submitted_run, reason, detail):
    show_queue(bin_dir, "PENDING", reason)
    assert find_state(submitted_run) == ("PENDING", detail)


@pytest.mark.parametrize(
    ("status", "state"), [(OUT_OF_MEMORY, "OUT_OF_MEMORY"), ("failed", "FAILED")]
)
def test_record_says_how_an_ended_task_failed(submitted_run, status, state):
    task = submitted_run.read_tasks(GROUP)[0]
    case = read_case(submitted_run, task)
    write_record(submitted_run, task, make_failed_record(case, status, "first line\nsecond"))
    write_marker(submitted_run, task, "ended", exit_code=1)
    assert find_state(submitted_run) == (state, "first line")


@pytest.mark.parametrize("state", ENDED + GOING_ON)
def test_state_is_final_when_the_task_has_ended(state):
    task = RunTask(GROUP, 0, "cases/c/r1/a1")
    assert TaskState(task, "1", state, "").is_final == (state in ENDED)


def journal_states(run, *states):
    for task, state in zip(run.read_all_tasks(), states):
        event = Event(STATE, format_now(), task.group_id, "1", task.array_task_id, state)
        append_event(run.path, event)


def test_what_completed_is_not_retried(submitted_run):
    journal_states(submitted_run, *["COMPLETED"] * 4, "FAILED", "TIMEOUT")
    assert stage_retry(submitted_run) == 2
    assert submitted_run.list_group_ids()[3:] == ["2n2g-try2"]


def test_retried_arrays_are_as_large_as_the_largest_before(submitted_run):
    tasks = submitted_run.find_tasks_file("2n2g")
    tasks.write_text(tasks.read_text().splitlines(keepends=True)[0], encoding="utf-8")
    journal_states(submitted_run, "FAILED", "FAILED", *["COMPLETED"] * 3)
    assert stage_retry(submitted_run) == 2
    assert len(submitted_run.read_tasks("1n1g-try2")) == 2


def test_following_ends_where_the_rest_was_never_submitted(bin_dir, staged_run):
    write_program(bin_dir, "squeue", "true")
    (states,) = follow_run(Tracker(staged_run))
    assert {state.state for state in states} == {"STAGED"}
