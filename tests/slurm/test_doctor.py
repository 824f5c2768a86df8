"""`site init` writes the site file of the cluster; `doctor` finds one fault at a time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.slurm_runs import CHECKOUT, QUICK_POLLS, write_matrix
from support.tool import run_tool, set_values

pytestmark = pytest.mark.usefixtures("empty_queue")

UNSOUND = 1
UNUSABLE = 2


@pytest.fixture(scope="module")
def site(cluster, tmp_path_factory):
    """Write a site file with `site init` for ranks on CPU cores, as the GPUs are emulated."""
    folder = tmp_path_factory.mktemp("site")
    done = run_tool(["site", "init", "site.toml", "--device", "cpu"], folder)
    assert done.returncode == 0, done.stderr
    return folder / "site.toml"


def consult(folder: Path, site: Path, *settings: str, results: str = "results"):
    """Run `doctor` for a case on two nodes."""
    matrix = write_matrix(folder, ["2n2g"])
    options = set_values(*settings)
    words = ["doctor", str(matrix), "--site", str(site), "--results", results, *options]
    return run_tool(words, folder)


def list_faults(done) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("fault")]


def test_file_that_site_init_writes_runs_the_matrix_of_the_demo(site, tmp_path):
    sound = run_tool(["doctor", "--site", str(site)], tmp_path)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "ranks: pytorch on n1, n2: 2 ranks connected by Open MPI" in sound.stdout
    # all nodes share the cores of one machine, so figures have no meaning here
    steps = ("protocol.warmup_steps=1", "protocol.measured_steps=3")
    quick = ["protocol.repeats=1", 'axes.topology="2n2g"', *steps]
    options = set_values(*quick, *QUICK_POLLS)
    matrix = str(CHECKOUT / "matrices" / "quickstart.toml")
    done = run_tool(["submit", matrix, "--site", str(site), "--wait", *options], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1/1 done: 1 COMPLETED" in done.stdout
    peaks = [json.loads(path.read_text()) for path in tmp_path.glob("results/*/peaks/*.fp32.json")]
    assert sorted(peak["host"] for peak in peaks) == ["n1", "n2"]
    assert all(peak["flops_per_s"] > 0 and not peak["problem"] for peak in peaks)


@pytest.mark.parametrize(
    ("settings", "what", "remedy"),
    [
        (
            ["partition=mian"],
            "partition: 2n2g: this cluster has no partition 'mian'",
            "set partition to",
        ),
        (["account=nobody"], "account: 2n2g: you may not charge account 'nobody'", "set account"),
        (
            ["gpu_request=gres", "gpu_type=h100"],
            "devices: 2n2g: 2 GPUs of type 'h100'",
            "use another partition",
        ),
        (["cpus_per_rank=9"], "cores: 2n2g: 2 ranks with 9 cores each on", "set cpus_per_rank = 8"),
        (["launcher.mpi=openmpi"], "MPI: 2n2g: srun has no MPI plug-in 'openmpi'", "one of: cray_"),
        (
            ["constraint=nosuch"],
            "sbatch --test-only: 2n2g: sbatch failed: allocation failure: Invalid feature",
            "constraint",
        ),
    ],
)
def test_fault_is_told_without_a_job(settings, what, remedy, site, tmp_path):
    done = consult(tmp_path, site, *settings)
    assert done.returncode == UNSOUND, done.stdout + done.stderr
    (line,) = list_faults(done)
    assert line.startswith(f"fault     {what}")
    assert remedy in line
    assert not re.search(r"\bjob \d", done.stdout)


def test_plugin_that_starts_as_many_worlds_is_told(site, tmp_path):
    done = consult(tmp_path, site, "launcher.mpi=pmi2")
    assert done.returncode == UNSOUND, done.stdout + done.stderr
    (line,) = list_faults(done)
    assert "each of the 2 processes has an MPI_COMM_WORLD of size 1" in line
    assert 'set launcher.mpi to the plug-in of that MPI ("pmix" for Open MPI' in line


def test_ranks_without_mpi_are_probed_as_they_start(site, tmp_path):
    done = consult(tmp_path, site, "ranks=slurm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks connected without MPI" in done.stdout


def test_folder_that_nodes_do_not_share_is_told(site, tmp_path):
    # each node has its own /dev/shm
    results = Path("/dev/shm") / f"{tmp_path.name}-{tmp_path.parent.name}"
    done = consult(tmp_path, site, results=str(results))
    assert done.returncode == UNSOUND, done.stdout + done.stderr
    (line,) = list_faults(done)
    assert f"run directory: pytorch: {results}: contains no file from the probe job on n" in line
    assert not results.exists()


def test_environment_without_mpi4py_and_framework_is_told(site, tmp_path):
    command = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")]
    subprocess.run(command, check=True)
    done = consult(tmp_path, site, f'environments.pytorch.venv="{tmp_path}/empty"')
    assert done.returncode == UNSOUND, done.stdout + done.stderr
    ranks, framework = list_faults(done)
    assert "No module named 'mpi4py'" in ranks
    assert "No module named 'torch'" in framework
    assert "dlperf-slurm env create pytorch" in framework


def test_build_for_cpus_is_told_where_slurm_hands_out_gpus(site, tmp_path):
    venv = CHECKOUT / ".venv" / "environments" / "pytorch"
    settings = ["device=cuda", "gpu_request=gres", f"environments.pytorch.venv={venv}"]
    done = consult(tmp_path, site, *settings)
    assert done.returncode == UNUSABLE, done.stdout + done.stderr
    assert "is a build for CPUs, but device of the site is 'cuda'" in done.stdout
    assert "can run no case of this matrix" in done.stderr
