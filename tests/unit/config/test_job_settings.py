"""What jobs on GPUs have without a word in the site file, in the scripts that are rendered."""

import subprocess
from pathlib import PurePosixPath

import pytest
from builders import make_matrix_case, make_site

from dlperf_slurm.config.site import load_site
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.render import render_scripts


def render(site, framework):
    case = make_matrix_case("1n2g", framework=framework)
    groups = group_array_tasks([ArrayTask(case, 1, 1)], site, max_array_size=1001)
    return render_scripts(groups, site, "run", PurePosixPath("/shared/run"))["scripts/1n2g.sbatch"]


@pytest.mark.parametrize(
    ("settings", "cores", "launcher"),
    [
        ([], 1, "mpirun"),
        (["device=cuda"], 1, "mpirun"),
        (["launcher.name=srun"], 1, "srun"),
        (["scheduler=slurm"], 1, "srun"),
        (["scheduler=slurm", "device=cuda"], 8, "srun"),
        (["scheduler=slurm", "device=cuda", "cpus_per_rank=2"], 2, "srun"),
    ],
)
def test_cores_and_launcher_are_defaults_of_the_merged_layers(home, settings, cores, launcher):
    text = 'device = "cpu"\nscheduler = "local"\nlauncher.mpi = "none"\n'
    (home / "mine.toml").write_text(text)
    site = load_site("./mine.toml", None, settings).site
    assert (site.cpus_per_rank, site.launcher.name) == (cores, launcher)


@pytest.mark.parametrize(
    ("variables", "fraction"),
    [
        ({}, "0.95"),
        ({"XLA_CLIENT_MEM_FRACTION": ".5"}, ".5"),
        # JAX refuses both
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, ""),
    ],
)
@pytest.mark.parametrize("is_of_environment", [False, True])
def test_jax_may_take_as_much_of_a_gpu_as_others(variables, fraction, is_of_environment):
    named = {"python": "python3", "env": variables if is_of_environment else {}}
    script = render(make_site(device="cuda", environments={"jax": named}), "jax")
    start = script.index("activate_jax() {")
    activate = script[start : script.index("\n}\n", start) + 3]
    shown = subprocess.run(
        ["bash", "-c", activate + 'activate_jax; echo "${XLA_CLIENT_MEM_FRACTION:-}"'],
        env={} if is_of_environment else variables,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert shown.stdout.decode() == f"{fraction}\n"


@pytest.mark.parametrize(("framework", "device"), [("jax", "cpu"), ("pytorch", "cuda")])
def test_fraction_of_a_gpu_is_for_jax_on_gpus_alone(framework, device):
    assert "MEM_FRACTION" not in render(make_site(device=device), framework)
