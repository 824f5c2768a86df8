"""Scripts of all container runtimes against the real sbatch and srun, with options of plug-ins.

A stub replaces the SPANK plug-ins: it registers their options, and starts no container.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.slurm_runs import (
    CHECKOUT,
    ask,
    read_records,
    stage_matrix,
    stage_spin,
    submit,
    write_matrix,
)
from support.tool import find_states

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.containers import OURS, RUNTIMES

pytestmark = pytest.mark.containers

STUB = CHECKOUT / "tests" / "containers" / "spank_stub.c"
HEADERS = "/usr/include/slurm/spank.h"
# runtimes that are options of srun, with options that a site may add
PLUGINS = {"environment": [], "pyxis": ["--no-container-mount-home"], "uenv": ["--view=default"]}
IMAGE = "/images/pytorch"


def set_container(runtime: str, options: "list[str]") -> "list[str]":
    """Return settings of a site whose PyTorch is in a container."""
    words = ", ".join(f'"{option}"' for option in options)
    container = f'{{runtime="{runtime}", image="{IMAGE}", options=[{words}]}}'
    python = find_managed_environment("pytorch") / "bin" / "python"
    return [
        f"environments.pytorch.container={container}",
        *(f"environments.pytorch.{name}={python}" for name in ("python", "host_python")),
    ]


@pytest.fixture
def taken(cluster, tmp_path):
    """Add the stub to the cluster's plugstack.conf; yield the file for the options it is given."""
    if not Path(HEADERS).exists() or shutil.which("gcc") is None:
        pytest.skip(
            "the stub of Slurm's plug-ins takes gcc and slurm/spank.h: apt-get install gcc "
            "libc6-dev libslurm-dev, then: make test-containers"
        )
    if "SLURM_ROOT" in os.environ:
        pytest.skip("Debian's headers are those of its own Slurm: unset SLURM_ROOT")
    library = tmp_path / "spank_stub.so"
    flags = ["-Wall", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(STUB)], check=True)
    log = tmp_path / "taken"
    # beside slurm.conf, where each command and each step reads it at its start
    plugins = Path(os.environ["SLURM_TESTBED"]) / "etc" / "plugstack.conf"
    plugins.write_text(f"required {library} {log}\n", encoding="utf-8")
    yield log
    plugins.unlink()


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_sbatch_accepts_the_script_of_each_runtime(taken, tmp_path, runtime):
    settings = set_container(runtime, PLUGINS.get(runtime, []))
    run = stage_matrix(write_matrix(tmp_path, ["2n2g"]), tmp_path, *settings)
    ask("sbatch", "--test-only", str(run.get_script_path("2n2g")))
    # Shifter's image is an option of sbatch
    if runtime == "shifter":
        assert taken.read_text().split() == [f"--image={IMAGE}"]


@pytest.mark.parametrize("runtime", PLUGINS)
def test_srun_takes_the_words_of_a_plug_in_and_starts_the_ranks(taken, tmp_path, runtime):
    settings = set_container(runtime, PLUGINS[runtime])
    run = stage_spin(tmp_path / "results", ["2n2g"], settings=settings)
    done = submit(run, "--wait")
    assert find_states(run) == {"2n2g.0": "COMPLETED"}, done.stdout + done.stderr
    words = taken.read_text().split()
    names = ",".join((*OURS, "DLPERF_SLURM_PEAKS", "OMPI_MCA_mpi_yield_when_idle"))
    expected = {
        "environment": [f"--environment={IMAGE}"],
        "pyxis": [
            f"--container-image={IMAGE}",
            f"--container-mounts={run.path}:{run.path}",
            "--no-container-entrypoint",
            f"--container-env={names}",
            *PLUGINS["pyxis"],
        ],
        "uenv": [f"--uenv={IMAGE}", *PLUGINS["uenv"]],
    }
    assert words == expected[runtime]
    (record,) = read_records(run)
    assert record.platform["container"] == runtime
    assert record.platform["container_image"] == IMAGE
    assert "container_digest" not in record.platform
