"""The commands sweep and nodes: which nodes are measured, in which jobs, and what is refused."""

import json
import stat
import sys

import pytest
from builders import (
    SMALL_MATRIX,
    journal_state,
    list_directives,
    run_main,
    write_matrix,
    write_program,
)
from support.problems import assert_problem

from dlperf_slurm.jobs.run_directory import find_run
from dlperf_slurm.scheduler.retry import NO_RETRY, read_retry_limits
from dlperf_slurm.scheduler.submit import get_blocks

SITE = """\
scheduler = "slurm"
device = "cpu"
partition = "gpu"
exclusive = true
environments.pytorch.venv = "venv"
"""
SINFO = "n1|idle|gpu\nn2|mixed|gpu\nn3|down*|gpu\nn4|drained|gpu\nn5|idle~|gpu\nn6|idle*|gpu"
INPUT_ERROR = 2


@pytest.fixture
def cluster(cluster, home):
    """Add a partition in which n1, n2 and n5 run jobs, and a site for it."""
    write_program(cluster, "sinfo", f"echo '{SINFO}'")
    (home / "tiny.toml").write_text(SITE, encoding="utf-8")
    (home / "venv" / "bin").mkdir(parents=True)
    (home / "venv" / "bin" / "python").symlink_to(sys.executable)
    return cluster


def sweep(capsys, *options, topology="1n1g"):
    words = ["sweep", str(write_matrix()), "--site", "./tiny.toml", "--unchecked", *options]
    return run_main([*words, "--set", f'axes.topology="{topology}"'], capsys)


def test_each_node_that_runs_jobs_has_an_array_job_of_its_own(cluster, home, capsys):
    code, _, err = sweep(capsys, "--blocks", "4")
    assert code == 0, err
    run = find_run(None, home / "results")
    assert run.manifest.nodes == ("n1", "n2", "n5")
    assert set(run.manifest.absent_nodes) == {"n3: down*", "n4: drained", "n6: idle*"}
    assert run.list_group_ids() == ["1n1g-n1", "1n1g-n2", "1n1g-n5"]
    by_node = {}
    for group in run.list_group_ids():
        node = group.rpartition("-")[2]
        directives = list_directives(run.get_script_path(group).read_text(encoding="utf-8"))
        assert f"--nodelist={node}" in directives
        assert any(line.startswith("--array=0-") and line.endswith("%1") for line in directives)
        by_node[node] = [task.repeat for task in run.read_tasks(group)]
    # block after block, so that all nodes measure a block at about the same time
    assert all(repeats == sorted(repeats) for repeats in by_node.values())
    assert sorted(set(by_node["n2"])) == [2, 5, 8, 11]


def test_sweep_of_bits_takes_fixed_steps_and_deterministic_kernels(cluster, home, capsys):
    matrix = SMALL_MATRIX.replace('["1n1g", "1n2g", "2n2g"]', '"1n1g"')
    write_matrix(f"{matrix}min_measured_seconds = 20\n")
    for options, is_fixed in (([], False), (["--bits"], True)):
        results = f"results-{is_fixed}"
        words = ["sweep", "matrix.toml", "--site", "./tiny.toml", "--unchecked", *options]
        assert run_main([*words, "--results", results], capsys)[0] == 0
        run = find_run(None, home / results)
        (case,) = run.manifest.cases
        assert case.protocol.get("min_measured_seconds", 0) == (0 if is_fixed else 20)
        script = run.get_script_path("1n1g-n1").read_text(encoding="utf-8")
        assert ("DLPERF_SLURM_DETERMINISTIC=1" in script) == is_fixed


def test_pairs_have_array_jobs_of_their_own_and_rounds_are_blocks(cluster, home, capsys):
    rows = "; ".join(f"echo 'n{number}|idle|gpu'" for number in range(1, 7))
    write_program(cluster, "sinfo", rows)
    options = ["--pairs", "--blocks", "3", "--rounds"]
    code, _, err = sweep(capsys, *options, "6", topology="2n1g")
    assert code == INPUT_ERROR
    assert_problem(err, key="--rounds", says=["3 to 5"])
    code, _, err = sweep(capsys, *options, "4", topology="2n1g")
    assert code == 0, err
    run = find_run(None, home / "results")
    groups = run.list_group_ids()
    assert len(groups) == len(set(run.manifest.nodes)) == 12
    for group in groups:
        first, second = group.split("-")[1].split("+")
        directives = list_directives(run.get_script_path(group).read_text(encoding="utf-8"))
        assert {f"--nodelist={first},{second}", "--nodes=2"} <= {*directives}
        assert len(run.read_tasks(group)) == 3
    assert {*get_blocks(run).values()} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("options", "topology", "problem"),
    [
        (["--blocks", "2"], "1n1g", {"key": "--blocks", "says": ["2", "3"]}),
        ([], "2n1g", {"file": "matrix.toml", "says": ["1n8g"]}),
        (["--pairs"], "1n1g", {"file": "matrix.toml", "says": ["2n8g"]}),
        (["--pairs"], "2n1g", {"key": "--pairs", "says": ["3 nodes", "4"]}),
        (["--rounds", "3"], "1n1g", {"key": "--rounds", "says": ["--pairs"]}),
        (["--set", "scheduler=local"], "1n1g", {"says": ["site tiny", "no Slurm"]}),
    ],
)
def test_what_cannot_be_swept_is_refused(cluster, home, capsys, options, topology, problem):
    code, _, err = sweep(capsys, *options, topology=topology)
    assert code == INPUT_ERROR
    assert_problem(err, **problem)
    assert not list(home.glob("results/*"))


def test_partition_without_nodes_that_run_jobs_is_refused_with_their_states(cluster, home, capsys):
    write_program(cluster, "sinfo", "echo 'n1|idle|gpu'; echo 'n3|down*|gpu'")
    code, _, err = sweep(capsys)
    assert code == INPUT_ERROR
    assert_problem(err, key="--nodes", says=["gpu", "at least 2", "n3: down*"])


def test_more_nodes_than_a_run_may_have_are_refused(cluster, home, capsys):
    nodes = "\n".join(f"n{number}|idle|gpu" for number in range(16_385))
    write_program(cluster, "sinfo", f"echo '{nodes}'")
    code, _, err = sweep(capsys)
    assert code == INPUT_ERROR
    assert_problem(err, key="--nodes", says=["16385", "16384"])


def test_nodes_of_a_sweep_that_has_not_run_are_not_measured(cluster, home, capsys):
    assert sweep(capsys, "--blocks", "3")[0] == 0
    (run,) = home.glob("results/*")
    run.chmod(0o750)
    code, out, err = run_main(["nodes", "--json", "--markdown", "nodes.md"], capsys)
    assert "| n3 | not available" in (home / "nodes.md").read_text(encoding="utf-8")
    verdicts = {row["node"]: row["verdict"] for row in json.loads(out)["nodes"]}
    assert {verdicts[node] for node in ("n1", "n2", "n5")} == {"not measured"}
    assert (code, verdicts["n3"]) == (5, "not available")
    assert "n1" in err
    (lists,) = home.glob("results/*/report")
    assert {path.name: path.read_text() for path in lists.iterdir()} == {
        "good_nodes.txt": "", "bad_nodes.txt": "",
    }  # fmt: skip
    # those who may not read the run may not read them
    assert {stat.S_IMODE(path.stat().st_mode) for path in lists.iterdir()} == {0o640}


def test_run_without_records_has_no_nodes_to_compare(staged_run, capsys):
    code, _, err = run_main(["nodes", str(staged_run.path)], capsys)
    assert code == INPUT_ERROR
    assert_problem(err, file=staged_run.path, says=["no repeat has a record"])


def test_what_failed_is_tried_again_by_name_alone_and_on_the_same_node(cluster, home, capsys):
    assert sweep(capsys, "--blocks", "3")[0] == 0
    run = find_run(None, home / "results")
    for task in run.read_tasks("1n1g-n2"):
        journal_state(run, task, "FAILED")
    # a node that fails is a result
    assert read_retry_limits(run) == NO_RETRY
    assert run_main(["retry", str(run.path), "--exclude-bad-nodes"], capsys)[0] == 0
    (group,) = (name for name in run.list_group_ids() if "try2" in name)
    directives = list_directives(run.get_script_path(group).read_text(encoding="utf-8"))
    assert "--nodelist=n2" in directives
    assert not any(line.startswith("--exclude") for line in directives)


def test_least_effect_may_be_zero(cluster, home, capsys):
    assert sweep(capsys, "--blocks", "3")[0] == 0
    _, out, _ = run_main(["nodes", "--json", "--at-least", "0%"], capsys)
    assert {row["least_effect"] for row in json.loads(out)["nodes"]} == {0}


def test_name_of_a_node_that_would_be_an_option_is_refused(cluster, home, capsys):
    assert sweep(capsys, "--blocks", "3")[0] == 0
    (manifest,) = home.glob("results/*/manifest.json")
    manifest.write_text(manifest.read_text().replace('"n1"', '"n1 --exclude=n2"'))
    code, _, err = run_main(["nodes"], capsys)
    assert code == INPUT_ERROR
    assert_problem(err, file=manifest.relative_to(home), key="nodes", says=["n1 --exclude=n2"])
