"""Managed environments -> their state, what works in them, and how to fix what does not."""

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from dlperf_slurm.config.folders import (
    describe_denied,
    find_managed_environment,
    get_creation_command,
)
from dlperf_slurm.provision.environments.additions import read_additions
from dlperf_slurm.provision.environments.create import State, find_state, read_stamp
from dlperf_slurm.provision.environments.gpu_support import (
    LOOK_AT_GPUS,
    MachineGpus,
    list_gpu_problems,
    parse_gpus,
)
from dlperf_slurm.provision.environments.horovod import RECIPES, VERSION, has_horovod
from dlperf_slurm.provision.environments.install_steps import choose_lines, make_variables
from dlperf_slurm.provision.environments.pins import Pins, list_pins, read_pins
from dlperf_slurm.provision.environments.system import (
    describe_missing_python,
    find_interpreter,
    find_missing_programs,
)

RANKS = 2
TIMEOUT_SECONDS = 300.0
# shown as the state if `env create` has no pins for the framework and device
NOT_AVAILABLE = "not available"
# the GPU driver's library, missing on machines without a driver; MXNet is linked with it
DRIVER = "libcuda.so.1"

IMPORT = """\
import importlib, sys
import numpy
print("\\nversion", importlib.import_module(sys.argv[1]).__version__)
"""
COUNT_RANKS = """\
from mpi4py import MPI
print("\\nranks", MPI.COMM_WORLD.size)
"""
COUNT_HOROVOD_RANKS = """\
import importlib, sys
horovod = importlib.import_module(sys.argv[1])
horovod.init()
print("\\nranks", horovod.size())
"""


@dataclass(frozen=True)
class EnvironmentCheck:
    """The check of one framework's environment, for a row of the table.

    A cell is "-" if there is nothing to check, and "fails" if the check failed; `problems` say why.
    """

    framework: str
    python: str
    state: State
    version: str
    mpi: str
    horovod: str
    gpu: str
    problems: tuple[str, ...]

    @property
    def row(self) -> list[str]:
        """The cells of a table row: all fields but `problems`."""
        return [*astuple(self)[:-1]]

    def is_broken(self, is_wanted: bool) -> bool:
        """Return whether an environment has to be fixed: it is not current, or a check fails.

        One that does not exist must be created only if the user named it (`is_wanted`).
        """
        if self.state == "absent":
            return is_wanted
        return self.state != "current" or "fails" in self.row


def list_environments(device: str) -> list[list[str]]:
    """List framework, state, Python, Horovod, added packages, MiB and path of each environment."""
    rows = []
    for framework in list_pins():
        pins = read_pins(framework, device)
        environment = find_managed_environment(pins.name)
        stamp = read_stamp(environment)
        horovod = "-"
        if pins.can_have_horovod:
            horovod = VERSION if has_horovod(environment) else "not installed"
        python, mib = (stamp.python, str(stamp.mib)) if stamp else ("-", "-")
        state = find_state(environment, pins) if not pins.none else NOT_AVAILABLE
        added = ", ".join(read_additions(environment).asked) or "-"
        rows.append([framework, state, python, horovod, added, mib, str(environment)])
    return rows


def check_environment(pins: Pins) -> EnvironmentCheck:
    """Check an environment, if complete: import the framework, run two MPI ranks, Horovod, GPUs."""
    environment = find_managed_environment(pins.name)
    state = find_state(environment, pins)
    problems = _list_system_problems(pins, state)
    version = mpi = horovod = gpu = "-"
    if state in ("current", "outdated"):
        version = _check_import(environment, pins, problems)
        mpi = _check_mpi(environment, problems)
        horovod = _check_horovod(environment, pins, problems)
        gpu = _check_gpu(environment, pins, problems)
    python = "-" if state == "unreadable" else _describe_python(environment, pins)
    return EnvironmentCheck(pins.name, python, state, version, mpi, horovod, gpu, tuple(problems))


def _describe_python(environment: Path, pins: Pins) -> str:
    """Return the Python version of an environment, or else what there is to create it with."""
    stamp = read_stamp(environment)
    if stamp is not None:
        return stamp.python
    found = find_interpreter(pins.pythons)
    return f"{found.version} found" if found else f"no {' or '.join(pins.pythons)}"


def _list_system_problems(pins: Pins, state: State) -> list[str]:
    """List why an environment is missing, outdated or cannot be created, and missing programs."""
    problems = []
    if pins.none:
        return [pins.none]
    if state == "unreadable":
        return [describe_denied(find_managed_environment(pins.name))]
    if state != "current":
        if find_interpreter(pins.pythons) is None:
            problems.append(describe_missing_python(pins.pythons))
        else:
            problems.append(f"{state}: {get_creation_command(pins.framework, pins.device)}")
    for program, reason in pins.needs:
        missing = find_missing_programs(program)
        if missing:
            problems.append(f"{reason}: {missing}")
    return problems


def _check_import(environment: Path, pins: Pins, problems: list[str]) -> str:
    """Return the version of the framework in the environment.

    If it cannot be imported, returns "no driver on this machine" if only the GPU driver's library
    is missing, else "fails", and adds to `problems`.
    """
    output = _run(environment, [], IMPORT, pins.module)
    version = _find_answers(output, "version")
    if version:
        return version[0]
    if pins.cuda and DRIVER in output:
        return "no driver on this machine"
    creation = get_creation_command(pins.framework, pins.device)
    fix = f"remove {environment} and create it again: {creation}"
    problems.append(f"`import {pins.module}` fails; {fix}{_quote(output)}")
    return "fails"


def _check_mpi(environment: Path, problems: list[str]) -> str:
    """Return "2 ranks" if MPI runs that many in one world; else "fails", and add to `problems`."""
    output = _run(environment, _make_launcher(environment), COUNT_RANKS)
    answers = _find_answers(output, "ranks")
    if answers == [str(RANKS)] * RANKS:
        return f"{RANKS} ranks"
    if answers:
        what = (
            f"{len(answers)} ranks have a world size of {answers[0]}: mpi4py was built for another "
            "MPI"
        )
    else:
        what = f"mpiexec -n {RANKS} fails"
    problems.append(f"{what}; remove {environment} and create it again{_quote(output)}")
    return "fails"


def _check_horovod(environment: Path, pins: Pins, problems: list[str]) -> str:
    """Return "2 ranks" if Horovod runs that many; else "fails", and add to `problems`.

    Returns "not installed", or "-" if the framework has no Horovod.
    """
    if not pins.can_have_horovod:
        return "-"
    if not has_horovod(environment):
        return "not installed"
    module = RECIPES[pins.framework].module
    output = _run(environment, _make_launcher(environment), COUNT_HOROVOD_RANKS, module)
    if _find_answers(output, "ranks") == [str(RANKS)] * RANKS:
        return f"{RANKS} ranks"
    creation = get_creation_command(pins.framework, pins.device)
    fix = f"remove {environment} and run {creation} --horovod"
    problems.append(f"Horovod fails with {RANKS} ranks; {fix}{_quote(output)}")
    return "fails"


def _check_gpu(environment: Path, pins: Pins, problems: list[str]) -> str:
    """Describe the build's CUDA version and this host's GPUs: "CUDA 12.8; 2 x NVIDIA H100 (9.0)".

    "-" for a build for CPUs. Adds problems of running the build on these GPUs to `problems`.
    """
    if not pins.cuda:
        return "-"
    answers = _find_answers(_run(environment, [], LOOK_AT_GPUS), "gpus")
    found = parse_gpus(answers[0]) if answers else MachineGpus("", (), "NVML does not respond")
    remedy = f"set your own environment under [environments.{pins.framework}] of the site file"
    problems += [f"GPU: {problem}; {remedy}" for problem in list_gpu_problems(pins, found)]
    names = Counter(f"{name} ({capability})" for name, capability in found.gpus)
    here = ", ".join(f"{count} x {name}" for name, count in names.items())
    if found.problem or not here:
        return f"CUDA {pins.cuda}; no GPU on this machine"
    return f"CUDA {pins.cuda}; {here}"


def _make_launcher(environment: Path) -> list[str]:
    """Return the start of a command line: the environment's mpiexec, for two ranks on this host."""
    return [str(environment / "bin" / "mpiexec"), "-n", str(RANKS), "--oversubscribe"]


def _run(environment: Path, launcher: Sequence[str], program: str, *arguments: str) -> str:
    """Run a Python program in the environment; return all its output, or why it did not run.

    `launcher` precedes its command line, such as mpiexec for two ranks.
    """
    variables = {"OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}
    if os.geteuid() == 0:
        # Open MPI refuses to start as root otherwise; these two ranks are harmless
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            variables.update({name: "1", f"{name}_CONFIRM": "1"})
    try:
        done = subprocess.run(
            [*launcher, str(environment / "bin" / "python"), "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**make_variables(environment), **variables},
            # the current directory may contain a file named like a module
            cwd=environment,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer after {TIMEOUT_SECONDS:.0f} s"
    except OSError as error:
        return str(error)
    return done.stdout.decode(errors="replace")


def _find_answers(output: str, key: str) -> list[str]:
    """Return the values on lines "KEY VALUE" in the output of a checking program, for one key."""
    words = [line.split() for line in output.splitlines()]
    return [pair[1] for pair in words if len(pair) == 2 and pair[0] == key]


def _quote(output: str) -> str:
    """Return the relevant lines of a program's output, indented, to append to a message."""
    return "".join(f"\n    {line}" for line in choose_lines(output.strip().splitlines()))
