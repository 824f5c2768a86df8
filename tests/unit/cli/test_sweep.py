"""The commands sweep and nodes: which nodes are measured, in which jobs, and what is refused."""

import json
import stat
import sys

import pytest
from builders import list_directives, print_queue, run_main, write_matrix, write_program
from support.problems import assert_problem

from dlperf_slurm.jobs.run_directory import find_run

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
def cluster(bin_dir, home):
    """Write fake clients of a partition in which n1, n2 and n5 run jobs, and a site for it."""
    write_program(bin_dir, "sbatch", "echo 7")
    write_program(bin_dir, "scontrol", "echo 'ClusterName = tiny'; echo 'MaxArraySize = 1001'")
    write_program(bin_dir, "sinfo", f"echo '{SINFO}'")
    for name in ("srun", "squeue", "sacct"):
        write_program(bin_dir, name, print_queue())
    (home / "tiny.toml").write_text(SITE, encoding="utf-8")
    (home / "venv" / "bin").mkdir(parents=True)
    (home / "venv" / "bin" / "python").symlink_to(sys.executable)
    return bin_dir


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
    count = len(run.manifest.cases)
    assert set(by_node["n2"][:count]) == {2}
    assert sorted(set(by_node["n2"])) == [2, 5, 8, 11]


@pytest.mark.parametrize(
    ("options", "topology", "problem"),
    [
        (["--blocks", "2"], "1n1g", {"key": "--blocks 2", "says": ["3"]}),
        ([], "2n1g", {"file": "matrix.toml", "says": ["1nXg"]}),
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


def test_nodes_of_a_sweep_that_has_not_run_are_not_measured(cluster, home, capsys):
    assert sweep(capsys, "--blocks", "3")[0] == 0
    (run,) = home.glob("results/*")
    run.chmod(0o750)
    code, out, err = run_main(["nodes", "--json"], capsys)
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


def test_nodes_of_another_run_are_refused(staged_run, capsys):
    code, _, err = run_main(["nodes", str(staged_run.path)], capsys)
    assert code == INPUT_ERROR
    assert_problem(err, file=staged_run.path, says=["not a sweep"])
