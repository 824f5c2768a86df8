"""How long a plan will take is said from what earlier runs of its cases took."""

import json

import pytest
from builders import make_site, write_matrix
from support.problems import assert_problem

from dlperf_slurm.jobs.plan import resolve
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.results.duration_history import describe_time, get_task_seconds, list_too_long

SITE = make_site(time_limit_minutes={"default": 30})


def write_markers(run, seconds, exit_code=0):
    """Have the array tasks, in turn, take so many seconds."""
    for number, task in enumerate(run.read_all_tasks()):
        took = seconds[number % len(seconds)]
        begun, ended = (f"2024-05-01T10:{s // 60:02}:{s % 60:02}Z" for s in (0, took))
        data = {"job_id": "7", "begun": begun, "time": ended, "nodes": "n1", "exit_code": exit_code}
        path = run.path / "markers" / f"{task.marker}.s0.finished"
        path.write_text(json.dumps(data), encoding="utf-8")


def plan_again(*assignments):
    return resolve(expand_matrix(read_matrix(write_matrix(), assignments)), SITE, 1001)


def find(run, plan, site_name="tiny"):
    return get_task_seconds(plan, site_name, run.path.parent)


def test_case_takes_what_it_took_in_the_middle(staged_run):
    write_markers(staged_run, [20, 40])
    seconds = find(staged_run, plan_again())
    assert sorted(seconds) == [f"pytorch-resnet50-{n}-bs8-fp32" for n in ("1n1g", "1n2g", "2n2g")]
    assert set(seconds.values()) == {30.0}


@pytest.mark.parametrize(
    "assignments", [("protocol.measured_steps=11",), ("axes.batch_size_per_device=16",)]
)
def test_more_work_is_no_earlier_run_of_a_case(staged_run, assignments):
    write_markers(staged_run, [20])
    assert find(staged_run, plan_again(*assignments)) == {}


def test_more_repeats_are_the_same_work(staged_run):
    write_markers(staged_run, [20])
    assert len(find(staged_run, plan_again("protocol.repeats=5"))) == 3


def test_runs_elsewhere_and_failures_tell_nothing(staged_run):
    write_markers(staged_run, [20])
    assert find(staged_run, plan_again(), site_name="other") == {}
    write_markers(staged_run, [20], exit_code=1)
    assert find(staged_run, plan_again()) == {}


def test_time_on_this_machine_is_that_of_one_after_the_other():
    plan = plan_again()
    text = describe_time(plan, {case.case_id: 60.0 for case in plan.cases}, is_local=True)
    assert_problem(text, key="time", says=("6 min", "earlier runs"))


def test_time_on_a_cluster_is_node_hours():
    plan = plan_again()
    seconds = {case.case_id: 900.0 for case in plan.cases}
    # two repeats each of 1 + 1 + 2 nodes for a quarter of an hour
    assert describe_time(plan, seconds, is_local=False).startswith("time: about 2 node-hours, ")


def test_what_is_not_known_is_said():
    plan = plan_again()
    on_cluster, here = (describe_time(plan, {}, is_local=is_local) for is_local in (False, True))
    assert_problem(on_cluster, key="time", says=("no earlier run", "4.0 node-hours"))
    assert_problem(here, key="time", says=("no earlier run", "at most 4.0 h"))
    assert "1 of 3 cases" in describe_time(plan, {plan.cases[0].case_id: 60.0}, is_local=True)


def test_case_that_took_longer_than_its_time_limit_is_named(staged_run):
    write_markers(staged_run, [1801])
    plan = plan_again()
    seconds = find(staged_run, plan)
    assert [line.split(":")[0] for line in list_too_long(plan, seconds, "takes")] == [*seconds]
    assert list_too_long(plan, dict.fromkeys(seconds, 1800.0), "takes") == []


def test_folder_that_is_no_run_is_passed_over(staged_run):
    write_markers(staged_run, [20])
    broken = staged_run.path.parent / "99999999-broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}", encoding="utf-8")
    assert len(find(staged_run, plan_again())) == 3
