"""Which nodes runs name as failed, not fit or slow, and which of them a submission leaves out."""

import dataclasses
import json
from datetime import timedelta

import pandas
import pytest
from builders import make_ranks, make_record, make_site, read_case, write_program, write_record
from history_runs import RESULTS, stage_seven
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.cli.staging import leave_out_bad_nodes, list_bad_nodes
from dlperf_slurm.config.site import LoadedSite
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.jobs.journal import STATE, Event, append_event
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.reports.history_text import describe_node
from dlperf_slurm.results.history.nodes import (
    group_comparable_nodes,
    list_valid_repeats,
    read_node_histories,
)
from dlperf_slurm.results.history.run_cache import read_run_cache

pytestmark = pytest.mark.integration

UNHEALTHY = ("UNHEALTHY", "node n2 is unhealthy: no link")
BEFORE, AFTER = "2024-05-01T11:00:00Z", "2024-05-01T13:00:00Z"


def make_record_on(case, hosts, seconds):
    """Make a valid record whose ranks were on these hosts, with these windows."""
    ranks = [
        dataclasses.replace(rank, host=host, window_seconds=window)
        for rank, host, window in zip(make_ranks(case), hosts, seconds)
    ]
    return make_record(case, ranks=tuple(ranks), ended_at="2024-05-01T12:00:00Z")


@pytest.fixture
def run(home):
    """Stage a run of seven repeats without records, the only one in its results folder."""
    RESULTS.mkdir()
    return open_run(stage_seven(RESULTS))


def measure_on(run, host):
    """Each repeat of 1n1g was measured on this host."""
    for task in run.read_all_tasks():
        if "1n1g" in task.case_id:
            write_record(run, task, make_record_on(read_case(run, task), [host], [2.0]))


def fail_at(run, time, state, detail):
    task = next(task for task in run.read_all_tasks() if "1n1g" in task.case_id)
    append_event(
        run.path, Event(STATE, time, task.group_id, "1", task.array_task_id, state, detail)
    )


def read_nodes():
    return read_node_histories(read_run_cache(RESULTS).entries)


@pytest.mark.parametrize(
    ("state", "detail", "nodes"),
    [
        (*UNHEALTHY, ["n2"]),
        ("NODE_FAIL", "node n3 failed", ["n3"]),
        ("FAILED", "rank 0 on n2: ValueError: x", []),
        ("TIMEOUT", "", []),
    ],
)
def test_node_is_named_for_its_own_failures_alone(run, state, detail, nodes):
    fail_at(run, BEFORE, state, detail)
    assert [node.node for node in read_nodes()] == nodes
    assert all(node.is_bad for node in read_nodes())


@pytest.mark.parametrize(("time", "is_bad"), [(BEFORE, False), (AFTER, True)])
def test_node_that_measured_after_it_failed_is_mended(run, time, is_bad):
    measure_on(run, "n2.cluster")
    fail_at(run, time, *UNHEALTHY)
    (node,) = read_nodes()
    assert (node.node, node.failures, node.is_bad) == ("n2", 1, is_bad)
    text = describe_node(node)
    says = ("failed 1 of 8 array tasks", time, f"({UNHEALTHY[1]})")
    assert_problem(text, key="node n2 of site tiny", says=says)
    assert ("results since" in text) != is_bad
    assert list_bad_nodes(RESULTS, node.site_name, "") == (["n2"] if is_bad else [])
    assert list_bad_nodes(RESULTS, "another", "") == []


@pytest.mark.parametrize("after_failure", [False, True])
def test_node_that_was_booted_since_it_failed_is_believed(run, bin_dir, after_failure):
    fail_at(run, AFTER, *UNHEALTHY)
    moment = parse_time(AFTER).astimezone() + timedelta(minutes=1 if after_failure else -1)
    shown = f"NodeName=n2 Arch=x86_64 BootTime={moment:%Y-%m-%dT%H:%M:%S} SlurmdStartTime=None"
    write_program(bin_dir, "scontrol", f"echo '{shown}'")
    bad = list_bad_nodes(RESULTS, run.manifest.site_name, "")
    assert bad == ([] if after_failure else ["n2"])


def test_history_ends_with_the_nodes_that_failed(run, capsys):
    fail_at(run, AFTER, *UNHEALTHY)
    assert main(["history"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"last at {AFTER}" in printed.partition("node n2 of site tiny: ")[2]
    assert main(["history", "--json"]) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["node"], node["is_bad"], node["last_reason"]) == ("n2", True, UNHEALTHY[1])


def test_contest_is_between_nodes_that_did_the_same_work(run):
    task = next(task for task in run.read_all_tasks() if "1n2g" in task.case_id)
    case = read_case(run, task)
    together = make_record_on(case, ["a", "b"], [1.0, 3.0])
    alone = [make_record_on(case, [host, host], [1.0, s]) for host, s in (("a", 2.0), ("b", 4.0))]
    assert group_comparable_nodes([together]) == [{"a": 1.0, "b": 3.0}]
    assert group_comparable_nodes([*alone, alone[0]]) == [{"a": 2.0, "b": 4.0}]
    assert group_comparable_nodes([*alone, *alone]) == [{"a": 2.0, "b": 4.0}] * 2
    assert group_comparable_nodes([alone[0]]) == []
    assert list_valid_repeats([together]) == {
        "a": ("2024-05-01T12:00:00Z", 1),
        "b": ("2024-05-01T12:00:00Z", 1),
    }


@pytest.mark.parametrize(("factor", "is_slow"), [(1.2, True), (1.005, False)])
def test_node_that_is_slow_over_runs_is_named(run, factor, is_slow):
    contest = {"n1": 1.0, "n2": factor, "n3": 0.99, "n4": 1.001}
    one = read_run_cache(RESULTS).entries[:1].assign(node_contests=json.dumps([contest]))
    six = pandas.concat([one] * 6)
    nodes = read_node_histories(six)
    assert [node.node for node in nodes] == (["n2"] if is_slow else [])
    if is_slow:
        assert nodes[0].is_bad
        assert "was the slowest in 6 of 6 comparisons" in describe_node(nodes[0])
    # of another cluster the same name is another node
    assert read_node_histories(six.assign(site_name=list("abcdef"))) == []


@pytest.mark.parametrize(("max_nodes", "directives"), [(4, ("--exclude=n2",)), (1, ())])
def test_submission_leaves_bad_nodes_out_where_enough_remain(run, capsys, max_nodes, directives):
    fail_at(run, AFTER, *UNHEALTHY)
    site = make_site(max_nodes=max_nodes)
    file = read_matrix(run.path / "matrix.toml")
    plan = resolve(expand_matrix(file), site, 1001)
    matrix = PlannedMatrix(file, LoadedSite(run.manifest.site_name, site, {}), plan)
    loaded = leave_out_bad_nodes(matrix, RESULTS)
    assert tuple(loaded.site.directives) == directives
    told = capsys.readouterr()
    words = " ".join((told.out + told.err).split())
    assert "bad node n2" in words
    assert ("no node" in words) == (max_nodes == 1)
