"""What `wait` tries again without being asked, how often, and without which nodes."""

from dataclasses import replace

import pytest
from builders import (
    journal_state,
    journal_submissions,
    make_record,
    make_site,
    read_case,
    write_program,
    write_record,
)
from support.problems import assert_problem

from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs import disk_space, framework_script
from dlperf_slurm.jobs.failed_nodes import exclude_nodes
from dlperf_slurm.jobs.journal import SUBMITTED, Event, append_event
from dlperf_slurm.jobs.run_directory import SITE_FILE
from dlperf_slurm.scheduler import retry
from dlperf_slurm.scheduler.retry import stage_retry, stage_retry_by_cause

NODE_FAILURE = ("NODE_FAIL", "node n2 failed")
PREEMPTED = ("PREEMPTED", "preempted: told to end: rank 0 on n2: step 3 of 10")
UNHEALTHY = ("UNHEALTHY", "node n2 is unhealthy: a: on eth0: x; node n3 is unhealthy: no link")
LAUNCH_FAILURE = ("FAILED", "the launcher ended; srun: task 0 launch failed: Unspecified error")
FULL_DISK = ("FAILED", "the disk at /shared cannot be written from n2, 0 MiB are free: No space")
STALE = ("FAILED", "rank 1 on n2: OSError: [Errno 116] Stale file handle: '/shared/data'")
RANK_ON_FULL_DISK = ("FAILED", "rank 0 on n2: OSError: [Errno 28] No space left on device: 'x'")
WORDLESS = (
    "FAILED",
    "the launcher ended with exit code 1 and no rank said why; the error output is empty",
)
PORT_TAKEN = ("FAILED", "rank 0 on n2: RuntimeError: [Errno 98] Address already in use")
BATCH_NOT_STARTED = ("FAILED", "JobLaunchFailure on n2")
NOT_STARTED = (
    "FAILED",
    "a rank could not be started; error output: 'python: Exec format error'; srun: n2: task 1: "
    "Exited with exit code 126",
)
MISSING = ("FAILED", "no record, exit code 127 on n2: 'python: No such file'")


@pytest.fixture
def run(cluster, staged_run):
    """Return a submitted run with an empty queue; all but the first array task are measured."""
    journal_submissions(staged_run)
    for task in staged_run.read_all_tasks()[1:]:
        write_record(staged_run, task, make_record(read_case(staged_run, task)))
        journal_state(staged_run, task, "COMPLETED")
    return staged_run


def fail(run, group_id, state, detail):
    journal_state(run, run.read_tasks(group_id)[0], state, detail)


def set_retry(run, text):
    site = run.path / SITE_FILE
    whole = site.read_text(encoding="utf-8").replace(
        "node_fail = 2\nlaunch = 1\npreempted = 2\n", text
    )
    assert text in whole
    site.write_text(whole, encoding="utf-8")


def set_max_nodes(run, number):
    site = run.path / SITE_FILE
    site.write_text(f"max_nodes = {number}\n" + site.read_text(encoding="utf-8"), encoding="utf-8")


@pytest.mark.parametrize(
    "failure",
    [
        *(NODE_FAILURE, PREEMPTED, UNHEALTHY, LAUNCH_FAILURE, BATCH_NOT_STARTED, NOT_STARTED),
        *(MISSING, PORT_TAKEN, FULL_DISK, RANK_ON_FULL_DISK, STALE, WORDLESS),
    ],
)
def test_failure_of_the_cluster_is_tried_again(run, failure):
    fail(run, "1n1g", *failure)
    said = []
    assert stage_retry_by_cause(run, said.append) == 1
    (task,) = run.read_tasks("1n1g-try2")
    assert task.attempt == 2
    assert failure[1] in said[0]


def test_further_attempt_of_a_profiled_repeat_is_profiled(run, monkeypatch):
    # the order of repeats is random
    repeat = run.read_tasks("1n1g")[0].repeat
    monkeypatch.setattr(framework_script, "PROFILED_REPEAT", repeat)
    cases = tuple(replace(case, profiler="nsys") for case in run.manifest.cases)
    run = run._replace(manifest=replace(run.manifest, cases=cases))
    fail(run, "1n1g", *PREEMPTED)
    assert stage_retry_by_cause(run, print) == 1
    assert "profile_nsys_pytorch() {" in run.get_script_path("1n1g-try2").read_text()


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        ("FAILED", "rank 1 on n2: ValueError: x"),
        ("FAILED", "rank 0 on n2: FileNotFoundError: No such file or directory: '/data'"),
        *(("TIMEOUT", ""), ("OUT_OF_MEMORY", ""), ("CANCELLED", "by the command `cancel`")),
    ],
)
def test_other_failure_is_left_to_the_user(run, state, detail):
    fail(run, "1n1g", state, detail)
    assert stage_retry_by_cause(run, print) == 0


@pytest.mark.parametrize(
    ("failure", "tries"), [(NODE_FAILURE, 2), (UNHEALTHY, 2), (LAUNCH_FAILURE, 1), (PREEMPTED, 2)]
)
def test_number_of_tries_is_bounded(run, failure, tries):
    group_id = "1n1g"
    for number in range(2, 2 + tries):
        fail(run, group_id, *failure)
        assert stage_retry_by_cause(run, print) == 1
        group_id = f"1n1g-try{number}"
        append_event(run.path, Event(SUBMITTED, format_now(), group_id, array_job_id="9"))
    fail(run, group_id, *failure)
    assert stage_retry_by_cause(run, print) == 0


@pytest.mark.parametrize("failure", [NODE_FAILURE, PREEMPTED])
def test_nothing_is_tried_again_where_the_site_says_so(run, failure):
    set_retry(run, "node_fail = 0\nlaunch = 1\npreempted = 0\n")
    fail(run, "1n1g", *failure)
    assert stage_retry_by_cause(run, print) == 0


@pytest.mark.parametrize(
    ("failure", "node"),
    [
        *((("NODE_FAIL", f"node {node} failed"), node) for node in ("n2", "gpu-a100-01", "3u1n1")),
        (BATCH_NOT_STARTED, "n2"),
        (NOT_STARTED, "n2"),
        (MISSING, "n2"),
        # each node that was not fit, and nothing else that its check names
        (UNHEALTHY, "n2,n3"),
        # a node that is not the cause
        *((failure, "") for failure in (RANK_ON_FULL_DISK, PREEMPTED, PORT_TAKEN)),
    ],
)
def test_node_that_failed_is_left_out(run, failure, node):
    set_max_nodes(run, 4)
    fail(run, "1n1g", *failure)
    assert stage_retry_by_cause(run, print) == 1
    lines = run.get_script_path("1n1g-try2").read_text(encoding="utf-8").splitlines()
    excluded = [line.partition("=")[2] for line in lines if "--exclude" in line]
    assert excluded == ([node] if node else [])


def test_node_that_has_left_the_cluster_is_not_left_out(run, bin_dir):
    write_program(bin_dir, "scontrol", "echo NodeName=n1 State=IDLE; echo NodeName=n3")
    fail(run, "1n1g", *NODE_FAILURE)
    lines = []
    assert stage_retry_by_cause(run, lines.append) == 1
    assert_problem(lines[0], says=("n2", "not excluded"))
    assert "--exclude" not in run.get_script_path("1n1g-try2").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("bad_nodes", "max_nodes", "is_told"), [(["n9"], 4, False), (["n9"], 1, True), ([], 1, False)]
)
def test_retry_by_hand_leaves_out_the_nodes_that_it_is_told(run, bad_nodes, max_nodes, is_told):
    set_max_nodes(run, max_nodes)
    fail(run, "1n1g", "FAILED", "rank 1 on n2: ValueError: x")
    said = []
    assert stage_retry(run, bad_nodes, said.append) == 1
    script = run.get_script_path("1n1g-try2").read_text(encoding="utf-8")
    assert ("#SBATCH --exclude=n9\n" in script) == (max_nodes == 4)
    told = [
        "no node is excluded, as too few might be left for a job of 1 node: in the site file, "
        "max_nodes (the number of nodes that jobs may use) is 1"
    ]
    assert said == (told if is_told else [])


@pytest.mark.parametrize(
    ("directives", "max_nodes", "nodes", "needed", "found"),
    [
        ([], None, ["n2"], 1, ["--exclude=n2"]),
        ([], None, ["n2"], 2, []),
        (["--hint=x", "--exclude=n1,n2"], 8, ["n2", "n3"], 6, ["--hint=x", "--exclude=n1,n2,n3"]),
        ([], 1, ["n2"], 1, []),
        ([], 4, ["n2"], 4, []),
        (["--exclude=n1"], 4, [], 4, ["--exclude=n1"]),
        (["-x n[1,3],m[2,3]"], 8, ["n5"], 4, ["--exclude=n[1,3],m[2,3],n5"]),
        # a file, which sbatch knows by a slash
        (["--exclude=./bad_nodes.txt"], 8, ["n5"], 4, ["--exclude=n3,n[6-7],n5"]),
        (["--exclude=./absent.txt"], 8, ["n5"], 4, ["--exclude=./absent.txt"]),
    ],
)
def test_nodes_are_left_out_where_enough_remain(home, directives, max_nodes, nodes, needed, found):
    (home / "bad_nodes.txt").write_text("n3\nn[6-7]\n", encoding="utf-8")
    site = make_site(directives=directives, max_nodes=max_nodes)
    assert list(exclude_nodes(site, nodes, needed).directives) == found


def test_full_disk_is_waited_for_before_anything_is_staged(run, monkeypatch):
    fail(run, "1n1g", *FULL_DISK)
    rooms = iter([0, 0, 2**30, 2**30])
    monkeypatch.setattr(disk_space, "measure_disk", lambda path: (next(rooms), 2**40))
    monkeypatch.setattr(retry, "DISK_POLL_SECONDS", 0.0)
    said = []
    assert stage_retry_by_cause(run, said.append) == 1
    assert "has 0.0 of" in said[0]
    assert_problem(said[0], says=("1 array tasks", "free space"))
    assert len(said) == 2
