"""The package index of a framework's CPU build, if PyPI has only the CUDA build (PyTorch)."""

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Optional

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.provision.environments.install_steps import Installation, make_variables
from dlperf_slurm.provision.environments.pins import Pins, add_hashes, read_pins

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# environment variable with the URL of a mirror of CPU_INDEX
VARIABLE = "DLPERF_SLURM_CPU_INDEX"
# suffix of versions on such an index, not on PyPI (PEP 440, "Local version identifiers")
LOCAL_LABEL = "+cpu"
# timeouts for one connection to CPU_INDEX, and for the whole probe with several addresses
PROBE_SECONDS = 3
PROBE_LIMIT_SECONDS = 10
# CUDA build against CPU build with all packages, measured for Python 3.11 on x86_64
SIZES = "2.8 GB to download and 4.9 GB on disk, instead of 0.24 GB and 1 GB"


def choose_build(
    installation: Installation, pins: Pins, cpu_index: str
) -> tuple[list[str], list[str]]:
    """Return a framework's requirements with hashes, and pip's options for the index to use.

    A framework with hashes for a "+cpu" version gets that build from `cpu_index` if given, else
    from the indexes in pip's settings, else from `CPU_INDEX`. If no index has the build, the CUDA
    build is installed with all its requirements.
    """
    build = f"{pins.requirements[0]}{LOCAL_LABEL}"
    requirements = add_hashes(pins.framework, [build, *pins.requirements[1:]])
    if pins.cuda or "--hash=" not in requirements[0]:
        return add_hashes(pins.framework, pins.requirements, pins.device), []
    cpu_index = find_named_index(cpu_index)
    if cpu_index:
        return requirements, ["--extra-index-url", cpu_index]
    if _is_offered(installation, build):
        return requirements, []
    if _is_in_cpu_index(installation, build):
        installation.report_progress(f"{build} comes from {CPU_INDEX}")
        return requirements, ["--extra-index-url", CPU_INDEX]
    installation.report_progress(
        f"neither the indexes in pip's settings nor {CPU_INDEX} offer {build}: installing the "
        f"build for CUDA, {SIZES}; to use a mirror: --cpu-index URL or {VARIABLE}"
    )
    requirements = list(read_pins(pins.framework, CUDA).requirements)
    return add_hashes(pins.framework, requirements, CUDA), []


def find_addition_options(installation: Installation, pins: Pins, cpu_index: str) -> list[str]:
    """Return pip's options for packages added to an environment: an index with CPU builds, or none.

    Beside a CPU build, pip then prefers the "+cpu" version of a package to that of PyPI. The index
    is `cpu_index` or the variable's, else CPU_INDEX if it answers and has the framework's build.
    """
    named = find_named_index(cpu_index)
    build = f"{pins.requirements[0]}{LOCAL_LABEL}"
    if not named and not pins.cuda and "--hash=" in add_hashes(pins.framework, [build])[0]:
        named = CPU_INDEX if _is_in_cpu_index(installation, build) else ""
    return ["--extra-index-url", named] if named else []


def _is_in_cpu_index(installation: Installation, build: str) -> bool:
    """Return whether CPU_INDEX answers within seconds, and offers a build: "torch==2.13.0+cpu"."""
    probe = ["--index-url", CPU_INDEX, "--timeout", str(PROBE_SECONDS), "--retries", "0"]
    return _is_offered(installation, build, probe, PROBE_LIMIT_SECONDS)


def find_named_index(cpu_index: str) -> str:
    """Return the URL of an index with CPU builds: `cpu_index`, else that in VARIABLE, or ""."""
    return cpu_index or os.environ.get(VARIABLE, "")


def _is_offered(
    installation: Installation,
    requirement: str,
    options: Sequence[str] = (),
    limit_seconds: Optional[float] = None,
) -> bool:
    """Return whether pip finds this version, "torch==2.13.0+cpu", for the environment's Python.

    `options` are pip's, such as another index; None waits without limit.
    """
    name, _, version = requirement.partition("==")
    try:
        done = subprocess.run(
            [*installation.pip, "index", "versions", name, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=make_variables(installation.environment),
            timeout=limit_seconds,
        )
    except subprocess.TimeoutExpired:
        return False
    return version in re.split(r"[\s,()]+", done.stdout)
