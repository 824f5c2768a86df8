"""What jobs on GPUs have without a word in the site file, in the scripts that are rendered."""

import subprocess
from pathlib import PurePosixPath

import pytest
from builders import make_matrix_case, make_site

from dlperf_slurm.config.site import load_site
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.render import render_scripts

PLACEMENT = "--distribution=block:block"


def render(site, framework="pytorch"):
    case = make_matrix_case("1n2g", framework=framework)
    groups = group_array_tasks([ArrayTask(case, 1, 1)], site, max_array_size=1001)
    return render_scripts(groups, site, "run", PurePosixPath("/shared/run"))["scripts/1n2g.sbatch"]


@pytest.mark.parametrize(
    ("values", "cores"),
    [
        ({"device": "cuda"}, 8),
        ({"device": "cuda", "cpus_per_rank": 3}, 3),
        ({"device": "cuda", "override": [{"when": {"nodes": 1}, "cpus_per_rank": 5}]}, 5),
        ({"device": "cuda", "scheduler": "local"}, 1),
        ({"device": "cpu"}, 1),
    ],
)
def test_rank_on_a_gpu_has_cores_for_more_than_python(values, cores):
    script = render(make_site(**values))
    assert f"#SBATCH --cpus-per-task={cores}\n" in script
    assert f"export OMP_NUM_THREADS={cores}\n" in script


def test_cores_of_gpus_are_a_default_of_the_merged_layers(home):
    (home / "mine.toml").write_text('device = "cpu"\n')
    assert load_site("./mine.toml", None, []).site.cpus_per_rank == 1
    assert load_site("./mine.toml", None, ["device=cuda"]).site.cpus_per_rank == 8
    assert (
        load_site("./mine.toml", None, ["device=cuda", "cpus_per_rank=2"]).site.cpus_per_rank == 2
    )


def test_launcher_without_slurm_is_mpirun_unless_the_site_names_one(home):
    (home / "mine.toml").write_text('scheduler = "local"\nlauncher.mpi = "none"\n')
    assert load_site("./mine.toml", None, []).site.launcher.name == "mpirun"
    assert load_site("./mine.toml", None, ["launcher.name=srun"]).site.launcher.name == "srun"
    assert load_site("./mine.toml", None, ["scheduler=slurm"]).site.launcher.name == "srun"


@pytest.mark.parametrize(
    ("device", "flags", "is_placed"),
    [("cuda", [], True), ("cpu", [], False), ("cuda", ["-m", "cyclic:cyclic"], False)],
)
def test_ranks_on_gpus_are_placed_side_by_side_unless_the_site_places_them(
    device, flags, is_placed
):
    site = make_site(device=device, launcher={"name": "srun", "flags": flags})
    assert (PLACEMENT in render(site)) == is_placed


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
