"""Containers: the place of each runtime's words in a script, and the mounts."""

from pathlib import Path

import pytest
from builders import make_group, make_matrix_case, make_site, read_launch
from golden import GOLDEN, assert_launches_are_golden

from dlperf_slurm.config.job_settings import Container
from dlperf_slurm.config.site import DatasetLocation
from dlperf_slurm.containers import RUNTIMES
from dlperf_slurm.contract.axes import FOLDER
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.render import render_scripts

RUN_DIR = Path("/shared/results/run")
OPTIONS = {
    "apptainer": ["--nv"],
    "charliecloud": ["--write-fake"],
    "environment": [],
    "podman": ["--device=nvidia.com/gpu=all"],
    "podman_hpc": ["--gpu"],
    "pyxis": ["--no-container-mount-home"],
    "shifter": ["--module=gpu,nccl-plugin"],
    "singularity": ["--rocm"],
    "uenv": ["--view=default"],
}


def make_container_site(runtime, launcher="srun", **changes):
    container = {"runtime": runtime, "image": "/images/pytorch", "options": OPTIONS[runtime]}
    return make_site(
        launcher={"name": launcher},
        env={"NCCL_DEBUG": "WARN", "OWN": "1"},
        environments={"pytorch": {"python": "python3", "container": {**container, **changes}}},
    )


def render(site, topology="2n4g", run_dir=RUN_DIR) -> str:
    files = render_scripts([make_group(site, topology)], site, "run", run_dir)
    return files[f"scripts/{topology}.sbatch"]


def test_directives_and_launch_lines_are_as_in_their_golden_file():
    runtimes = sorted(RUNTIMES)
    assert set(OPTIONS) == set(runtimes)
    scripts = {runtime: render(make_container_site(runtime)) for runtime in runtimes}
    assert_launches_are_golden(scripts, GOLDEN / "containers.txt")
    # the host's Python concludes, outside
    conclude = "conclude_pytorch() {\n  exec python3 -m dlperf_slurm.worker "
    assert all(conclude in script for script in scripts.values())


@pytest.mark.parametrize(
    "runtime", ["apptainer", "charliecloud", "podman", "podman_hpc", "pyxis", "singularity"]
)
def test_run_directory_data_and_mounts_are_there_in_the_container(runtime):
    site = make_container_site(runtime, mounts=["/scratch/${USER}", "/a:/b"])
    datasets = {name: DatasetLocation(path=f"/data/{name}") for name in ("digits", "other")}
    site = site.model_copy(update={"datasets": datasets})
    case = make_matrix_case("1n2g", data=FOLDER, dataset="digits")
    groups = group_array_tasks([ArrayTask(case, 1, 1)], site, 1001)
    script = render_scripts(groups, site, "run", RUN_DIR)["scripts/1n2g.sbatch"]
    launch = read_launch(script).replace("'", "")
    for mount in (
        "/shared/results/run:/shared/results/run",
        "/data/digits:/data/digits",
        '/scratch/"${USER-}":/scratch/"${USER-}"',
        "/a:/b",
    ):
        assert mount in launch
    assert "/data/other" not in launch
    # Shifter mounts the file systems itself, and the mounts of the site
    launch = read_launch(render(make_container_site("shifter", mounts=["/a:/b"])))
    assert "--volume=/a:/b" in launch
    assert str(RUN_DIR) not in launch


@pytest.mark.parametrize(
    ("runtime", "without", "with_it"),
    [
        ("apptainer", "apptainer exec", "apptainer run"),
        ("pyxis", "--no-container-entrypoint", "--container-entrypoint"),
        ("podman", "--entrypoint= ", "--rm"),
    ],
)
def test_start_up_script_of_the_image_runs_where_it_is_asked_for(runtime, without, with_it):
    launches = [
        read_launch(render(make_container_site(runtime, entrypoint=entrypoint)))
        for entrypoint in (False, True)
    ]
    assert without in launches[0]
    assert f" {with_it}" in launches[1]
    assert without not in launches[1]


def test_container_has_torchrun_and_the_wrapper_of_the_site_is_outside():
    site = make_container_site("apptainer", launcher="torchrun")
    environment = site.environments["pytorch"].model_copy(update={"wrapper": ("select_gpu",)})
    site = site.model_copy(update={"environments": {"pytorch": environment}})
    launch = read_launch(render(site, run_dir=Path("/shared/${HOME}")))
    assert " select_gpu apptainer exec " in launch
    assert " /images/pytorch bash -c 'exec torchrun " in launch
    # the path of the run is no variable
    assert "HOME-" not in launch


@pytest.mark.parametrize("runtime", ["environment", "pyxis"])
def test_option_of_srun_is_refused_where_srun_does_not_start_the_ranks(runtime):
    site = make_container_site(runtime, launcher="mpirun")
    with pytest.raises(InputError, match=f"container.runtime: '{runtime}' is an option of srun"):
        render(site)


def test_site_offers_the_runtimes_that_are_there():
    assert Container.model_json_schema()["properties"]["runtime"]["enum"] == sorted(RUNTIMES)
