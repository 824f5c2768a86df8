"""Array tasks that share a job: what its state says of each, and what is tried again."""

import json

import pytest
from builders import print_queue, show_queue, write_program

from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import SUBMITTED, Event, append_event
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler.cancel import cancel_run
from dlperf_slurm.scheduler.retry import stage_retry_by_cause
from dlperf_slurm.scheduler.shared_allocation import JOB_ENDED_EARLY
from dlperf_slurm.scheduler.track import Tracker

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


def test_tasks_of_one_job_have_its_id(shared_run):
    tasks = shared_run.read_tasks(GROUP)
    assert [task.shared_job for task in tasks] == [0, 0]
    assert [task.get_job_id("7") for task in tasks] == ["7_0", "7_0"]
    assert shared_run.count_jobs(GROUP) == 1
    assert RunTask(GROUP, 3, "cases/c/r1/a1").get_job_id("7") == "7_3"


@pytest.mark.parametrize("state", ["RUNNING", "NODE_FAIL", "CANCELLED", "COMPLETED"])
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


@pytest.mark.parametrize("state", ["NODE_FAIL", "TIMEOUT", "FAILED", "PREEMPTED"])
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
