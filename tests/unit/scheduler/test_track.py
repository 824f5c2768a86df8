"""States of array tasks from files and a scheduler of fake programs on PATH, and who is retried."""

import json
import os
import resource
import socket
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from builders import (
    journal_state,
    journal_submissions,
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
from dlperf_slurm.contract.record import OUT_OF_MEMORY, TERMINATED, Failure
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.failed_nodes import parse_failed_nodes
from dlperf_slurm.jobs.journal import (
    JOURNAL_FILE,
    STATE,
    SUBMITTED,
    UNMARKED,
    Event,
    append_event,
    append_events,
    read_journal,
    read_whole_journal,
)
from dlperf_slurm.jobs.markers import LOG_WORDS, MARKERS_DIR
from dlperf_slurm.scheduler import follow
from dlperf_slurm.scheduler.follow import follow_run
from dlperf_slurm.scheduler.retry import stage_retry
from dlperf_slurm.scheduler.state import FAILED, StartFiles, count_states
from dlperf_slurm.scheduler.task_facts import read_files
from dlperf_slurm.scheduler.track import Tracker

GROUP = "1n1g"
FINAL = ["FAILED", *["COMPLETED"] * 5]


@pytest.fixture
def run(cluster, staged_run):
    """Its groups are the array jobs 1, 2 and 3; the queue shows nothing."""
    journal_submissions(staged_run)
    return staged_run


@pytest.fixture
def task(run):
    return run.read_tasks(GROUP)[0]


@pytest.fixture
def case(run, task):
    return read_case(run, task)


@pytest.fixture
def show(bin_dir, run):
    """Has the queue show the first job in this state."""

    def show_job(state, reason="", job="1"):
        show_queue(bin_dir, f"{job}_0|{state}||{reason}", name=f"{run.run_id}.{GROUP}")

    return show_job


def write_marker(run, task, kind, exit_code=0, start=0, hours=0.0):
    """`hours` is how far the clock of the node is ahead."""
    time = f"{datetime.now(timezone.utc) + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
    marker = {"job_id": "1", "begun": time, "time": time, "nodes": "n1", "exit_code": exit_code}
    path = run.path / MARKERS_DIR / f"{task.marker}.s{start}.{kind}"
    path.write_text(json.dumps(marker), encoding="utf-8")


def write_start(run, task, record, start=0, exit_code=0):
    """Write a start that has ended, with this record."""
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


def ago(seconds):
    return f"{datetime.now(timezone.utc) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("has_started", "row", "expected"),
    [
        (False, ("PENDING", "Priority"), ("PENDING", "Priority")),
        (False, ("PENDING", "None"), ("PENDING", "")),
        (True, ("PENDING", "Priority"), ("RUNNING", "")),
        (True, ("PENDING", "JobHeldUser"), ("PENDING", "JobHeldUser")),
        (True, ("SUSPENDED", ""), ("SUSPENDED", "")),
    ],
)
def test_queue_says_what_goes_on(run, task, show, has_started, row, expected):
    show(*row)
    if has_started:
        write_marker(run, task, "started")
    assert find_state(run) == expected


def test_queue_is_asked_before_a_failure_is_believed(bin_dir, run, task, case, show):
    write_start(run, task, make_failed_record(case), exit_code=1)
    write_program(bin_dir, "squeue", "exit 1")
    assert find_state(run)[0] == "COMPLETING"
    show("PENDING")
    assert find_state(run)[0] == "PENDING"


@pytest.mark.parametrize(
    ("status", "error", "exit_code", "shown", "state", "detail"),
    [
        ("failed", "", 1, "TIMEOUT", "FAILED", "first line"),
        (OUT_OF_MEMORY, "", 1, "FAILED", "OUT_OF_MEMORY", "first line"),
        (OUT_OF_MEMORY, "", 143, "CANCELLED", "OUT_OF_MEMORY", "first line"),
        ("failed", "", 143, "TIMEOUT", "TIMEOUT", "first line"),
        ("failed", "", 143, "FAILED", "FAILED", "first line"),
        ("failed", TERMINATED, 143, "FAILED", "PREEMPTED", "no one cancelled the job"),
        ("failed", TERMINATED, 143, "PREEMPTED", "PREEMPTED", "preempted by Slurm"),
        ("failed", TERMINATED, 143, "TIMEOUT", "TIMEOUT", "first line"),
        ("failed", TERMINATED, 143, "NODE_FAIL", "NODE_FAIL", "node n1 failed"),
    ],
)
def test_record_and_slurm_say_how_a_task_ended(
    run, task, case, show, status, error, exit_code, shown, state, detail
):
    failure = Failure(-1, "", error, "terminated (SIGTERM)", "", False)
    record = replace(make_failed_record(case, status, "first line\nsecond"), failures=(failure,))
    write_start(run, task, record, exit_code=exit_code)
    show(shown)
    found, words = find_state(run)
    assert (found, detail in words, "second" in words) == (state, True, False)


@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_of_a_node_decides_nothing(run, task, show, hours):
    write_start(run, task, None, exit_code=143)
    write_marker(run, task, "finished", 143, hours=hours)
    assert find_state(run)[0] == "COMPLETING"
    show("PENDING")
    assert find_state(run)[0] == "PENDING"


# a run calls lost after 300 seconds what neither queue nor accounting nor files know
@pytest.mark.parametrize(
    ("seconds", "host", "state"),
    # the clock of another host decides nothing
    [(200, "", "UNKNOWN"), (400, "", "LOST"), (400, "another", "UNKNOWN")],
)
def test_task_that_nobody_knows_is_lost_after_a_while(bin_dir, staged_run, seconds, host, state):
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", "true")
    event = Event(SUBMITTED, ago(seconds), GROUP, array_job_id="1")
    append_event(staged_run.path, replace(event, host=host or event.host))
    assert find_state(staged_run)[0] == state


@pytest.mark.parametrize(
    ("host", "seconds", "missed", "state"),
    [
        (None, 400, "UNKNOWN", "LOST"),
        (None, 200, "UNKNOWN", "UNKNOWN"),
        # what another host missed first is missed from now on
        ("another", 400, "UNKNOWN", "UNKNOWN"),
        (None, 400, "COMPLETED", "LOST"),
        (None, 200, "COMPLETED", "COMPLETING"),
    ],
)
def test_start_that_nobody_knows_is_lost_after_a_while(
    run, task, show, host, seconds, missed, state
):
    write_marker(run, task, "started")
    event = Event(UNMARKED, ago(seconds), GROUP, "1", 0, missed)
    append_event(run.path, event if host is None else replace(event, host=host))
    if missed == "COMPLETED":
        show(missed)
    assert find_state(run)[0] == state


def test_another_host_that_misses_a_start_does_not_restart_the_grace_period(run, task):
    write_marker(run, task, "started")
    for seconds, host in ((400, socket.gethostname()), (10, "another")):
        append_event(run.path, Event(UNMARKED, ago(seconds), GROUP, "1", 0, "UNKNOWN", host=host))
    assert find_state(run)[0] == "LOST"


def test_what_was_missed_and_seen_again_is_missed_anew(bin_dir, run, task, show):
    write_marker(run, task, "started")
    append_event(run.path, Event(UNMARKED, ago(400), GROUP, "1", 0, "UNKNOWN"))
    show("RUNNING")
    assert find_state(run)[0] == "RUNNING"
    show_queue(bin_dir)
    assert find_state(run)[0] == "UNKNOWN"


def test_final_state_holds_when_the_scheduler_has_forgotten_the_job(bin_dir, run, task, show):
    write_start(run, task, None, exit_code=143)
    show("TIMEOUT", "TimeLimit")
    assert find_state(run) == ("TIMEOUT", "TimeLimit")
    show_queue(bin_dir)
    (run.path / task.attempt_dir / "s0" / "note").touch()
    assert find_state(run) == ("TIMEOUT", "TimeLimit")


def test_reason_of_a_loss_holds(run):
    journal_state(run, run.read_tasks(GROUP)[0], "LOST", "its files are gone")
    assert find_state(run) == ("LOST", "its files are gone")


def test_record_of_an_earlier_start_says_nothing_of_a_newer_one(run, task, case, show):
    write_start(run, task, make_failed_record(case, OUT_OF_MEMORY), exit_code=1)
    # its folder is not here yet, or no longer
    write_marker(run, task, "finished", exit_code=7, start=1)
    show("FAILED")
    state, detail = find_state(run)
    assert (state, "exit code 7" in detail) == ("FAILED", True)


def test_final_state_is_reopened_by_the_queue_or_a_later_start(bin_dir, run, task, case, show):
    write_start(run, task, make_failed_record(case), exit_code=1)
    assert find_state(run)[0] == "FAILED"
    show("PENDING", "BeginTime")
    assert find_state(run) == ("PENDING", "BeginTime")
    show("RUNNING")
    write_marker(run, task, "started", start=1)
    assert find_state(run)[0] == "RUNNING"
    # what the journal says of an earlier start does not count
    show_queue(bin_dir)
    assert find_state(run)[0] == "RUNNING"


# one of a start that lived on counts too
@pytest.mark.parametrize(("failed", "valid"), [(0, 1), (1, 0)])
def test_final_state_is_reopened_by_a_valid_record(run, task, case, failed, valid):
    write_start(run, task, make_failed_record(case), start=failed, exit_code=1)
    tracker = Tracker(run)
    assert tracker.refresh(ask_scheduler=True)[0].state == "FAILED"
    write_start(run, task, make_record(case), start=valid)
    assert tracker.refresh(ask_scheduler=True)[0].state == "COMPLETED"
    assert find_state(run)[0] == "COMPLETED"


@pytest.mark.parametrize("name", ["record.json", "step_seconds.npy", "gone"])
def test_file_that_is_damaged_or_gone_after_the_end_is_no_measurement(run, task, case, name):
    folder = write_start(run, task, make_record(case))
    assert find_state(run)[0] == "COMPLETED"
    if name == "gone":
        (folder / "record.json").unlink()
    else:
        (folder / name).write_bytes(b"{")
    state, detail = find_state(run)
    assert (state, name in detail or name == "gone") == ("FAILED", True)
    assert stage_retry(run) == 1


def test_other_job_of_the_array_is_followed_when_it_has_the_claim(bin_dir, run, task, show):
    """The journal knows job 1; job 9 came first, and is in the queue no more."""
    folder = run.path / task.attempt_dir
    folder.mkdir(parents=True)
    (folder / "claim").symlink_to("9")
    show("COMPLETED")
    accounted = print_queue("9_0|CANCELLED by 0|n1|None", name=f"{run.run_id}.{GROUP}")
    write_program(bin_dir, "sacct", accounted)
    tracker = Tracker(run)
    tracker.refresh(ask_scheduler=True)
    state = tracker.refresh(ask_scheduler=True)[0]
    assert (state.state, state.array_job_id) == ("CANCELLED", "9")


def test_array_that_was_taken_twice_is_followed_where_it_waits(run, show):
    show("PENDING", job="9")
    state = Tracker(run).refresh(ask_scheduler=True)[0]
    assert (state.state, state.array_job_id) == ("PENDING", "9")


def test_jobs_of_whoever_submitted_a_part_are_asked_for(bin_dir, run, home, monkeypatch):
    owner = str(run.path.stat().st_uid)
    monkeypatch.setattr("os.geteuid", lambda: 98765)
    append_event(run.path, Event(SUBMITTED, format_now(), "1n2g", "8", detail="4711"))
    append_event(run.path, Event(SUBMITTED, format_now(), "1n2g", "8", detail="-1 \u0663"))
    write_program(bin_dir, "squeue", f'echo "$@" > {home}/asked; {print_queue()}')
    Tracker(run).refresh(ask_scheduler=True)
    asked = (home / "asked").read_text().split()
    assert {"--states=all", "--federation", "--sibling"} <= set(asked)
    (users,) = [word for word in asked if word.startswith("--user=")]
    assert {"4711", owner, "98765"} == set(users.partition("=")[2].split(","))


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        ("srun: error: Node failure on n2\n", "node n2 failed"),
        ("slurmstepd: error: *** STEP 4.0 ON n3 CANCELLED AT 2024-05-01T12:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", "node n3 failed"),
        ("", "node n1 failed"),
    ],
)  # fmt: skip
def test_node_that_failed_is_named(run, task, case, show, error, detail):
    folder = write_start(run, task, make_failed_record(case), exit_code=1)
    (folder / "err").write_text(error, encoding="utf-8")
    show("NODE_FAIL")
    assert find_state(run) == ("NODE_FAIL", detail)


@pytest.mark.parametrize("exit_code", [1, 143])
def test_node_that_was_not_fit_is_a_state_of_its_own(run, task, case, show, exit_code):
    reports = [NodeReport(node, node, 0.0, 0.0, ("no link", "no GPU")) for node in ("n2", "n3")]
    failures = tuple(make_node_failure(report) for report in reports)
    record = replace(make_failed_record(case), reason="", failures=failures)
    write_start(run, task, record, exit_code=exit_code)
    show("FAILED")
    why = "node n2 is unhealthy: no link, no GPU; node n3 is unhealthy: no link, no GPU"
    assert find_state(run) == ("UNHEALTHY", why)


@pytest.mark.parametrize(
    ("line", "detail"),
    [("a/b cannot be written", "'a/b cannot be written' in scripts/1_0.log"),
     (f"{LOG_WORDS} cases/x/r1/a1/s0, out and err", "NonZeroExitCode")],
)  # fmt: skip
def test_script_that_ended_before_it_started_says_why(run, show, line, detail):
    show("FAILED", "NonZeroExitCode")
    (run.path / "scripts" / "1_0.log").write_text(f"{line}\n", encoding="utf-8")
    assert find_state(run) == ("FAILED", detail)


@pytest.mark.parametrize("has_started", [False, True])
def test_failure_before_the_ranks_started_names_the_node(bin_dir, run, task, has_started):
    if has_started:
        write_start(run, task, None, exit_code=127)
    show_queue(bin_dir, "1_0|FAILED|n1|JobLaunchFailure", name=f"{run.run_id}.{GROUP}")
    state, detail = find_state(run)
    assert (state, parse_failed_nodes(state, detail)) == ("FAILED", ["n1"])
    assert ("JobLaunchFailure" in detail, "127" in detail) == (not has_started, has_started)


def test_journal_that_cannot_be_written_hides_no_state(run, task, case):
    write_start(run, task, make_record(case))
    journal = run.path / JOURNAL_FILE
    tracker = Tracker(run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))
    try:
        assert tracker.refresh(ask_scheduler=True)[0].state == "COMPLETED"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(journal) in tracker.journal_error
    tracker.refresh(ask_scheduler=True)
    assert tracker.journal_error == ""
    assert "COMPLETED" in [event.state for event in read_journal(run.path)]


def journal_states(run, *states):
    for task, state in zip(run.read_all_tasks(), states):
        journal_state(run, task, state)


def write_sound(run, *tasks):
    for task in tasks:
        write_record(run, task, make_record(read_case(run, task)))


def test_repeat_whose_first_attempt_was_measured_late_is_not_retried(run):
    journal_states(run, *["FAILED"] * 6)
    assert stage_retry(run) == 6
    for group_id in run.list_group_ids()[3:]:
        for task in run.read_tasks(group_id):
            journal_state(run, task, "FAILED")
    write_sound(run, *run.read_tasks("1n1g"))
    assert stage_retry(run) == 4


def test_retried_arrays_are_as_large_as_the_largest_before(run):
    tasks = run.get_tasks_path("2n2g")
    tasks.write_text(tasks.read_text().splitlines(keepends=True)[0], encoding="utf-8")
    journal_states(run, "FAILED", "FAILED", *["COMPLETED"] * 3)
    write_sound(run, *run.read_all_tasks()[2:])
    assert stage_retry(run) == 2
    assert len(run.read_tasks("1n1g-try2")) == 2


def test_following_ends_where_the_rest_was_never_submitted(bin_dir, staged_run):
    (states,) = follow_run(Tracker(staged_run))
    assert {state.state for state in states} == {"STAGED"}


def test_following_goes_on_after_the_run_directory_was_away(run, monkeypatch):
    write_sound(run, *run.read_all_tasks())
    journal_states(run, *["COMPLETED"] * 6)
    tracker = Tracker(run)
    away = run.path.with_name("away")
    run.path.rename(away)
    monkeypatch.setattr("time.sleep", lambda seconds: away.rename(run.path))
    (states,) = follow_run(tracker)
    assert {state.state for state in states} == {"COMPLETED"}


def test_following_ends_soon_when_the_run_directory_was_deleted(run, monkeypatch):
    tracker = Tracker(run)
    run.path.rename(run.path.parent.with_name("away"))
    monkeypatch.setattr(follow, "DELETED_SECONDS", -1.0)
    with pytest.raises(InputError, match=r"was deleted or moved.* scancel"):
        next(follow_run(tracker))


def test_following_goes_on_after_the_folder_of_runs_was_not_mounted(run, monkeypatch):
    folder = run.path.parent
    away = folder.with_name("away")
    states = follow_run(Tracker(run))
    before = next(states)
    folder.rename(away)
    # the mount point
    folder.mkdir()
    monkeypatch.setattr(follow, "DELETED_SECONDS", -1.0)
    monkeypatch.setattr("time.sleep", lambda seconds: folder.exists() and away.rename(folder))
    assert next(states) == before


def test_following_ends_when_the_run_directory_stays_away(run, monkeypatch):
    tracker = Tracker(run)
    run.path.rename(run.path.with_name("away"))
    monkeypatch.setattr(follow, "AWAY_SECONDS", -1.0)
    with pytest.raises(FileNotFoundError):
        next(follow_run(tracker))


opened: list[str] = []


def note_open(event, arguments):
    if event in ("open", "os.scandir", "os.listdir"):
        name = arguments[0]
        opened.append(os.fsdecode(name) if isinstance(name, bytes) else name)


@pytest.fixture(scope="module", autouse=True)
def watched_files():
    """Python never forgets such a hook; it only lists names."""
    sys.addaudithook(note_open)


@pytest.fixture
def ended_run(run):
    """All its array tasks have ended: the first badly, the others with a valid record."""
    for index, task in enumerate(run.read_all_tasks()):
        case = read_case(run, task)
        write_start(run, task, make_record(case) if index else make_failed_record(case))
    return run


def look(run):
    """Return the states in a new tracker, and how many records it opened."""
    opened.clear()
    states = [state.state for state in Tracker(run).refresh(ask_scheduler=True)]
    return states, sum(str(name).endswith("record.json") for name in opened)


@pytest.mark.parametrize("name", ["record.json", "step_seconds.npy"])
def test_only_files_that_were_written_since_are_opened(ended_run, name):
    assert look(ended_run) == (FINAL, 6)
    assert look(ended_run) == (FINAL, 0)
    path = ended_run.path / ended_run.read_all_tasks()[1].attempt_dir / "s0" / name
    # the same bytes, written again
    os.utime(path.with_name("record.json"), ns=(1, 1))
    assert look(ended_run) == (FINAL, 1)
    path.write_bytes(b"{")
    assert look(ended_run) == (["FAILED", "FAILED", *["COMPLETED"] * 4], 1)


def test_state_that_names_no_files_is_decided_by_those_that_are_there(ended_run):
    for task in ended_run.read_all_tasks():
        event = Event(STATE, format_now(), task.group_id, "1", task.array_task_id, "COMPLETED")
        append_event(ended_run.path, replace(event, start=0))
    assert look(ended_run) == (FINAL, 6)


def finish(run, count):
    """Give the first group so many array tasks, all journaled as completed."""
    folder = run.read_tasks(GROUP)[0].attempt_dir.rpartition("/r")[0]
    lines = [f"pytorch\t{folder}/r{number + 1}/a1\tsrun\t-\t0\t0\n" for number in range(count)]
    run.get_tasks_path(GROUP).write_text("".join(lines), encoding="utf-8")
    event = Event(STATE, format_now(), GROUP, "1", 0, "COMPLETED", start=0, files="0 0e 0s")
    ended = [replace(event, array_task_id=number) for number in range(count)]
    append_events(run.path, [Event(SUBMITTED, format_now(), GROUP, "1"), *ended])
    for number in range(count):
        (run.path / MARKERS_DIR / f"{GROUP}.{number}.s0.finished").touch()


def look_at_journal(run):
    """How many have completed, and how many files and folders were opened for that."""
    opened.clear()
    states = Tracker(run, trusts_journal=True).refresh(ask_scheduler=True)
    return count_states(states).get("COMPLETED"), len(opened)


def test_opened_files_do_not_grow_with_the_array_tasks_that_have_ended(run):
    finish(run, 10)
    completed, of_ten = look_at_journal(run)
    assert completed == 10
    finish(run, 20)
    assert look_at_journal(run) == (20, of_ten)


def change_markers(run):
    (run.path / MARKERS_DIR / f"{GROUP}.0.s1.started").touch()
    (run.path / MARKERS_DIR / f"{GROUP}.1.s0.finished").unlink()


def test_start_that_the_journal_does_not_know_is_looked_at_though_it_is_trusted(run):
    finish(run, 3)
    change_markers(run)
    assert look_at_journal(run)[0] == 1


def test_marker_that_comes_or_goes_between_two_looks_is_seen(run):
    finish(run, 2)
    tracker = Tracker(run, trusts_journal=True)
    first = tracker.refresh(ask_scheduler=True)[:2]
    assert {state.state for state in first} == {"COMPLETED"}
    change_markers(run)
    later = tracker.refresh(ask_scheduler=True)[:2]
    assert "COMPLETED" not in {state.state for state in later}


def test_journal_that_was_replaced_since_is_read_anew(run):
    finish(run, 2)
    events, _ = read_whole_journal(run.path)
    lines = [json.dumps(vars(replace(event, host="elsewhere"))) + "\n" for event in events]
    (run.path / "journal.jsonl").write_text("".join(lines), encoding="utf-8")
    assert {event.host for event in read_whole_journal(run.path)[0]} == {"elsewhere"}


def test_line_of_the_journal_that_is_being_written_counts_once_it_is_whole(run):
    line = json.dumps(vars(Event(STATE, format_now(), GROUP)))
    before, _ = read_whole_journal(run.path)
    with (run.path / "journal.jsonl").open("a", encoding="utf-8") as file:
        file.write(line[:20])
        file.flush()
        assert read_whole_journal(run.path) == (before, False)
        file.write(line[20:] + os.linesep)
    events, is_whole = read_whole_journal(run.path)
    assert (is_whole, events[:-1]) == (True, before)


@pytest.mark.parametrize(
    ("content", "stopped"), [(b"TIMEOUT", "TIMEOUT"), (b"\xff\xfe", FAILED), (None, "")]
)
def test_marker_of_a_stopped_task_is_read_unless_it_is_gone(run, task, content, stopped):
    if content is not None:
        (run.path / MARKERS_DIR / f"{task.marker}.killed").write_bytes(content)
    assert read_files(run, task, 0, frozenset({"killed"})) == StartFiles(stopped=stopped)
