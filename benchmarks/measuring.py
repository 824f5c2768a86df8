"""A command -> CPU seconds, memory and files of the command and all its child processes.

Seconds are user and system CPU time: wall-clock time on a shared machine is noise.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Optional

CHECKOUT = Path(__file__).resolve().parents[1]
TOOL = [sys.executable, "-m", "dlperf_slurm"]
# variables with which only the environment of a program decides what it imports
NOTHING_ELSE = {"PYTHONPATH": ""}
# A small process starts the command: a child's peak memory is at least that of its parent.
BETWEEN = r"""
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
wall = time.perf_counter() - start
if done.returncode:
    sys.exit(f"exit code {done.returncode}\n{done.stderr}")
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, wall], file)
"""


class CommandFailed(Exception):
    """A measured command failed or took too long."""


@dataclass(frozen=True)
class Cost:
    """The cost of a command; `peak_mib` is that of its largest process."""

    cpu_seconds: float
    peak_mib: float
    wall_seconds: float


def measure_command(
    command: Sequence[str],
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    limit_seconds: float = 3600,
) -> Cost:
    """Return the cost of one run of a command, with this checkout as the package.

    Raises CommandFailed for an exit code other than 0, or after `limit_seconds`.
    """
    environment = make_environment(env)
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        between = [sys.executable, "-S", "-E", "-c", BETWEEN, file.name, *command]
        try:
            done = subprocess.run(
                between,
                cwd=cwd,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"not done after {limit_seconds:.0f} s") from error
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise CommandFailed(f"{Path(command[0]).name}: {said[0]}: {said[-1][:300]}")
        return Cost(*json.load(file))


def make_environment(env: Optional[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of a measured command, with this checkout as the package by default.

    The command may keep its bytecode, whatever this shell says: else each start would compile.
    """
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": str(CHECKOUT), **(env or {})}


def make_plain_environment(folder: Path) -> Path:
    """Install this checkout's wheel in a new virtual environment; return the folder of programs.

    Unlike an editable installation it imports nothing at Python's start. The packages that the tool
    depends on are those of this Python. Use it with NOTHING_ELSE.
    """
    own = folder / "plain"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(own)], check=True)
    had_build = (CHECKOUT / "build").exists()
    pip = [sys.executable, "-m", "pip", "--python", str(own / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", str(CHECKOUT)], check=True)
    if not had_build:
        shutil.rmtree(CHECKOUT / "build", ignore_errors=True)
    (packages,) = own.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return own / "bin"


def alternate(commands: Mapping[str, Callable[[], Cost]], rounds: int) -> dict[str, list[Cost]]:
    """Run the commands in turn, round by round, so that a drift of the machine affects all."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, measure in commands.items():
            costs[name].append(measure())
    return costs


def find_median_cpu(costs: Sequence[Cost]) -> float:
    """Return the median of the CPU seconds."""
    return median(cost.cpu_seconds for cost in costs)


def count_entries(folder: Path) -> tuple[int, int]:
    """Return the numbers of files and of folders below a folder."""
    files = folders = 0
    for _, names, others in os.walk(folder):
        folders += len(names)
        files += len(others)
    return files, folders


def count_opened(command: Sequence[str], env: Optional[Mapping[str, str]] = None) -> Optional[int]:
    """Return how many files and folders a command opens, or None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as log:
        trace = ["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", log.name]
        environment = make_environment(env)
        subprocess.run([*trace, *command], check=True, stdout=subprocess.DEVNULL, env=environment)
        return sum(" = -1 " not in line for line in log)
