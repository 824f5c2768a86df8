"""Rendered scripts against the real sbatch: it accepts them, and parses what was written."""

import re
import subprocess

import pytest
from support.slurm_runs import (
    CHECKOUT,
    SITE,
    ask,
    find_array_job,
    read_records,
    stage_spin,
    submit,
    write_matrix,
)
from support.tool import find_states, run_tool, set_values, stage

TOPOLOGIES = ("1n1g", "1n8g", "2n8g", "4n8g")
# a node of the cluster has 16 cores for 8 GPUs; site slurm requests 8 cores per GPU
FEW_CORES = "cpus_per_rank=2"
SITES = {
    "testcluster": [str(SITE)],
    "slurm": ["slurm", FEW_CORES],
    "slurm-cpu": ["slurm-cpu"],
    "mpirun": [str(SITE), "launcher.name=mpirun"],
    "gres": ["slurm", FEW_CORES, "gpu_request=gres"],
    "exclusive": [
        "slurm",
        FEW_CORES,
        "exclusive=true",
        "memory_mib_per_node=0",
        "array_throttle=2",
    ],
    "who and where": [str(SITE), "partition=low", "qos=low", "account=root"],
}
# characters with different meanings to shells, sbatch's line parser and its file name patterns
HOSTILE_COMMENT = "a b  $(c) 'd' %j %% # ; & | * ~ é"
HOSTILE_FOLDER = "it's 50%j of $(x) # é"


@pytest.mark.parametrize("site", SITES)
def test_sbatch_accepts_each_script(cluster, tmp_path, site):
    name, *settings = SITES[site]
    words = [str(write_matrix(tmp_path, TOPOLOGIES)), "--site", name, "--results", str(tmp_path)]
    run = stage([*words, *set_values(*settings)], CHECKOUT)
    assert run.list_group_ids() == list(TOPOLOGIES)
    assert_accepted(run)


def assert_accepted(run):
    """Assert that sbatch accepts the script of each group."""
    for group_id in run.list_group_ids():
        command = ["sbatch", "--test-only", str(run.get_script_path(group_id))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{group_id}: {done.stderr}"


@pytest.mark.parametrize("matrix", ["bert", "llama", "resnet50", "vit"])
def test_sbatch_accepts_the_whole_protocol(cluster, tmp_path, matrix):
    path = CHECKOUT / "matrices" / f"{matrix}.toml"
    words = [str(path), "--site", "slurm", "--set", FEW_CORES, "--results", str(tmp_path)]
    assert_accepted(stage(words, CHECKOUT))


def test_hostile_value_of_a_directive_arrives_as_it_is(cluster, tmp_path):
    settings = [f'directives=["--hold", "--comment={HOSTILE_COMMENT}"]']
    run = stage_spin(tmp_path / "results", settings=settings)
    submit(run)
    job = find_array_job(run)
    shown = ask("scontrol", "show", "job", job)
    ask("scancel", job)
    assert f"Comment={HOSTILE_COMMENT}\n" in shown.replace(" \n", "\n")


def test_hostile_run_directory_works_from_end_to_end(cluster, tmp_path):
    run = stage_spin(tmp_path / HOSTILE_FOLDER, ["1n2g"])
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert find_states(run) == {"1n2g.0": "COMPLETED"}
    # the empty log of the array task was found and removed, despite the hostile path
    assert not list(tmp_path.rglob("*.log"))


def test_run_of_a_hostile_matrix_name_is_found_in_the_queue(cluster, tmp_path):
    settings = ['directives=["--hold"]']
    run = stage_spin(tmp_path, settings=settings, name="a b, c'd %j.toml")
    submit(run)
    states = find_states(run)
    run_tool(["cancel", str(run.path)], tmp_path)
    assert states == {"1n1g.0": "PENDING"}


def test_mpirun_starts_ranks_across_nodes_and_srun_those_of_one_in_the_same_run(cluster, tmp_path):
    as_root = [
        f"env.{mpi}_ALLOW_RUN_AS_ROOT{suffix}='1'"
        for mpi in ("OMPI", "PRTE")
        for suffix in ("", "_CONFIRM")
    ]
    override = '[[slurm.override]]\nwhen = { nodes = 2 }\nlauncher = { name = "mpirun" }'
    topologies = ["1n2g", "2n2g"]
    run = stage_spin(tmp_path / "results", topologies, settings=as_root, protocol=override)
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = {
        task.group_id: [rank.host for rank in record.ranks]
        for task, record in zip(run.read_all_tasks(), read_records(run))
    }
    counts = {group: sorted(map(of.count, set(of))) for group, of in hosts.items()}
    assert counts == {"1n2g": [2], "2n2g": [2, 2]}
    launches = {
        group: re.search(r"^  exec (\S+) .*worker run", text, re.M).group(1)
        for group in counts
        for text in [(run.path / "scripts" / f"{group}.sbatch").read_text(encoding="utf-8")]
    }
    assert launches == {"1n2g": "srun", "2n2g": "mpirun"}
