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
