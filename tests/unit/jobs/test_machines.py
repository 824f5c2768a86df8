"""Site files of known machines: each has a source, needs no template, and has golden scripts."""

import re
from pathlib import PurePosixPath

import pytest
from builders import make_group
from golden import GOLDEN, assert_launches_are_golden, assert_script_is_golden

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import load_site
from dlperf_slurm.jobs.render import render_scripts

MACHINES = sorted(
    path.stem for path in (find_resource_dir("site_configs") / "machines").glob("*.toml")
)
RUN_DIR = PurePosixPath("/shared/results/run")


def render(name: str, nodes: int, devices_per_node: int) -> str:
    """The script of one array job of PyTorch on a machine, for whoever has an account there."""
    site = load_site(name, None, ["account=benchmarks"]).site
    topology = f"{nodes}n{devices_per_node}g"
    files = render_scripts([make_group(site, topology)], site, "run", RUN_DIR)
    return files[f"scripts/{topology}.sbatch"]


def render_whole(name: str) -> str:
    """The script of two whole nodes."""
    site = load_site(name, None, []).site
    return render(name, 2, site.max_devices_per_node)


def list_directives(script: str) -> set[str]:
    return {line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")}


def read_launch(script: str) -> str:
    lines = script.splitlines()
    return lines[lines.index("launch_pytorch() {") + 1].strip()


@pytest.fixture(autouse=True)
def managed(monkeypatch):
    """Managed environments at a place that is the same on every machine."""
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/shared/environments")


def test_script_in_a_container_is_as_its_golden_file():
    """LUMI has setup lines, modules and a container."""
    assert_script_is_golden(render_whole("lumi"), GOLDEN / "machines/lumi.sbatch")


def test_directives_and_launch_lines_are_as_in_their_golden_file():
    scripts = {}
    for name in MACHINES:
        scripts[f"{name}, two whole nodes"] = render_whole(name)
        scripts[f"{name}, one device"] = render(name, 1, 1)
    assert_launches_are_golden(scripts, GOLDEN / "machines.txt")


@pytest.mark.parametrize("name", MACHINES)
def test_file_names_its_source_and_needs_no_template(name):
    path = find_resource_dir("site_configs") / "machines" / f"{name}.toml"
    head = re.match(r"(#.*\n)+", path.read_text(encoding="utf-8"))
    assert head is not None
    assert "# Source: " in head.group()
    site = load_site(name, None, []).site
    assert site.template is None
    assert [override.template for override in site.override] == [None] * len(site.override)


@pytest.mark.parametrize(
    ("name", "directives", "words"),
    [
        (
            "perlmutter",
            ["--constraint=gpu", "--gpus-per-node=4", "--cpus-per-task=32", "--qos=regular"],
            "--unbuffered shifter --image=nersc/pytorch:25.02.01",
        ),
        (
            "frontier",
            ["--partition=batch", "--network=disable_rdzv_get", "--cpus-per-task=7"],
            "--gpus-per-task=1 --gpu-bind=closest",
        ),
        (
            "lumi",
            ["--partition=standard-g", "--gpus-per-node=8", "--mem-per-gpu=60G"],
            "singularity run",
        ),
        (
            "juwels-booster",
            ["--partition=booster", "--gres=gpu:4", "--cpus-per-task=24"],
            "--cpu-bind=none,v --accel-bind=gn --threads-per-core=1",
        ),
        ("alps", ["--ntasks-per-node=4"], "-u -l --environment=ngc-pytorch"),
        ("lonestar6", ["--partition=gpu-a100", "--ntasks=6"], "exec ibrun -n 6"),
        ("vista", ["--partition=gh", "--ntasks=2"], "exec ibrun -n 2"),
        ("superpod", ["--exclusive", "--mem=0"], "--container-name=dlperf"),
        ("aws-parallelcluster", ["--exclusive", "--wait-all-nodes=1"], "env LD_PRELOAD="),
        ("azure-ndv4", ["--gpus-per-node=8", "--cpus-per-task=12", "--mem=0"], "mask_cpu:ffffff"),
    ],
)
def test_whole_nodes_are_asked_for_and_ranks_started_as_the_site_publishes(name, directives, words):
    script = render_whole(name)
    assert set(directives) <= list_directives(script)
    assert words in read_launch(script)


@pytest.mark.parametrize(
    ("name", "directive", "absent"),
    [
        ("perlmutter", "--qos=shared", "CUDA_VISIBLE_DEVICES"),
        ("lumi", "--partition=small-g", "mask_cpu"),
        ("lonestar6", "--partition=gpu-a100-small", "--gres"),
        ("juwels-booster", "--gres=gpu:1", "CUDA_VISIBLE_DEVICES"),
        ("azure-ndv4", "--gpus-per-node=1", "mask_cpu"),
    ],
)
def test_less_than_a_node_leaves_out_what_holds_for_whole_nodes(name, directive, absent):
    script = render(name, 1, 1)
    assert directive in list_directives(script)
    assert absent not in script


def test_each_machine_has_a_place_in_these_tests():
    assert len(MACHINES) == 10
