"""Horovod for NVIDIA's GPUs: built once, with the environment's NCCL and CUDA's compiler.

The compiler's packages are installed in a temporary folder for the build, not in the environment.
"""

import hashlib
import os
from pathlib import Path

from dlperf_slurm.config.folders import get_creation_command
from dlperf_slurm.provision.environments.horovod import has_horovod, install_horovod, make_key
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.pins import Pins, add_hashes

# message that follows "Horovod"
NOT_FOR_GPUS = (
    "for GPUs is built by `env create --cuda --horovod` for pytorch only: the build needs CUDA's "
    "compiler, nvcc, which has no package for the CUDA versions of the other frameworks; build "
    "Horovod with the site's CUDA module in an environment of your own, and name this environment "
    "in the site file under [environments]"
)


def find_missing_horovod(pins: Pins, environment: Path) -> str:
    """Return a message on how to get Horovod in a managed environment, or "" if it is installed."""
    if has_horovod(environment):
        return ""
    if pins.cuda and not pins.can_have_horovod:
        return f"Horovod {NOT_FOR_GPUS}"
    return (
        f"no Horovod; add it with `{get_creation_command(pins.framework, pins.device)} --horovod`"
    )


def add_gpu_horovod(installation: Installation, pins: Pins) -> None:
    """Install Horovod with NCCL in a framework's environment, from a cached wheel if possible.

    Raises EnvironmentMissingError if Horovod cannot be built.
    """
    # the build depends on the compiler, the GPU architectures and the pinned NCCL
    made_for = hashlib.sha256(repr((pins.stamp, pins.compiler, pins.capabilities)).encode())
    key = f"{make_key(installation, pins)}-nccl-{made_for.hexdigest()[:8]}"
    install_horovod(
        *(installation, pins, key),
        lambda folder: make_gpu_variables(
            installation, pins, make_toolkit(installation, pins, folder), folder
        ),
    )


def make_toolkit(installation: Installation, pins: Pins, folder: Path) -> Path:
    """Install CUDA's compiler below `folder`; return the folder for CMake's CUDA_HOME.

    nvcc is in its folder `bin`. Raises EnvironmentMissingError if pip cannot install the packages.
    """
    packages = folder / "nvcc"
    lines = add_hashes(pins.framework, pins.compiler, pins.device)
    title = f"installing CUDA's compiler for this build: {len(lines)} packages"
    installation.install(title, lines, ["--no-deps", "--target", str(packages)])
    home = next(packages.glob("nvidia/cu*"))
    link_unversioned(home / "lib", home / "lib")
    (home / "lib64").symlink_to("lib")
    return home


def make_gpu_variables(
    installation: Installation, pins: Pins, toolkit: Path, folder: Path
) -> dict[str, str]:
    """Return the environment variables for Horovod's build with NCCL and the compiler in `toolkit`.

    Also makes links to NCCL's library below `folder`. The variables are those of Horovod's
    docs/install.rst.
    """
    nccl = installation.site_packages / "nvidia" / "nccl"
    libraries = folder / "nccl"
    libraries.mkdir()
    link_unversioned(nccl / "lib", libraries)
    machine_code = [text for text in pins.capabilities if not text.endswith("+ptx")]
    return {
        "HOROVOD_GPU": "CUDA",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(toolkit),
        # where PyTorch's CMake files look for the CUDA runtime
        "CUDA_HOME": str(toolkit),
        "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(machine_code).replace(".", ""),
        "HOROVOD_NCCL_INCLUDE": str(nccl / "include"),
        "HOROVOD_NCCL_LIB": str(libraries),
        "HOROVOD_NCCL_LINK": "SHARED",
        # CMake sets C++11, but the headers of GCC 12 need more; the last option wins
        "NVCC_APPEND_FLAGS": "-std=c++17",
    }


def link_unversioned(libraries: Path, folder: Path) -> None:
    """Create a link `libX.so` in `folder` to each `libX.so.N` in `libraries`, for the linker."""
    for library in sorted(libraries.glob("lib*.so.*")):
        link = folder / f"{library.name.partition('.so.')[0]}.so"
        if not link.exists():
            link.symlink_to(os.path.relpath(library, folder))
