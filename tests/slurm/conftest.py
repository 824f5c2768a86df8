"""A Slurm cluster of emulated nodes for the whole session, in a folder of its own."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.requirements import find_missing_slurm
from support.slurm_runs import CHECKOUT, Cluster, ask
from support.small_disk import mount_disk

from dlperf_slurm.config.folders import find_managed_environment

PROGRAM = CHECKOUT / "tests" / "cluster" / "cluster"
UP_SECONDS = 600
DISK_MIB = 1024
LEAKING_PREFIXES = ("SLURM_", "SBATCH_", "SPIN_", "OMPI_", "PRTE_", "PMI_", "PMIX_")


def find_missing() -> str:
    """Return why no cluster can be started here, and what to do, or ''."""
    missing = find_missing_slurm()
    if missing:
        return missing
    if not (find_managed_environment("pytorch") / "bin" / "python").exists():
        return (
            f"the ranks need the environment {find_managed_environment('pytorch')}: "
            "dlperf-slurm env create pytorch, then call again: make test-slurm"
        )
    return ""


@pytest.fixture(scope="session")
def cluster():
    """Start a cluster, and set its environment in this process, as on a login node."""
    missing = find_missing()
    if missing:
        pytest.skip(missing)
    # not below tmp_path: the path of a socket has at most 107 characters
    testbed = tempfile.mkdtemp(prefix="dlperf-slurm-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        leaking = {name for name in os.environ if name.startswith(LEAKING_PREFIXES)}
        # SLURM_ROOT selects the Slurm to test
        for name in leaking - {"SLURM_ROOT"}:
            patch.delenv(name)
        patch.setenv("SLURM_TESTBED", testbed)
        patch.setenv("XDG_CONFIG_HOME", str(Path(testbed) / "no-settings"))
        patch.setenv("XDG_STATE_HOME", str(Path(testbed) / "state"))
        try:
            # before the nodes start, as they do not see later mounts
            with mount_disk(Path(f"{testbed}-disk"), DISK_MIB) as disk:
                try:
                    up = run_cluster("up")
                    if up.returncode:
                        pytest.fail(f"`cluster up` failed:\n{up.stderr}", pytrace=False)
                    for name, value in read_exports(run_cluster("env").stdout).items():
                        patch.setenv(name, value)
                    yield Cluster(PROGRAM, disk, DISK_MIB)
                finally:
                    run_cluster("down")
        finally:
            run_cluster("down", "--purge")
            shutil.rmtree(f"{testbed}-disk", ignore_errors=True)


@pytest.fixture
def gate(tmp_path):
    """Return the path of a file that ranks wait for before they start."""
    return tmp_path / "gate"


@pytest.fixture
def empty_queue(cluster):
    """Cancel all jobs after a test, so that a failed one does not disturb others."""
    yield
    ask("scancel", "--user=root")


def run_cluster(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, timeout=UP_SECONDS
    )


def read_exports(text: str) -> dict[str, str]:
    words = [word for line in text.splitlines() for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words if "=" in word)
