"""What squeue and sacct print -> states of array tasks; both are fake programs on PATH here."""

from datetime import datetime
from pathlib import Path

import pytest
from builders import write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.scheduler.queue import UNKNOWN, QueueWatcher
from dlperf_slurm.scheduler.queue_table import CutListError, count_jobs, read_table


def make_watcher(*array_task_ids):
    watcher = QueueWatcher(["run.1n1g"], datetime(2024, 5, 1), Path("/run/scripts"))
    for array_task_id in array_task_ids:
        watcher.register_job(f"7_{array_task_id}")
    return watcher


def find_states(watcher):
    return [watcher.get_state(job_id, mode="cache") for job_id in sorted(watcher._registered)]


def test_plain_job_is_as_the_only_task_of_an_array():
    assert list(read_table("7|RUNNING|n1|None\n7_3|RUNNING|n1|None\n")) == ["7_0", "7_3"]


def test_line_of_an_array_task_is_read():
    assert read_table("7_0|RUNNING|n1|None\n") == {
        "7_0": {"JobID": "7_0", "State": "RUNNING", "NodeList": "n1", "Reason": "None"}
    }


def test_who_cancelled_is_no_part_of_the_state():
    assert read_table("7_0|CANCELLED by 1000|n1|None\n")["7_0"]["State"] == "CANCELLED"


def test_state_that_was_cut_to_its_column_has_no_mark_of_that():
    assert read_table("7_0|CANCELLED+|n1|None\n")["7_0"]["State"] == "CANCELLED"


def test_line_of_several_array_tasks_is_one_for_each():
    assert list(read_table("7_[0-2,5]|CANCELLED by 0||\n")) == ["7_0", "7_1", "7_2", "7_5"]


def test_throttle_of_an_array_is_no_part_of_its_ids():
    assert list(read_table("7_[3-4%2]|PENDING||\n")) == ["7_3", "7_4"]


def test_separator_in_a_reason_does_not_disturb():
    assert read_table("7_0|PENDING||a|b\n")["7_0"]["Reason"] == "a|b"


def test_banner_is_no_job():
    assert read_table("Welcome to the cluster\n\n") == {}


@pytest.mark.parametrize(
    ("output", "jobs"),
    [
        ("", 0),
        ("CLUSTER: alpha\n7\n", 1),
        ("7_3\n7_[4-7,9%2]\n8_[0-100000:2]\n", 50007),
        # of a job in several parts, and of one that squeue pads
        ("12+0\n12+1\n  13  \n", 3),
    ],
)
def test_jobs_in_the_queue_are_counted_by_their_lists(output, jobs):
    assert count_jobs(output) == jobs


def test_list_that_is_cut_is_not_counted():
    with pytest.raises(CutListError, match="is cut: '7_\\[0,2,4,"):
        count_jobs("6\n7_[0,2,4,...]\n")


def test_accounting_is_not_asked_about_what_the_queue_knows(bin_dir):
    write_program(bin_dir, "squeue", "echo '7_0|RUNNING|n1|None'")
    watcher = make_watcher(0)
    watcher.update()
    assert watcher.calls == {"squeue": 1, "sacct": 0}


def test_accounting_is_asked_once_for_all_that_the_queue_has_forgotten(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "echo '7_0|TIMEOUT|n1|None'; echo '7_1|NODE_FAIL|n1|None'")
    watcher = make_watcher(0, 1)
    watcher.update()
    assert watcher.calls == {"squeue": 1, "sacct": 1}
    assert find_states(watcher) == ["TIMEOUT", "NODE_FAIL"]


def test_job_that_the_queue_forgot_is_not_pending_because_accounting_lags(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "echo '7_0|RUNNING|n1|None'; echo '7_[1-2]|PENDING||'")
    watcher = make_watcher(0, 1, 2)
    watcher.update()
    assert find_states(watcher) == [UNKNOWN, UNKNOWN, UNKNOWN]


# sacct(1), "job state codes": those of a job that has not ended
@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "RESIZING", "RUNNING", "SUSPENDED"])
def test_state_in_accounting_of_what_has_not_ended_is_old_news(bin_dir, state):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", f"echo '7_0|{state}|n1|None'")
    watcher = make_watcher(0)
    watcher.update()
    assert find_states(watcher) == [UNKNOWN]


def test_accounting_that_fails_is_not_accounting_that_does_not_know(bin_dir):
    write_program(bin_dir, "squeue", "echo '7_0|RUNNING|n1|None'")
    watcher = make_watcher(0)
    watcher.update()
    write_program(bin_dir, "squeue", "true")
    words = "sacct: error: Problem talking to the database: Connection refused"
    write_program(bin_dir, "sacct", f"echo '{words}' >&2; exit 1")
    with pytest.raises(SchedulerError, match="accounting daemon"):
        watcher.update()
    assert find_states(watcher) == ["RUNNING"]
    write_program(bin_dir, "sacct", "true")
    watcher.update()
    assert find_states(watcher) == [UNKNOWN]


def test_job_is_not_missing_while_accounting_fails(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "echo 'sacct: error: slurmdbd: Connection refused' >&2; exit 1")
    with pytest.raises(SchedulerError, match="slurmdbd: Connection refused"):
        QueueWatcher(["run.1n1g"], datetime(2024, 5, 1)).find_array_job_id()


def test_cluster_without_accounting_leaves_the_state_unknown(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    watcher = make_watcher(0)
    watcher.update()
    assert find_states(watcher) == [UNKNOWN]


def test_array_job_is_found_by_its_name_in_the_queue(bin_dir):
    write_program(
        bin_dir, "squeue", 'case "$*" in *--name=run.1n1g*) echo "12_0|PENDING||" ;; esac'
    )
    assert make_watcher().find_array_job_id() == "12"


def test_array_job_is_found_by_its_name_in_accounting(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", 'case "$*" in *--name=run.1n1g*) echo "12_0|FAILED||" ;; esac')
    assert make_watcher().find_array_job_id() == "12"


def test_oldest_of_several_array_jobs_is_found(bin_dir):
    write_program(bin_dir, "squeue", "echo '102_0|PENDING||'; echo '99_0|PENDING||'")
    assert make_watcher().find_array_job_id() == "99"


def test_array_job_that_nobody_knows_is_not_found(bin_dir):
    write_program(bin_dir, "squeue", "true")
    write_program(bin_dir, "sacct", "true")
    assert make_watcher().find_array_job_id() is None


@pytest.mark.parametrize(
    ("script", "state"),
    [("/run/scripts/1n1g.sbatch", "RUNNING"), ("/other/job.sh", UNKNOWN), ("", UNKNOWN)],
)
def test_job_that_was_renamed_is_known_by_its_id_and_script(bin_dir, script, state):
    table = f"JOBID|STATE|NODELIST|REASON|COMMAND\\n7_0|RUNNING|n1|None|{script}\\n"
    write_program(bin_dir, "squeue", f"case \"$*\" in *--jobs=7*) printf '{table}' ;; esac")
    write_program(bin_dir, "sacct", "true")
    watcher = make_watcher(0, 1)
    watcher.update()
    assert find_states(watcher) == [state, UNKNOWN]


def test_unended_are_the_jobs_of_a_name_and_of_an_id_whose_script_is_the_run_s(bin_dir):
    """Who cancels a run wants both; a job that was given the id of a former one is neither."""
    renamed = "7_0|RUNNING|n1|None|/run/scripts/1n1g.sbatch\n8_0|RUNNING|n1|None|/other/job.sh"
    named = "9_[0-1]|PENDING||Priority\n10_0|COMPLETED|n1|None"
    by_id, by_name = "*--jobs=11,7,8*", "*--name=run.1n1g*"
    script = f"case \"$*\" in {by_id}) echo '{renamed}' ;; {by_name}) echo '{named}' ;; esac"
    write_program(bin_dir, "squeue", script)
    unended = make_watcher().list_unended(["7", "8", "9", "11"])
    assert unended == {"7_0": "RUNNING", "9_0": "PENDING", "9_1": "PENDING"}


def test_job_that_the_controller_has_forgotten_is_unknown(bin_dir):
    refusal = "slurm_load_jobs error: Invalid job id specified"
    script = f'case "$*" in *--jobs=*) echo "{refusal}" >&2; exit 1 ;; esac'
    write_program(bin_dir, "squeue", script)
    write_program(bin_dir, "sacct", "true")
    watcher = make_watcher(0)
    watcher.update()
    assert find_states(watcher) == [UNKNOWN]


def test_garbage_of_squeue_is_no_answer(bin_dir):
    write_program(bin_dir, "squeue", "echo '7_0|RUNNING|n1|None'")
    watcher = make_watcher(0)
    watcher.update()
    write_program(bin_dir, "squeue", "echo '<html>down for maintenance</html>'")
    write_program(bin_dir, "sacct", "true")
    with pytest.raises(SchedulerError, match="printed no table: '<html>down"):
        watcher.update()
    assert find_states(watcher) == ["RUNNING"]


@pytest.mark.parametrize(
    ("job_ids", "array_task_ids"),
    [
        ("7_[3]", [3]),
        ("7_[1-5%10]", [1, 2, 3, 4, 5]),
        ("7_[1,3,7-9]", [1, 3, 7, 8, 9]),
        ("7_[0-8:4,11]", [0, 4, 8, 11]),
        ("7_[0-12:4%2]", [0, 4, 8, 12]),
    ],
)
def test_list_of_array_tasks_is_read_in_all_its_shapes(job_ids, array_task_ids):
    assert list(read_table(f"{job_ids}|PENDING||")) == [f"7_{n}" for n in array_task_ids]


@pytest.mark.parametrize("job_ids", ["7_[1-5-9]", "7_[,]", "7_[1-9999999999]", "7_[-3]", "7_[1:2]"])
def test_list_that_is_none_is_no_answer(job_ids):
    with pytest.raises(SchedulerError, match=r"no list .*7_"):
        read_table(f"{job_ids}|PENDING||")


@pytest.mark.parametrize("job_ids", ["7_[0-999999999]", "7_[0-900000,0-900000]"])
def test_list_that_is_longer_than_any_run_is_no_answer(job_ids):
    with pytest.raises(SchedulerError, match=r"more array tasks .*7_"):
        read_table(f"{job_ids}|PENDING||")


def test_what_waits_of_a_job_is_one_line_that_all_its_array_tasks_share():
    table = read_table("7_[0-99999%10]|PENDING||Priority\n")
    assert len(table) == 100_000
    assert len(set(map(id, table.values()))) == 1


def test_list_that_is_cut_is_asked_for_one_by_one(bin_dir):
    script = """case "$*" in
      *--array*) echo '7_0|PENDING||'; echo '7_2|PENDING||' ;;
      *) echo '7_[0,2,...]|PENDING||' ;;
    esac"""
    write_program(bin_dir, "squeue", script)
    watcher = make_watcher(0, 2)
    watcher.update()
    assert find_states(watcher) == ["PENDING", "PENDING"]
    assert watcher.calls == {"squeue": 2, "sacct": 0}
