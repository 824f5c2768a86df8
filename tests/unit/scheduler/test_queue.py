"""What squeue and sacct print -> rows of array tasks; both are fake programs on PATH here."""

import os
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path

import pytest
from builders import print_queue, show_queue, write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.scheduler.queue import (
    SEPARATOR,
    QueueWatcher,
    TruncatedListError,
    parse_ids,
    parse_lines,
)
from dlperf_slurm.scheduler.state import UNKNOWN

NAME = "run.1n1g"


def make_watcher(*array_task_ids):
    watcher = QueueWatcher([NAME], datetime(2024, 5, 1), Path("/run/scripts"))
    watcher.followed = {f"7_{array_task_id}" for array_task_id in array_task_ids}
    return watcher


def find_states(watcher, *array_task_ids):
    """Update the watcher and return the states."""
    watcher.update()
    return [watcher.get_row(f"7_{array_task_id}").state for array_task_id in array_task_ids]


def show_accounting(bin_dir, *rows, name=NAME):
    write_program(bin_dir, "sacct", print_queue(*rows, name=name))


@pytest.mark.parametrize(
    ("text", "job_id", "array_task_ids"),
    [
        # a plain job is as the only task of an array
        ("7", "7", [0]),
        ("7_3", "7", [3]),
        ("7_[3]", "7", [3]),
        ("7_[1-5%10]", "7", [1, 2, 3, 4, 5]),
        ("7_[1,3,7-9]", "7", [1, 3, 7, 8, 9]),
        ("7_[0-8:4,11]", "7", [0, 4, 8, 11]),
        # of a job in several parts
        ("12+1", "12+1", [0]),
    ],
)
def test_ids_are_read_in_all_their_shapes(text, job_id, array_task_ids):
    found, ranges = parse_ids(text)
    assert (found, [n for numbers in ranges for n in numbers]) == (job_id, array_task_ids)


@pytest.mark.parametrize("text", ["7_[1-5-9]", "7_[,]", "7_[1-9999999999]", "7_[1:2]"])
def test_list_that_is_none_is_no_answer(text):
    with pytest.raises(SchedulerError, match=r"7_.* not a list"):
        parse_ids(text)


@pytest.mark.parametrize("job_ids", ["7_[0-999999999]", "7_[0-900000,0-900000]"])
def test_list_that_is_longer_than_any_run_is_no_answer(bin_dir, job_ids):
    show_queue(bin_dir, f"{job_ids}|PENDING||", name=NAME)
    with pytest.raises(SchedulerError, match=r"job 7 .*more array tasks"):
        make_watcher(0).update()


@pytest.mark.parametrize("printed", ["CANCELLED by 1000", "CANCELLED+"])
def test_state_is_one_word(printed):
    heading = "JOBID|STATE|NODELIST|REASON|NAME|UID|COMMAND"
    text = f"{heading}\n7_0|{printed}|n1|a, b|{NAME}|0|"
    (line,) = parse_lines(text.replace("|", SEPARATOR))
    assert line.row == ("CANCELLED", "a, b", "n1", False, False)


def test_banner_is_no_job():
    assert parse_lines(f"Welcome\nJOBID{SEPARATOR * 6}\n\n") == []


@pytest.mark.parametrize("printed", ["true", "echo '<html>down for maintenance</html>'"])
def test_answer_without_a_heading_is_none(bin_dir, printed):
    show_queue(bin_dir, "7_0|RUNNING|n1|None", name=NAME)
    watcher = make_watcher(0)
    assert find_states(watcher, 0) == ["RUNNING"]
    write_program(bin_dir, "squeue", printed)
    with pytest.raises(SchedulerError, match="printed no table"):
        watcher.update()
    assert watcher.get_row("7_0").state == "RUNNING"


def test_one_question_answers_all(bin_dir):
    """Nothing is asked of accounting about what the queue shows."""
    rows = ("7_[0-2,5%2]|PENDING||Priority", "8_0|RUNNING|n1|None", "8_1|TIMEOUT|n1|None")
    ours = print_queue(*rows, name=NAME)
    renamed = print_queue("9_0|RUNNING||", name="x", script="/run/scripts/1n1g.sbatch")
    others = print_queue("3_[0-99]|PENDING||", "7_9|RUNNING||", name="x", script="/other/job.sh")
    write_program(bin_dir, "squeue", f"{ours}; {renamed}; {others}")
    watcher = make_watcher(0, 1)
    watcher.job_names.update(f"run.{n}n1g" for n in range(2, 9))
    assert find_states(watcher, 0, 1, 5) == ["PENDING"] * 3
    # an id alone says nothing: they are used again
    assert "7_9" not in watcher.queue
    assert watcher.list_array_job_ids() == {NAME: ["7", "8", "8", "9"]}
    assert watcher.calls == {"squeue": 1, "sacct": 0}
    unended = watcher.list_unended()
    assert sorted(unended) == ["7_0", "7_1", "7_2", "7_5", "8_0", "9_0"]
    # limits count each array task of a user's, whichever run it is of
    assert watcher.count_jobs() == 4 + 1 + 1 + 100 + 1


def test_jobs_of_others_are_not_counted(bin_dir):
    write_program(bin_dir, "squeue", print_queue("7|RUNNING||").replace(str(os.geteuid()), "77"))
    assert make_watcher().count_jobs() == 0


def test_list_that_is_cut_is_asked_for_one_by_one(bin_dir):
    whole = print_queue("7_0|PENDING||", "7_2|PENDING||", name=NAME)
    cut = print_queue("7_[0,2,...]|PENDING||", name=NAME)
    write_program(bin_dir, "squeue", f'case "$*" in *--array*) {whole} ;; *) {cut} ;; esac')
    watcher = make_watcher(0, 2)
    assert find_states(watcher, 0, 2) == ["PENDING", "PENDING"]
    assert watcher.calls == {"squeue": 2, "sacct": 0}
    with pytest.raises(TruncatedListError):
        parse_ids("7_[0,2,...]")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["REVOKED", "RUNNING"], "RUNNING"),
        (["COMPLETED", "REVOKED"], "COMPLETED"),
        (["PENDING", "RUNNING"], "RUNNING"),
        (["RUNNING", "PENDING"], "RUNNING"),
        (["REVOKED"], "REVOKED"),
    ],
)
def test_cluster_of_a_federation_that_runs_a_job_counts(bin_dir, states, expected):
    """sacct is asked about what the origin alone shows, in case the sibling has forgotten it."""
    show_queue(bin_dir, *(f"7|{state}||" for state in states), name=NAME)
    show_accounting(bin_dir)
    watcher = make_watcher(0)
    assert find_states(watcher, 0) == [expected]
    assert watcher.count_jobs() == (expected == "RUNNING")
    assert list(watcher.list_unended().values()) == ["RUNNING"] * (expected == "RUNNING")
    if expected == "REVOKED":
        show_accounting(bin_dir, "7|COMPLETED|n1|None")
        assert find_states(watcher, 0) == ["COMPLETED"]


def test_accounting_is_asked_once_for_all_that_the_queue_has_forgotten(bin_dir, home):
    show_queue(bin_dir)
    rows = print_queue("7_0|TIMEOUT|n1|None", "7_1|CANCELLED by 0|n1|None", name=NAME)
    write_program(bin_dir, "sacct", f'echo "$@" > {home}/asked; {rows}')
    watcher = make_watcher(0, 1)
    assert find_states(watcher, 0, 1) == ["TIMEOUT", "CANCELLED"]
    assert watcher.calls == {"squeue": 1, "sacct": 1}
    # a range of time may be too wide for slurmdbd
    asked = (home / "asked").read_text()
    assert "--jobs=7" in asked
    assert "time" not in asked
    # what is over needs no accounting any more
    assert find_states(watcher, 0, 1) == ["TIMEOUT", "CANCELLED"]
    assert watcher.calls == {"squeue": 2, "sacct": 1}


@pytest.mark.parametrize(
    "answer",
    [
        # sacct(1), "job state codes": those of a job that has not ended are old news
        *(print_queue(f"7_0|{state}|n1|None", name=NAME) for state in ("PENDING", "RUNNING")),
        # a former job with the id
        print_queue("7_0|COMPLETED|n1|None", name="other"),
        "echo 'Slurm accounting storage is disabled' >&2; exit 1",
    ],
)
def test_accounting_that_does_not_know_the_end_leaves_the_state_unknown(bin_dir, answer):
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", answer)
    assert find_states(make_watcher(0), 0) == [UNKNOWN]


def test_accounting_that_fails_is_not_accounting_that_does_not_know(bin_dir):
    show_queue(bin_dir, "7_0|RUNNING|n1|None", name=NAME)
    watcher = make_watcher(0)
    watcher.update()
    show_queue(bin_dir)
    words = "sacct: error: Problem talking to the database: Connection refused"
    write_program(bin_dir, "sacct", f"echo '{words}' >&2; exit 1")
    for ask in (watcher.update, watcher.find_array_job_id):
        with pytest.raises(SchedulerError, match="slurmdbd"):
            ask()
    assert watcher.get_row("7_0").state == "RUNNING"
    show_accounting(bin_dir)
    assert find_states(watcher, 0) == [UNKNOWN]


@pytest.mark.parametrize("refusals", [1, 6, 99])
def test_long_range_of_accounting_is_asked_in_pieces_where_it_is_refused(bin_dir, home, refusals):
    show_queue(bin_dir)
    refuse = f"echo n=$((n + 1)) > {home}/n; echo 'Too wide of a date range in query' >&2; exit 1"
    shown = f"echo >> {home}/pieces; {print_queue('7_0|COMPLETED|n1|None', name=NAME)}"
    script = f". {home}/n; if [ $n -lt {refusals} ]; then {refuse}; fi; {shown}"
    (home / "n").write_text("n=0")
    write_program(bin_dir, "sacct", script)
    since = datetime.now(timezone.utc) - timedelta(days=3)
    watcher = QueueWatcher([NAME], since=since)
    if refusals == 99:
        with pytest.raises(SchedulerError, match="Too wide"):
            watcher.find_array_job_id()
        return
    assert watcher.find_array_job_id() == "7"
    assert len((home / "pieces").read_text()) == 2**refusals


@pytest.mark.parametrize(
    ("queued", "accounted", "found"),
    [
        (["102_0|PENDING||", "99_0|PENDING||"], ["12_0|FAILED||"], "99"),
        ([], ["12_0|FAILED||", "7_0|RUNNING||"], "7"),
        ([], [], None),
    ],
)
def test_oldest_array_job_is_found_by_its_name(bin_dir, queued, accounted, found):
    show_queue(bin_dir, *queued, name=NAME)
    show_accounting(bin_dir, *accounted)
    assert make_watcher().find_array_job_id() == found
    show_queue(bin_dir, *queued, name="other")
    show_accounting(bin_dir, *accounted, name="other")
    assert make_watcher().find_array_job_id() is None


def test_installed_version_is_one_that_the_overrides_were_written_for():
    assert version("submitit").startswith("1.5.")
