"""This login node -> its modules and container runtimes."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import SchedulerError

# a module tree may be on a slow file system
MODULES_SECONDS = 30.0
_MARK = "dlperf-slurm: modules\n"
# Lmod prints to standard error
_LIST = f"""\
run_dir=. group_id=.
source "$1" && define_module || exit
printf %s {shlex.quote(_MARK)}
module --terse avail 2>&1"""
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
    """Names of modules (`module avail`) that jobs may need, and values for `container.runtime`."""

    modules: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


def find_tools() -> LoginNodeTools:
    """Find the environment modules and container runtimes of this host.

    Those that a failing command would list are missing.
    """
    # a shell as job scripts have, else a login shell
    listed = _ask_shell("-c") or _ask_shell("-lc")
    return LoginNodeTools(choose_modules(listed), find_runtimes())


def choose_modules(listed: str) -> tuple[str, ...]:
    """Select the modules that training jobs may need, such as CUDA or MPI, at most MAX_MODULES.

    `listed` is the output of `module --terse avail`, in which lines with ":" are the folders of the
    modules, and "(default)" follows a name. Where there are more, each kind keeps the names that
    sort last, which are mostly its latest versions.
    """
    names = {line.split("(")[0].strip() for line in listed.splitlines() if ":" not in line}
    kinds: dict[str, list[str]] = {}
    for name in sorted(names, reverse=True):
        useful = _USEFUL.search(name)
        if useful and " " not in name:
            kinds.setdefault(useful[0].lower(), []).append(name)
    in_turn = [name for row in zip_longest(*kinds.values()) for name in row if name]
    return tuple(sorted(in_turn[:MAX_MODULES]))


def find_runtimes() -> tuple[str, ...]:
    """Find the container runtimes on PATH, and those for which srun has options (pyxis)."""
    found = [name for program, name in PROGRAMS.items() if shutil.which(program)]
    try:
        options = slurm_client.run_client(["srun", "--help"])
    except SchedulerError:
        options = ""
    return (*found, *(name for option, name in OPTIONS.items() if option in options))


def _ask_shell(option: str) -> str:
    """Return the output of `module avail` in a bash, with the option "-c", or "-lc" to log in.

    "" if the shell knows no `module`, or is too slow. The output goes to a file: an agent that a
    profile starts may keep a pipe open.
    """
    harness = find_resource_dir("templates") / "harness.sh"
    environment = {**os.environ, "LMOD_PAGER": "none", "MODULES_PAGER": "cat"}
    with tempfile.TemporaryFile() as output:
        try:
            shell = subprocess.Popen(
                ["bash", option, _LIST, "bash", str(harness)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            return ""
        try:
            shell.wait(MODULES_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        finally:
            # also ends programs that the profile has started
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    # a profile may print too
    return text.partition(_MARK)[2]
