"""States of array tasks from files and a scheduler of fake programs on PATH, and who is retried."""

import json
import resource
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from builders import (
    make_failed_record,
    make_record,
    print_queue,
    read_case,
    show_queue,
    write_program,
    write_record,
)

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.nodes import NodeReport, make_node_failure
from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import (
    JOURNAL_FILE,
    STATE,
    SUBMITTED,
    UNMARKED,
    Event,
    append_event,
    read_journal,
)
from dlperf_slurm.jobs.markers import LOG_WORDS, MARKERS_DIR
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler import follow
from dlperf_slurm.scheduler.follow import follow_run
from dlperf_slurm.scheduler.retry import stage_retry
from dlperf_slurm.scheduler.state import OOM, UNKNOWN, TaskState
from dlperf_slurm.scheduler.track import Tracker

GROUP = "1n1g"

# the states of squeue(1), "job state codes"
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "TIMEOUT"),
)
GOING_ON = (
    *("COMPLETING", "CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT"),
    *("REVOKED", "STOPPED", "SUSPENDED"),
)


@pytest.fixture
def submitted_run(bin_dir, staged_run):
    """Its groups are the array jobs 1, 2 and 3; the queue shows nothing."""
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", "true")
    for number, group_id in enumerate(staged_run.list_group_ids(), start=1):
        event = Event(SUBMITTED, format_now(), group_id=group_id, array_job_id=str(number))
        append_event(staged_run.path, event)
    return staged_run


def show_job(bin_dir, run, state, reason=""):
    show_queue(bin_dir, f"1_0|{state}||{reason}", name=f"{run.run_id}.{GROUP}")


def write_marker(run, task, kind, exit_code=0, start=0, hours=0.0, job_id="1"):
    """`hours` is how far the clock of the node is ahead."""
    time = f"{datetime.now(timezone.utc) + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
    marker = {"job_id": job_id, "begun": time, "time": time, "nodes": "n1", "exit_code": exit_code}
    path = run.path / MARKERS_DIR / f"{task.marker}.s{start}.{kind}"
    path.write_text(json.dumps(marker), encoding="utf-8")


def write_start(run, task, record, start=0, exit_code=0):
    """A start that came to its end, with this record."""
    folder = run.path / task.attempt_dir / f"s{start}"
    folder.mkdir(parents=True)
    if record is not None:
        write_json(folder / "record.json", record)
    write_marker(run, task, "finished", exit_code, start)
    return folder


def find_state(run):
    """State and detail of the first array task."""
    state = Tracker(run).refresh(ask_scheduler=True)[0]
    return state.state, state.detail


def test_task_that_has_started_runs_though_the_queue_still_says_pending(bin_dir, submitted_run):
    show_job(bin_dir, submitted_run, "PENDING")
    assert find_state(submitted_run)[0] == "PENDING"
    write_marker(submitted_run, submitted_run.read_tasks(GROUP)[0], "started")
    assert find_state(submitted_run)[0] == "RUNNING"


@pytest.mark.parametrize("reason", ["BeginTime", "JobHeldUser", "launch failed requeued held"])
def test_task_that_waits_again_after_a_start_is_pending(bin_dir, submitted_run, reason):
    show_job(bin_dir, submitted_run, "PENDING", reason)
    write_marker(submitted_run, submitted_run.read_tasks(GROUP)[0], "started")
    assert find_state(submitted_run) == ("PENDING", reason)


def test_state_of_a_started_task_is_that_of_the_queue(bin_dir, submitted_run):
    show_job(bin_dir, submitted_run, "SUSPENDED")
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
    show_job(bin_dir, submitted_run, "PENDING", reason)
    assert find_state(submitted_run) == ("PENDING", detail)


@pytest.mark.parametrize(
    ("status", "state"), [(OUT_OF_MEMORY, "OUT_OF_MEMORY"), ("failed", "FAILED")]
)
def test_record_says_how_an_ended_task_failed(submitted_run, status, state):
    task = submitted_run.read_tasks(GROUP)[0]
    case = read_case(submitted_run, task)
    record = make_failed_record(case, status, "first line\nsecond")
    write_start(submitted_run, task, record, exit_code=1)
    assert find_state(submitted_run) == (state, "first line")


@pytest.fixture
def task(submitted_run):
    return submitted_run.read_tasks(GROUP)[0]


@pytest.fixture
def case(submitted_run, task):
    return read_case(submitted_run, task)


@pytest.mark.parametrize("exit_code", [1, 137, 143])
@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("PENDING", "PENDING"),
        ("REQUEUED", "REQUEUED"),
        ("RUNNING", "COMPLETING"),
        ("COMPLETING", "COMPLETING"),
        ("FAILED", "FAILED"),
    ],
)
def test_queue_is_asked_before_a_failure_is_believed(
    bin_dir, submitted_run, task, case, exit_code, shown, state
):
    write_start(submitted_run, task, make_failed_record(case), exit_code=exit_code)
    show_job(bin_dir, submitted_run, shown)
    assert find_state(submitted_run)[0] == state


@pytest.mark.parametrize(("exit_code", "state"), [(1, "FAILED"), (143, "TIMEOUT")])
def test_end_by_the_scheduler_counts_where_the_script_was_told_to_end(
    bin_dir, submitted_run, task, exit_code, state
):
    write_start(submitted_run, task, None, exit_code=exit_code)
    show_job(bin_dir, submitted_run, "TIMEOUT")
    assert find_state(submitted_run)[0] == state


@pytest.mark.parametrize("shown", ["TIMEOUT", "CANCELLED", "FAILED"])
def test_ranks_that_ran_out_of_memory_did_so_however_the_job_was_ended(
    bin_dir, submitted_run, task, case, shown
):
    write_start(submitted_run, task, make_failed_record(case, OUT_OF_MEMORY), exit_code=143)
    show_job(bin_dir, submitted_run, shown)
    assert find_state(submitted_run)[0] == OOM


def test_failure_is_not_believed_while_no_scheduler_answers(bin_dir, submitted_run, task, case):
    write_start(submitted_run, task, make_failed_record(case), exit_code=1)
    write_program(bin_dir, "squeue", "exit 1")
    assert find_state(submitted_run)[0] == "COMPLETING"


@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_of_a_node_decides_nothing(bin_dir, submitted_run, task, hours):
    write_start(submitted_run, task, None, exit_code=143)
    write_marker(submitted_run, task, "finished", 143, hours=hours)
    assert find_state(submitted_run)[0] == "COMPLETING"
    show_job(bin_dir, submitted_run, "PENDING")
    assert find_state(submitted_run)[0] == "PENDING"


@pytest.mark.parametrize(
    ("host", "seconds", "state"),
    [(None, 400, "LOST"), (None, 200, UNKNOWN), ("another", 400, UNKNOWN)],
)
def test_what_another_host_missed_first_is_missed_from_now_on(
    submitted_run, task, host, seconds, state
):
    then = f"{datetime.now(timezone.utc) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    write_marker(submitted_run, task, "started")
    event = Event(UNMARKED, then, GROUP, "1", 0, UNKNOWN)
    append_event(submitted_run.path, event if host is None else replace(event, host=host))
    assert find_state(submitted_run)[0] == state


@pytest.mark.parametrize(("seconds", "state"), [(200, "COMPLETING"), (400, "LOST")])
def test_script_that_ended_without_a_marker_is_lost_after_a_while(
    bin_dir, submitted_run, task, seconds, state
):
    then = f"{datetime.now(timezone.utc) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    write_marker(submitted_run, task, "started")
    append_event(submitted_run.path, Event(UNMARKED, then, GROUP, "1", 0, "COMPLETED"))
    show_job(bin_dir, submitted_run, "COMPLETED")
    assert find_state(submitted_run)[0] == state


def test_what_was_missed_and_seen_again_is_missed_anew(bin_dir, submitted_run, task):
    then = f"{datetime.now(timezone.utc) - timedelta(seconds=400):%Y-%m-%dT%H:%M:%SZ}"
    write_marker(submitted_run, task, "started")
    append_event(submitted_run.path, Event(UNMARKED, then, GROUP, "1", 0, UNKNOWN))
    show_job(bin_dir, submitted_run, "RUNNING")
    assert find_state(submitted_run)[0] == "RUNNING"
    show_queue(bin_dir)
    assert find_state(submitted_run)[0] == UNKNOWN


def test_final_state_is_reopened_by_the_queue(bin_dir, submitted_run, task, case):
    write_start(submitted_run, task, make_failed_record(case), exit_code=1)
    assert find_state(submitted_run)[0] == "FAILED"
    show_job(bin_dir, submitted_run, "PENDING", "BeginTime")
    assert find_state(submitted_run) == ("PENDING", "BeginTime")


def test_final_state_is_reopened_by_a_later_start(bin_dir, submitted_run, task, case):
    write_start(submitted_run, task, make_failed_record(case), exit_code=1)
    assert find_state(submitted_run)[0] == "FAILED"
    show_job(bin_dir, submitted_run, "RUNNING")
    write_marker(submitted_run, task, "started", start=1)
    assert find_state(submitted_run)[0] == "RUNNING"


def test_final_state_is_reopened_by_a_sound_record(submitted_run, task, case):
    write_start(submitted_run, task, make_failed_record(case), exit_code=1)
    tracker = Tracker(submitted_run)
    assert tracker.refresh(ask_scheduler=True)[0].state == "FAILED"
    write_start(submitted_run, task, make_record(case), start=1)
    assert tracker.refresh(ask_scheduler=True)[0].state == "COMPLETED"
    assert find_state(submitted_run)[0] == "COMPLETED"


def test_sound_record_of_a_start_that_lived_on_counts(submitted_run, task, case):
    write_start(submitted_run, task, make_failed_record(case), start=1, exit_code=1)
    tracker = Tracker(submitted_run)
    assert tracker.refresh(ask_scheduler=True)[0].state == "FAILED"
    write_start(submitted_run, task, make_record(case), start=0)
    assert tracker.refresh(ask_scheduler=True)[0].state == "COMPLETED"


def test_start_that_runs_beside_a_sound_record_is_followed(bin_dir, submitted_run, task, case):
    write_start(submitted_run, task, make_record(case))
    write_marker(submitted_run, task, "started", start=1)
    show_job(bin_dir, submitted_run, "RUNNING")
    assert find_state(submitted_run)[0] == "RUNNING"


@pytest.mark.parametrize("shown", ["COMPLETED", "NODE_FAIL", "CANCELLED"])
def test_sound_record_without_a_marker_counts(bin_dir, submitted_run, task, case, shown):
    write_start(submitted_run, task, make_record(case))
    (submitted_run.path / MARKERS_DIR / f"{task.marker}.s0.finished").unlink()
    write_marker(submitted_run, task, "started")
    show_job(bin_dir, submitted_run, shown)
    assert find_state(submitted_run)[0] == "COMPLETED"


@pytest.mark.parametrize("name", ["record.json", "step_seconds.npy"])
def test_file_that_is_damaged_after_the_end_is_no_measurement(submitted_run, task, case, name):
    folder = write_start(submitted_run, task, make_record(case))
    assert find_state(submitted_run)[0] == "COMPLETED"
    (folder / name).write_bytes(b"{")
    state, detail = find_state(submitted_run)
    assert (state, name in detail) == ("FAILED", True)
    assert stage_retry(submitted_run) == 1


def test_record_that_is_gone_is_tried_again(submitted_run, task, case):
    folder = write_start(submitted_run, task, make_record(case))
    assert find_state(submitted_run)[0] == "COMPLETED"
    (folder / "record.json").unlink()
    assert find_state(submitted_run)[0] == "FAILED"


def test_repeat_whose_first_attempt_was_measured_late_is_not_retried(submitted_run):
    journal_states(submitted_run, *["FAILED"] * 6)
    assert stage_retry(submitted_run) == 6
    events = [
        Event(STATE, format_now(), group_id, "9", task.array_task_id, "FAILED")
        for group_id in submitted_run.list_group_ids()[3:]
        for task in submitted_run.read_tasks(group_id)
    ]
    for event in events:
        append_event(submitted_run.path, event)
    write_sound(submitted_run, *submitted_run.read_tasks("1n1g"))
    assert stage_retry(submitted_run) == 4


def test_other_job_of_the_array_is_followed_when_it_has_the_claim(bin_dir, submitted_run, task):
    """The journal knows job 1; job 9 came first, and is in the queue no more."""
    folder = submitted_run.path / task.attempt_dir
    folder.mkdir(parents=True)
    (folder / "claim").symlink_to("9")
    show_job(bin_dir, submitted_run, "COMPLETED")
    accounted = print_queue("9_0|CANCELLED by 0|n1|None", name=f"{submitted_run.run_id}.{GROUP}")
    write_program(bin_dir, "sacct", accounted)
    tracker = Tracker(submitted_run)
    tracker.refresh(ask_scheduler=True)
    state = tracker.refresh(ask_scheduler=True)[0]
    assert (state.state, state.array_job_id) == ("CANCELLED", "9")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        ("srun: error: Node failure on n2\n", "node n2 failed"),
        ("slurmstepd: error: *** STEP 4.0 ON n3 CANCELLED AT 2024-05-01T12:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", "node n3 failed"),
        ("", "node n1 failed"),
    ],
)  # fmt: skip
def test_node_that_failed_is_named(bin_dir, submitted_run, task, case, error, detail):
    folder = write_start(submitted_run, task, make_failed_record(case), exit_code=1)
    (folder / "err").write_text(error, encoding="utf-8")
    show_job(bin_dir, submitted_run, "NODE_FAIL")
    assert find_state(submitted_run) == ("NODE_FAIL", detail)


@pytest.mark.parametrize("exit_code", [1, 143])
def test_node_that_was_not_fit_is_a_state_of_its_own(bin_dir, submitted_run, task, case, exit_code):
    reports = [NodeReport(node, node, 0.0, 0.0, ("no link", "no GPU")) for node in ("n2", "n3")]
    failures = tuple(make_node_failure(report) for report in reports)
    record = replace(make_failed_record(case), reason="", failures=failures)
    write_start(submitted_run, task, record, exit_code=exit_code)
    show_job(bin_dir, submitted_run, "FAILED")
    why = "node n2 is unhealthy: no link, no GPU; node n3 is unhealthy: no link, no GPU"
    assert find_state(submitted_run) == ("UNHEALTHY", why)


def test_script_that_ended_before_it_started_says_why(bin_dir, submitted_run):
    show_job(bin_dir, submitted_run, "FAILED", "NonZeroExitCode")
    log = submitted_run.path / "scripts" / "1_0.log"
    log.write_text("cases/x/r1/a1 cannot be written on n1\n", encoding="utf-8")
    assert find_state(submitted_run) == (
        "FAILED",
        "'cases/x/r1/a1 cannot be written on n1' in scripts/1_0.log",
    )


def test_script_that_said_no_more_than_where_to_look_ended_without_a_word(bin_dir, submitted_run):
    show_job(bin_dir, submitted_run, "FAILED", "NonZeroExitCode")
    log = submitted_run.path / "scripts" / "1_0.log"
    log.write_text(f"{LOG_WORDS} cases/x/r1/a1/s0, out and err\n", encoding="utf-8")
    assert find_state(submitted_run) == ("FAILED", "NonZeroExitCode")


def test_journal_that_cannot_be_written_hides_no_state(bin_dir, submitted_run, task, case):
    write_start(submitted_run, task, make_record(case))
    journal = submitted_run.path / JOURNAL_FILE
    tracker = Tracker(submitted_run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))
    try:
        assert tracker.refresh(ask_scheduler=True)[0].state == "COMPLETED"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(journal) in tracker.journal_error
    tracker.refresh(ask_scheduler=True)
    assert tracker.journal_error == ""
    assert "COMPLETED" in [event.state for event in read_journal(submitted_run.path)]


@pytest.mark.parametrize("state", ENDED + GOING_ON)
def test_state_is_final_when_the_task_has_ended(state):
    task = RunTask(GROUP, 0, "cases/c/r1/a1")
    assert TaskState(task, "1", state, "").is_final == (state in ENDED)


def journal_states(run, *states):
    for task, state in zip(run.read_all_tasks(), states):
        event = Event(STATE, format_now(), task.group_id, "1", task.array_task_id, state)
        append_event(run.path, event)


def write_sound(run, *tasks):
    for task in tasks:
        write_record(run, task, make_record(read_case(run, task)))


def test_what_completed_is_not_retried(submitted_run):
    journal_states(submitted_run, *["COMPLETED"] * 4, "FAILED", "TIMEOUT")
    write_sound(submitted_run, *submitted_run.read_all_tasks()[:4])
    assert stage_retry(submitted_run) == 2
    assert submitted_run.list_group_ids()[3:] == ["2n2g-try2"]


def test_retried_arrays_are_as_large_as_the_largest_before(submitted_run):
    tasks = submitted_run.find_tasks_file("2n2g")
    tasks.write_text(tasks.read_text().splitlines(keepends=True)[0], encoding="utf-8")
    journal_states(submitted_run, "FAILED", "FAILED", *["COMPLETED"] * 3)
    write_sound(submitted_run, *submitted_run.read_all_tasks()[2:])
    assert stage_retry(submitted_run) == 2
    assert len(submitted_run.read_tasks("1n1g-try2")) == 2


def test_following_ends_where_the_rest_was_never_submitted(bin_dir, staged_run):
    show_queue(bin_dir)
    (states,) = follow_run(Tracker(staged_run))
    assert {state.state for state in states} == {"STAGED"}


def test_following_goes_on_after_the_run_directory_was_away(submitted_run, monkeypatch):
    write_sound(submitted_run, *submitted_run.read_all_tasks())
    journal_states(submitted_run, *["COMPLETED"] * 6)
    tracker = Tracker(submitted_run)
    away = submitted_run.path.with_name("away")
    submitted_run.path.rename(away)
    monkeypatch.setattr("time.sleep", lambda seconds: away.rename(submitted_run.path))
    (states,) = follow_run(tracker)
    assert {state.state for state in states} == {"COMPLETED"}


def test_following_ends_when_the_run_directory_stays_away(submitted_run, monkeypatch):
    tracker = Tracker(submitted_run)
    submitted_run.path.rename(submitted_run.path.with_name("away"))
    monkeypatch.setattr(follow, "AWAY_SECONDS", -1.0)
    with pytest.raises(FileNotFoundError):
        next(follow_run(tracker))
