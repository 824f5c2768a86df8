"""Horovod for a framework's environment: built once, with the environment's own Open MPI.

For NVIDIA's GPUs it is built with the environment's NCCL too, and with CUDA's compiler, whose
packages are installed in a temporary folder for the build, not in the environment.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dlperf_slurm.config.folders import get_creation_command
from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.install_steps import (
    Installation,
    build_wheel,
    find_wheel,
    install_wheel,
)
from dlperf_slurm.provision.environments.pins import Pins, add_hashes
from dlperf_slurm.provision.environments.system import find_missing_programs

VERSION = "0.28.1"
STAMP_FILE = "horovod.stamp"
COMPILER = Path(__file__).with_name("horovod_cxx.sh")
BUILD_PROGRAMS = ("cmake", "make", "g++")
BINDINGS = ("PYTORCH", "TENSORFLOW", "MXNET")
# message that follows "Horovod"
NOT_FOR_GPUS = (
    "for GPUs is built by `env create --cuda --horovod` for pytorch only: the build needs CUDA's "
    "compiler, nvcc, which has no package for the CUDA versions of the other frameworks; build "
    "Horovod with the site's CUDA module in an environment of your own, and name this environment "
    "in the site file under [environments]"
)


@dataclass(frozen=True)
class HorovodBuild:
    """The build settings of Horovod for a framework; "" leaves them to Horovod's CMake files.

    `binding` is Horovod's name of the framework, `module` the module to import as a check,
    `skipped_source` a source file that cannot be compiled.
    """

    binding: str
    module: str
    cxx_standard: str = ""
    skipped_source: str = ""


RECIPES = {
    "pytorch": HorovodBuild("PYTORCH", "horovod.torch", "c++17"),
    # the XLA source includes headers of highwayhash, which TensorFlow's wheel does not contain
    "tensorflow2": HorovodBuild(
        "TENSORFLOW", "horovod.tensorflow", "c++17", "tensorflow/xla_mpi_ops.cc"
    ),
    "tensorflow1": HorovodBuild("TENSORFLOW", "horovod.tensorflow"),
    "mxnet": HorovodBuild("MXNET", "horovod.mxnet"),
}


def has_horovod(environment: Path) -> bool:
    """Return whether the environment has the version of Horovod that this package installs."""
    try:
        return (environment / STAMP_FILE).read_text(encoding="ascii") == VERSION
    except FileNotFoundError:
        return False


def find_missing_horovod(pins: Pins, environment: Path) -> str:
    """Return a message on how to get Horovod in a managed environment, or "" if it is installed."""
    if has_horovod(environment):
        return ""
    if pins.cuda and not pins.can_have_horovod:
        return f"Horovod {NOT_FOR_GPUS}"
    return (
        "Horovod is not installed; to install Horovod: "
        f"`{get_creation_command(pins.framework, pins.device)} --horovod`"
    )


def add_horovod(installation: Installation, pins: Pins) -> None:
    """Install Horovod in a framework's environment, from a cached wheel if there is one.

    Raises EnvironmentMissingError if Horovod cannot be built.
    """
    key = _make_key(installation, pins)
    wheel = find_wheel(installation, key)
    if not wheel:
        if missing := find_missing_programs(*BUILD_PROGRAMS):
            raise EnvironmentMissingError(
                f"{installation.name}: Horovod has no wheels, and cannot be built here: {missing}"
            )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # a copy of the wrapper, since package data may be installed without execute permission
            compiler = folder / COMPILER.name
            compiler.write_bytes(COMPILER.read_bytes())
            compiler.chmod(0o755)
            variables = make_variables(RECIPES[pins.framework], compiler)
            if pins.cuda:
                toolkit = _install_toolkit(installation, pins, folder)
                variables.update(_make_gpu_variables(installation, pins, toolkit, folder))
            wheel = build_wheel(installation, f"horovod=={VERSION}", key, variables)
    install_wheel(installation, wheel)
    (installation.environment / STAMP_FILE).write_text(VERSION, encoding="ascii")


def _make_key(installation: Installation, pins: Pins) -> str:
    """Make the cache key of a build of Horovod from everything that the build depends on."""
    package = installation.find_package(pins.package)
    recipe = repr(RECIPES[pins.framework]).encode()
    how = hashlib.sha256(COMPILER.read_bytes() + recipe).hexdigest()[:8]
    key = f"horovod-{VERSION}-{package}-{installation.site_packages.parent.name}-{how}"
    if not pins.cuda:
        return key
    # the build also depends on the compiler, the GPU architectures and the pinned NCCL
    made_for = hashlib.sha256(repr((pins.stamp, pins.compiler, pins.capabilities)).encode())
    return f"{key}-nccl-{made_for.hexdigest()[:8]}"


def make_variables(recipe: HorovodBuild, compiler: Path) -> dict[str, str]:
    """Return the environment variables of Horovod's build (docs/install.rst of its sources).

    `recipe` has what depends on the framework; `compiler` is a wrapper of the C++ compiler.
    """
    bindings = {
        f"HOROVOD_WITH_{name}" if name == recipe.binding else f"HOROVOD_WITHOUT_{name}": "1"
        for name in BINDINGS
    }
    return {
        **bindings,
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "CXX": str(compiler),
        "CXX_STANDARD": recipe.cxx_standard,
        "CXX_SKIP": recipe.skipped_source,
        # from lib/python3.X/site-packages/horovod/torch to lib, where Open MPI's wheel is
        "CXX_RPATH": "$ORIGIN/../../../..",
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
        # CMake 4 rejects the minimum version in Horovod's third-party CMake files
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }


def _install_toolkit(installation: Installation, pins: Pins, folder: Path) -> Path:
    """Install CUDA's compiler below `folder`; return the folder for CMake's CUDA_HOME.

    nvcc is in its folder `bin`. Raises EnvironmentMissingError if pip cannot install the packages.
    """
    packages = folder / "nvcc"
    lines = add_hashes(pins.framework, pins.compiler, pins.device)
    title = f"installing CUDA's compiler for this build: {len(lines)} packages"
    installation.install(title, lines, ["--no-deps", "--target", str(packages)])
    home = next(packages.glob("nvidia/cu*"))
    _link_unversioned(home / "lib", home / "lib")
    (home / "lib64").symlink_to("lib")
    return home


def _make_gpu_variables(
    installation: Installation, pins: Pins, toolkit: Path, folder: Path
) -> dict[str, str]:
    """Return the environment variables for Horovod's build with NCCL and the compiler in `toolkit`.

    Also makes links to NCCL's library below `folder`. The variables are those of Horovod's
    docs/install.rst.
    """
    nccl = installation.site_packages / "nvidia" / "nccl"
    libraries = folder / "nccl"
    libraries.mkdir()
    _link_unversioned(nccl / "lib", libraries)
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


def _link_unversioned(libraries: Path, folder: Path) -> None:
    """Create a link `libX.so` in `folder` to each `libX.so.N` in `libraries`, for the linker."""
    for library in sorted(libraries.glob("lib*.so.*")):
        link = folder / f"{library.name.partition('.so.')[0]}.so"
        if not link.exists():
            link.symlink_to(os.path.relpath(library, folder))
