"""Every framework in an environment of its own: made where it is not there, tested, and compared.

    python tests/run_on_frameworks.py [FRAMEWORK ...] [--present]

Environments are made one after the other beside the tests, with Horovod where it exists: a test
runs on one core most of the time. What this machine lacks (an interpreter, a compiler) is named,
with what to do, and the rest goes on. With --present, nothing is made: an environment that is not
there is named with the command that makes it.
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dlperf_slurm.environments import find_managed_environment, programs
from dlperf_slurm.environments.horovod import BUILD_PROGRAMS, RECIPES
from dlperf_slurm.environments.interpreters import describe_missing, find_interpreter
from dlperf_slurm.environments.pins import read_pins

CHECKOUT = Path(__file__).resolve().parents[1]
TOOL = [sys.executable, "-m", "dlperf_slurm"]
REFERENCE = "pytorch"
# those that are there soonest first, so that tests begin early
FRAMEWORKS = (
    "jax",
    "paddle",
    "oneflow",
    "mindspore",
    "megengine",
    "mxnet",
    "tensorflow1",
    "tensorflow2",
    REFERENCE,
)


def main() -> int:
    """Test all frameworks, or those named; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    parser.add_argument("--present", action="store_true", help="make nothing")
    arguments = parser.parse_args()
    frameworks = arguments.frameworks or FRAMEWORKS
    if arguments.present:
        return test_present(frameworks)
    possible = [framework for framework in frameworks if is_possible(framework)]
    with ThreadPoolExecutor(max_workers=1) as pool:
        makings = {framework: pool.submit(make_environment, framework) for framework in possible}
        failed = [name for name, making in makings.items() if not test_made(name, making)]
    if not verify(possible):
        failed.append("verify")
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


def test_present(frameworks: "list[str] | tuple[str, ...]") -> int:
    codes = [0]
    for framework in frameworks:
        if (find_managed_environment(framework) / "bin" / "python").exists():
            codes.append(0 if run_tests(framework) else 1)
        else:
            print(f"NOT RUN: {framework}: create it with: dlperf-slurm env create {framework}")
    return max(codes)


def is_possible(framework: str) -> bool:
    """Whether this machine has what the environment is made with; says what it lacks."""
    pins = read_pins(framework)
    missing = programs.list_missing(["gcc"]) if pins.built else []
    if find_interpreter(pins.pythons) is None:
        lack = describe_missing(pins.pythons)
    elif missing:
        lack = f"{', '.join(pins.built)} cannot be built: {programs.describe_missing(missing)}"
    else:
        return True
    print(f"NOT RUN: {framework}: {lack}", flush=True)
    return False


def make_environment(framework: str) -> str:
    """Make it, with Horovod; returns what was written, for when it is tested."""
    command = [*TOOL, "env", "create", framework]
    note = ""
    if framework in RECIPES:
        missing = programs.list_missing(BUILD_PROGRAMS)
        if missing:
            note = f"NOT RUN: {framework} with Horovod: {programs.describe_missing(missing)}\n"
        else:
            command.append("--horovod")
    return run(command) + note


def test_made(framework: str, making: "Future[str]") -> bool:
    """Whether the environment could be made and its tests pass."""
    try:
        print(making.result(), end="", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}", flush=True)
        return False
    return run_tests(framework)


def run_tests(framework: str) -> bool:
    """The adapter's own tests and those that every adapter owes."""
    print(f"--- {framework}", flush=True)
    start = time.monotonic()
    python = find_managed_environment(framework) / "bin" / "python"
    run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "pytest"])
    own = [f"tests/worker/test_{framework}.py", "tests/worker/test_adapter.py"]
    tests = ["-k", "horovod", own[1]] if framework == REFERENCE else own
    command = [str(python), "-m", "pytest", "-q", "--framework", framework, *tests]
    code = subprocess.run(command, cwd=CHECKOUT).returncode
    print(f"--- {framework}: exit code {code}, {time.monotonic() - start:.0f} s", flush=True)
    return code == 0


def verify(frameworks: "list[str]") -> bool:
    """Whether all do the same work, alone and on two ranks."""
    return subprocess.run([*TOOL, "verify", *frameworks], cwd=CHECKOUT).returncode == 0


def run(command: "list[str]") -> str:
    """What a command wrote; CalledProcessError when it failed."""
    return subprocess.run(
        command,
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
