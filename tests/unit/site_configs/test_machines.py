"""Site files of known machines: each has a source, needs no template, and has golden scripts."""

import re
from pathlib import PurePosixPath

import pytest
from builders import render_script
from golden import GOLDEN, assert_launches_are_golden, assert_script_is_golden

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import load_site

MACHINES = sorted(
    path.stem for path in (find_resource_dir("site_configs") / "machines").glob("*.toml")
)
RUN_DIR = PurePosixPath("/shared/results/run")


def render(name: str, topology: str = "") -> str:
    """Render PyTorch's script on a machine, by default for two whole nodes."""
    site = load_site(name, None, ["account=benchmarks"]).site
    return render_script(site, topology or f"2n{site.max_devices_per_node}g", RUN_DIR)


@pytest.fixture(autouse=True)
def managed(monkeypatch):
    """Set a folder of managed environments that is the same on every machine."""
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/shared/environments")


def test_scripts_are_as_in_their_golden_files():
    # LUMI has setup lines, modules and a container
    assert_script_is_golden(render("lumi"), GOLDEN / "machines/lumi.sbatch")
    scripts = {}
    for name in MACHINES:
        scripts[f"{name}, two whole nodes"] = render(name)
        scripts[f"{name}, one device"] = render(name, "1n1g")
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
