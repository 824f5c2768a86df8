"""Horovod for a framework's environment: built once, with the environment's own Open MPI."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.install_steps import (
    Installation,
    build_wheel,
    find_wheel,
    install_wheel,
)
from dlperf_slurm.provision.environments.pins import Pins
from dlperf_slurm.provision.environments.system import find_missing_programs

VERSION = "0.28.1"
STAMP_FILE = "horovod.stamp"
COMPILER = Path(__file__).with_name("horovod_cxx.sh")
BUILD_PROGRAMS = ("cmake", "make", "g++")
BINDINGS = ("PYTORCH", "TENSORFLOW", "MXNET")


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


def add_horovod(installation: Installation, pins: Pins) -> None:
    """Install Horovod in a framework's environment, from a cached wheel if there is one.

    Raises EnvironmentMissingError if Horovod cannot be built.
    """
    install_horovod(installation, pins, make_key(installation, pins), lambda folder: {})


def make_key(installation: Installation, pins: Pins) -> str:
    """Make the cache key of a build of Horovod from everything that the build depends on."""
    package = installation.find_package(pins.package)
    recipe = repr(RECIPES[pins.framework]).encode()
    how = hashlib.sha256(COMPILER.read_bytes() + recipe).hexdigest()[:8]
    return f"horovod-{VERSION}-{package}-{installation.site_packages.parent.name}-{how}"


def install_horovod(
    installation: Installation,
    pins: Pins,
    key: str,
    make_more_variables: Callable[[Path], dict[str, str]],
) -> None:
    """Install Horovod from the wheel cached under `key`, which is built if there is none.

    `make_more_variables` is called with a temporary folder of the build, and returns additional
    environment variables for it. Raises EnvironmentMissingError if Horovod cannot be built.
    """
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
            variables.update(make_more_variables(folder))
            wheel = build_wheel(installation, f"horovod=={VERSION}", key, variables)
    install_wheel(installation, wheel)
    (installation.environment / STAMP_FILE).write_text(VERSION, encoding="ascii")


def make_variables(recipe: HorovodBuild, compiler: Path) -> dict[str, str]:
    """Return the environment variables of Horovod's build (docs/install.rst of its sources).

    `compiler` is a wrapper of the C++ compiler.
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
