"""The table of states: a test per row, what holds in all of it, and array tasks of a shared job."""

import itertools
import json

import pytest
from builders import print_queue, show_queue, write_program

from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import SUBMITTED, Event, append_event
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.scheduler.cancel import cancel_run
from dlperf_slurm.scheduler.retry import stage_retry_by_cause
from dlperf_slurm.scheduler.state import (
    FINAL_STATES,
    FROM_RECORD,
    JOB_ENDED_EARLY,
    MEMORY,
    NAMED,
    QUEUE_ROWS,
    RECORDS,
    RULES,
    SIGNAL,
    SILENT,
    STARTS,
    VALID,
    QueueRow,
    StartFiles,
    classify_row,
    classify_start,
    decide_state,
    find_rule,
    fits,
    get_row_of_array_task,
    needs_record,
)
from dlperf_slurm.scheduler.track import Tracker

NEVER = StartFiles()
STARTED = StartFiles(has_started=True)
ENDED = StartFiles(True, True, 1)
WELL = StartFiles(True, True, 0)
TOLD = StartFiles(True, True, 143)
GONE = QueueRow("UNKNOWN")
MISSING = QueueRow("UNKNOWN", is_overdue=True)
HERE = QueueRow("PENDING", is_local=True)
AGAIN = QueueRow("PENDING", "BeginTime")

# row of the table, situation, record, files, queue, whether it was cancelled, state
CASES = [
    (1, "measured", VALID, WELL, QueueRow("COMPLETED"), False, "COMPLETED"),
    (1, "measured, the queue is behind", VALID, WELL, QueueRow("RUNNING"), False, "COMPLETED"),
    (1, "measured, requeued by hand", VALID, WELL, AGAIN, False, "COMPLETED"),
    (1, "measured, then cancelled", VALID, TOLD, QueueRow("CANCELLED"), True, "COMPLETED"),
    (1, "measured, no accounting", VALID, WELL, MISSING, False, "COMPLETED"),
    (2, "a record whose markers are lost", VALID, NEVER, QueueRow("COMPLETED"), False, "COMPLETED"),
    (2, "record written, killed after it", VALID, STARTED, QueueRow("NODE_FAIL"), False,
     "COMPLETED"),
    (2, "run by hand, measured", VALID, STARTED, None, False, "COMPLETED"),
    (3, "measured, killed, waits again", VALID, STARTED, QueueRow("REQUEUED"), False, "COMPLETED"),
    (4, "staged", SILENT, NEVER, None, False, "STAGED"),
    (5, "held, not started", SILENT, StartFiles(stopped="CANCELLED"), GONE, False, "CANCELLED"),
    (5, "no time left for it", SILENT, StartFiles(stopped="SKIPPED"), GONE, False, "SKIPPED"),
    (6, "local time limit", SILENT, TOLD._replace(stopped="TIMEOUT"), HERE, False, "TIMEOUT"),
    (6, "limit in a shared job", SILENT, TOLD._replace(stopped="TIMEOUT"), QueueRow("RUNNING"),
     False, "TIMEOUT"),
    (7, "failed locally", NAMED, ENDED, HERE, False, "FAILED"),
    (7, "killed locally", SIGNAL, TOLD, HERE, False, "FAILED"),
    (8, "failed, and Slurm starts it again", NAMED, ENDED, AGAIN, False, "PENDING"),
    (8, "requeuehold", SIGNAL, TOLD, QueueRow("REQUEUE_HOLD"), False, "REQUEUE_HOLD"),
    (8, "SPECIAL_EXIT", NAMED, ENDED, QueueRow("SPECIAL_EXIT"), False, "SPECIAL_EXIT"),
    (9, "failed, an epilog takes minutes", NAMED, ENDED, QueueRow("COMPLETING"), False,
     "COMPLETING"),
    (9, "failed, no scheduler answers", NAMED, ENDED, QueueRow(), False, "COMPLETING"),
    (9, "ended on a sibling cluster", SIGNAL, TOLD, QueueRow("REVOKED"), False, "COMPLETING"),
    (10, "node died under it", NAMED, ENDED, QueueRow("NODE_FAIL"), False, "NODE_FAIL"),
    (11, "out of memory, then killed", MEMORY, TOLD, QueueRow("CANCELLED"), False, "OUT_OF_MEMORY"),
    (12, "a rank raised", NAMED, ENDED, QueueRow("FAILED"), False, "FAILED"),
    (12, "ended well, record damaged", SILENT, WELL, QueueRow("COMPLETED"), False, "FAILED"),
    (12, "failed, nobody knows the job", NAMED, ENDED, GONE, False, "FAILED"),
    (13, "time limit", SILENT, TOLD, QueueRow("TIMEOUT"), False, "TIMEOUT"),
    (13, "preempted, PreemptMode=CANCEL", SIGNAL, TOLD, QueueRow("PREEMPTED"), False, "PREEMPTED"),
    (13, "preempted, the ranks were warned", SIGNAL, ENDED, QueueRow("PREEMPTED"), False,
     "PREEMPTED"),
    (13, "scancel by somebody", SILENT, TOLD, QueueRow("CANCELLED"), False, "CANCELLED"),
    (14, "our cancel, Slurm forgot the job", SIGNAL, TOLD, MISSING, True, "CANCELLED"),
    (15, "told to end, accounting lags", SILENT, TOLD, GONE, False, "COMPLETING"),
    (16, "preempted, left within GraceTime", SIGNAL, TOLD, QueueRow("FAILED"), False, "PREEMPTED"),
    (16, "the same, ranks were warned", SIGNAL, ENDED, QueueRow("FAILED"), False, "PREEMPTED"),
    (17, "a dead rank ended the others", SILENT, TOLD, QueueRow("FAILED"), False, "FAILED"),
    (17, "a rank said why, then was killed", NAMED, TOLD, QueueRow("FAILED"), False, "FAILED"),
    (17, "told to end, nobody knows why", SIGNAL, TOLD, MISSING, False, "FAILED"),
    (18, "started, nobody asked", SILENT, STARTED, QueueRow(), False, "RUNNING"),
    (18, "started, the queue is behind", SILENT, STARTED, QueueRow("PENDING", "Priority"), False,
     "RUNNING"),
    (18, "measured, still ending", VALID, STARTED, QueueRow("PENDING", "Priority"), False,
     "RUNNING"),
    (18, "runs locally", SILENT, STARTED, HERE, False, "RUNNING"),
    (19, "submitted, nobody asked", SILENT, NEVER, QueueRow(), False, "PENDING"),
    (19, "waits locally", SILENT, NEVER, HERE, False, "PENDING"),
    (20, "our cancel while it waited", SILENT, NEVER, GONE, True, "CANCELLED"),
    (21, "unknown to squeue, sacct lags", SILENT, STARTED, GONE, False, "UNKNOWN"),
    (22, "accounting off, gone for long", SILENT, STARTED, MISSING, False, "LOST"),
    (22, "local process is gone", SILENT, STARTED, QueueRow("UNKNOWN", is_local=True), False,
     "LOST"),
    (22, "its files never came", SILENT, STARTED, QueueRow("COMPLETED", is_overdue=True), False,
     "LOST"),
    (23, "ended, its files lag", SILENT, STARTED, QueueRow("COMPLETED"), False, "COMPLETING"),
    (24, "a sibling cluster runs it", SILENT, NEVER, QueueRow("REVOKED"), False, "RUNNING"),
    (25, "waits again after a start", SILENT, STARTED, AGAIN, False, "PENDING"),
    (25, "launch failed, held", SILENT, NEVER, QueueRow("PENDING", "launch failed requeued held"),
     False, "PENDING"),
    (25, "two starts, one measured", VALID, STARTED, QueueRow("RUNNING"), False, "RUNNING"),
    (25, "suspended", SILENT, STARTED, QueueRow("SUSPENDED"), False, "SUSPENDED"),
    (25, "time limit, killed before a word", SILENT, STARTED, QueueRow("TIMEOUT"), False,
     "TIMEOUT"),
    (25, "node died, no file of it", SILENT, STARTED, QueueRow("NODE_FAIL"), False, "NODE_FAIL"),
    (25, "script failed before its start", SILENT, NEVER, QueueRow("FAILED"), False, "FAILED"),
]  # fmt: skip
ALL = list(itertools.product(RECORDS, STARTS, (False, True), QUEUE_ROWS, (False, True)))


def decide(record, files, row, is_cancelled=False):
    record_state = "OUT_OF_MEMORY" if record == MEMORY else "FAILED"
    return decide_state(record, record_state, files, row, is_cancelled)


@pytest.mark.parametrize(
    ("number", "record", "files", "row", "is_cancelled", "state"),
    [(case[0], *case[2:]) for case in CASES],
    ids=[f"{case[0]} {case[1]}" for case in CASES],
)
def test_row_of_the_table(number, record, files, row, is_cancelled, state):
    assert decide(record, files, row, is_cancelled)[:2] == (state, number)


def test_each_row_of_the_table_has_a_situation_and_words_that_exist():
    assert sorted({case[0] for case in CASES}) == list(range(1, len(RULES) + 1))
    known = (RECORDS, STARTS, ("yes",), (*QUEUE_ROWS, "over"), ("yes",))
    for rule in RULES:
        for cell, words in zip(rule, known):
            assert set(cell.split(", ")) <= {*words, "any"}, rule


def test_each_row_of_the_table_decides_what_the_rest_would_decide_otherwise():
    decided = {facts: find_rule(*facts) for facts in ALL}
    for number, rule in enumerate(RULES[:-1], start=1):
        its_own = [facts for facts, found in decided.items() if found == number]
        later = []
        for record, start, stopped, queue, cancelled in its_own:
            words = (record, start, "yes" if stopped else "", queue, "yes" if cancelled else "")
            later.append(next(r.state for r in RULES[number:] if fits(r, words)))
        assert {*later} - {rule.state}, number


def test_what_holds_for_all_combinations():
    for record, start, stopped, queue, cancelled in ALL:
        state = RULES[find_rule(record, start, stopped, queue, cancelled) - 1].state
        if record == VALID:
            assert state not in ("LOST", "FAILED", "PREEMPTED", "UNKNOWN", FROM_RECORD)
        else:
            assert state != "COMPLETED"
        if queue in ("not asked", "revoked") and record != VALID and not stopped:
            assert state in ("COMPLETING", "RUNNING", "PENDING")


# squeue(1), "job state codes"
ENDED_CODES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "TIMEOUT"),
)
LIVE_CODES = (
    *("COMPLETING", "CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT"),
    *("STOPPED", "SUSPENDED"),
)


@pytest.mark.parametrize("code", ENDED_CODES + LIVE_CODES)
def test_state_code_of_slurm_is_final_when_the_job_has_ended(code):
    assert (code in FINAL_STATES) == (code in ENDED_CODES)
    state = decide(SILENT, STARTED, QueueRow(code)).state
    assert (state in FINAL_STATES) == (code in ENDED_CODES and code != "COMPLETED")


def test_record_that_is_not_read_could_not_change_the_state():
    rows = [None, QueueRow(), HERE, GONE, MISSING, AGAIN, *map(QueueRow, ENDED_CODES + LIVE_CODES)]
    for files, row in itertools.product((NEVER, STARTED, ENDED, TOLD), rows):
        states = {decide(record, files, row).state for record in RECORDS}
        # a task that is only staged has no record
        is_staged = files is NEVER and row is None
        assert needs_record(files, row) or len(states) == 1 or is_staged, (files, row)


def test_classes_cover_what_is_classified():
    assert {classify_start(files) for files in (NEVER, STARTED, ENDED, TOLD)} == set(STARTS)
    rows = [None, QueueRow(), HERE, GONE, MISSING, AGAIN, QueueRow("COMPLETED", is_overdue=True)]
    assert {*map(classify_row, rows + [QueueRow(c) for c in ENDED_CODES + LIVE_CODES])} == set(
        QUEUE_ROWS
    )


def test_final_state_of_the_journal_stands_for_a_row():
    assert classify_row(QueueRow("LOST")) == "missing"
    assert {*map(classify_row, map(QueueRow, ("SKIPPED", "UNHEALTHY")))} == {"stopped by Slurm"}


def test_exit_code_of_a_signal_says_that_a_script_was_told_to_end():
    codes = [code for code in range(256) if classify_start(StartFiles(True, True, code)) == "told"]
    assert codes == [130, 137, 143]


@pytest.mark.parametrize(
    ("job", "has_started", "is_over", "has_begun", "expected"),
    [
        ("RUNNING", False, False, True, ("PENDING", "")),
        ("RUNNING", True, False, True, ("RUNNING", "r")),
        ("NODE_FAIL", False, True, True, ("FAILED", "")),
        ("NODE_FAIL", False, False, True, ("NODE_FAIL", JOB_ENDED_EARLY)),
        ("FAILED", False, False, False, ("FAILED", "r")),
        *((state, False, False, True, (state, "r"))
          for state in ("CANCELLED", "COMPLETED", "REQUEUED", "PENDING", "UNKNOWN", "")),
    ],
)  # fmt: skip
def test_row_of_a_job_that_array_tasks_share(job, has_started, is_over, has_begun, expected):
    row = get_row_of_array_task(QueueRow(job, "r", "n1"), has_started, is_over, has_begun)
    assert row[:3] == (*expected, "n1")


GROUP = "1n1g"


@pytest.fixture
def shared_run(bin_dir, staged_run):
    """Return a run whose first group's two array tasks share one job, submitted as 1."""
    path = staged_run.get_tasks_path(GROUP)
    text = path.read_text(encoding="utf-8")
    assert "\t-\t" in text, "each has a job of its own"
    path.write_text(text.replace("\t-\t", "\t0\t"), encoding="utf-8")
    write_program(bin_dir, "sacct", "true")
    append_event(staged_run.path, Event(SUBMITTED, format_now(), GROUP, array_job_id="1"))
    return staged_run


def show_job(bin_dir, run, state):
    show_queue(bin_dir, f"1_0|{state}||None", name=f"{run.run_id}.{GROUP}")


def mark(run, array_task_id, *kinds, exit_code=0):
    """Markers of an array task; `over` and `killed` are of no start."""
    for kind in kinds:
        folder = run.path / MARKERS_DIR
        name = f"{GROUP}.{array_task_id}"
        if kind == "over":
            (folder / f"{name}.over").symlink_to(f"exit code {exit_code}")
        elif kind == "killed":
            (folder / f"{name}.killed").write_text("TIMEOUT", encoding="utf-8")
        else:
            marker = {"job_id": "1", "nodes": "n1", "exit_code": exit_code}
            marker.update(begun=format_now(), time=format_now())
            (folder / f"{name}.s0.{kind}").write_text(json.dumps(marker), encoding="utf-8")


def find_states(run):
    states = Tracker(run).refresh(ask_scheduler=True)
    return [(state.state, state.detail) for state in states[:2]]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_task_that_its_job_went_on_after_has_failed_whatever_becomes_of_the_job(
    bin_dir, shared_run, state
):
    show_job(bin_dir, shared_run, state)
    mark(shared_run, 0, "finished", "over", exit_code=137)
    mark(shared_run, 1, "started")
    ((first, detail), _) = find_states(shared_run)
    assert first == "FAILED"
    assert "no record, exit code 137" in detail


def test_task_that_was_ended_at_its_time_limit_timed_out_though_it_left_nothing(
    bin_dir, shared_run
):
    show_job(bin_dir, shared_run, "RUNNING")
    mark(shared_run, 0, "started", "killed", "over")
    assert find_states(shared_run)[0] == ("TIMEOUT", "")


@pytest.mark.parametrize("state", ["NODE_FAIL", "TIMEOUT"])
def test_rest_of_a_job_that_ended_early_is_tried_again_however_often(bin_dir, shared_run, state):
    show_job(bin_dir, shared_run, state)
    mark(shared_run, 0, "started")
    # what the first one left there
    (shared_run.path / "scripts" / "1_0.log").write_text("output of this array task: x\n")
    assert find_states(shared_run)[1] == (state, JOB_ENDED_EARLY)
    site = shared_run.path / "site.toml"
    text = site.read_text(encoding="utf-8")
    for key, count in (("node_fail", 2), ("launch", 1), ("preempted", 2)):
        assert f"{key} = {count}\n" in text
        text = text.replace(f"{key} = {count}\n", f"{key} = 0\n")
    site.write_text(text, encoding="utf-8")
    said = []
    assert stage_retry_by_cause(shared_run, said.append) == 1
    assert said == [f"retrying 1 array tasks; the first failed: {JOB_ENDED_EARLY}"]


def test_rest_of_a_job_that_somebody_cancelled_is_left_alone(bin_dir, shared_run):
    show_job(bin_dir, shared_run, "CANCELLED")
    mark(shared_run, 0, "started")
    assert find_states(shared_run)[1] == ("CANCELLED", "")
    assert stage_retry_by_cause(shared_run, print) == 0


def test_cancelled_are_the_tasks_that_a_job_had_not_come_to_the_end_of(bin_dir, shared_run, home):
    shown = print_queue("1_0|RUNNING||None", name=f"{shared_run.run_id}.{GROUP}")
    write_program(
        bin_dir, "squeue", f"[ ! -e {home}/ended ] || {{ {print_queue()}; exit; }}; {shown}"
    )
    write_program(bin_dir, "scancel", f": > {home}/ended")
    assert cancel_run(shared_run, print) == 2
    (home / "ended").unlink()
    mark(shared_run, 0, "over")
    assert cancel_run(shared_run, print) == 1


def test_accounting_is_asked_until_all_tasks_of_a_job_are_final(bin_dir, shared_run):
    show_job(bin_dir, shared_run, "RUNNING")
    mark(shared_run, 0, "finished", "over", exit_code=1)
    tracker = Tracker(shared_run)
    tracker.refresh(ask_scheduler=True)
    show_queue(bin_dir)
    name = f"{shared_run.run_id}.{GROUP}"
    write_program(bin_dir, "sacct", print_queue("1_0|NODE_FAIL|n1|None", name=name))
    states = tracker.refresh(ask_scheduler=True)
    assert [state.state for state in states[:2]] == ["FAILED", "NODE_FAIL"]
