"""This login node -> the modules and container runtimes that it has."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError

# a tree of modules may lie on a slow disk
MODULES_SECONDS = 60.0
MAX_MODULES = 40
# what jobs that train may need
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
# option that a plug-in gives to srun -> container.runtime
OPTIONS = {"--container-image": "pyxis", "--environment=": "environment", "--uenv": "uenv"}


@dataclass(frozen=True)
class Tools:
    """Modules that may be of use, by name, and values of `container.runtime`."""

    modules: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


def find_tools() -> Tools:
    """What is here; nothing where nobody answers."""
    return Tools(choose_modules(_list_modules()), find_runtimes())


def choose_modules(listed: str) -> tuple[str, ...]:
    """The modules in `module --terse avail` that jobs may need; a folder's name ends in a colon."""
    names = {line.split("(")[0].strip() for line in listed.splitlines() if ":" not in line}
    useful = (name for name in names if " " not in name and _USEFUL.search(name))
    return tuple(sorted(useful)[:MAX_MODULES])


def find_runtimes() -> tuple[str, ...]:
    """The container runtimes on PATH, and those that srun has options for."""
    found = [name for program, name in PROGRAMS.items() if shutil.which(program)]
    try:
        options = slurm_client.run_client(["srun", "--help"])
    except SchedulerError:
        options = ""
    return (*found, *(name for option, name in OPTIONS.items() if option in options))


def _list_modules() -> str:
    # `module` is a function of login shells; Lmod lists on standard error
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
