"""This login node -> its modules and container runtimes."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError

# long, since a module tree may be on a slow file system
MODULES_SECONDS = 60.0
MAX_MODULES = 40
# modules that training jobs may need
_USEFUL = re.compile(
    r"cuda|cudnn|nccl|rocm|rccl|mpi|mpich|pmix|ucx|hpcx|nvhpc|python|anaconda|conda|torch|"
    r"tensorflow|jax|apptainer|singularity|podman|shifter|gcc",
    re.I,
)
# program on PATH -> container.runtime
PROGRAMS = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "shifter": "shifter",
    "podman-hpc": "podman_hpc",
    "podman": "podman",
    "ch-run": "charliecloud",
}
# option that a plug-in adds to srun -> container.runtime
OPTIONS = {"--container-image": "pyxis", "--environment=": "environment", "--uenv": "uenv"}


@dataclass(frozen=True)
class LoginNodeTools:
    """Names of modules that jobs may need, and values of `container.runtime`."""

    modules: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


def find_tools() -> LoginNodeTools:
    """Find the modules and container runtimes of this host; empty if a command fails."""
    return LoginNodeTools(choose_modules(_list_modules()), find_runtimes())


def choose_modules(listed: str) -> tuple[str, ...]:
    """Select the modules that jobs may need from `module --terse avail`, without its folders."""
    names = {line.split("(")[0].strip() for line in listed.splitlines() if ":" not in line}
    useful = (name for name in names if " " not in name and _USEFUL.search(name))
    return tuple(sorted(useful)[:MAX_MODULES])


def find_runtimes() -> tuple[str, ...]:
    """Find the container runtimes on PATH, and those that srun has options for."""
    found = [name for program, name in PROGRAMS.items() if shutil.which(program)]
    try:
        options = slurm_client.run_client(["srun", "--help"])
    except SchedulerError:
        options = ""
    return (*found, *(name for option, name in OPTIONS.items() if option in options))


def _list_modules() -> str:
    # `module` is a shell function of login shells; Lmod prints to standard error
    command = ["bash", "-lc", "type module > /dev/null 2>&1 && module --terse avail 2>&1"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LMOD_PAGER": "none", "MODULES_PAGER": "cat"},
            timeout=MODULES_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
