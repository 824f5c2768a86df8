"""Every framework in an environment of its own: made where it is not there, tested, and compared.

    python tests/run_on_frameworks.py [FRAMEWORK ...] [--present | --brief]

Environments are made one after the other beside the tests, with Horovod where it exists, and two
frameworks are tested at a time: a test runs on one core most of the time. What each wrote is
printed when it is done. A test that failed beside another framework's is tried once more by itself,
as ranks that wait for each other may run out of time on cores that they share; it is named in any
case. What this machine lacks (an interpreter, a compiler) is named, with what to
do, and the rest goes on. With --present, nothing is made: an environment that is not there is named
with the command that makes it. With --brief, tests that are marked as exhaustive are left out, and
fewer frameworks are compared.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dlperf_slurm.config.environment_paths import find_managed_environment
from dlperf_slurm.provision.environments import programs
from dlperf_slurm.provision.environments.horovod import BUILD_PROGRAMS, RECIPES
from dlperf_slurm.provision.environments.interpreters import describe_missing, find_interpreter
from dlperf_slurm.provision.environments.pins import read_pins

CHECKOUT = Path(__file__).resolve().parents[1]
TOOL = [sys.executable, "-m", "dlperf_slurm"]
REFERENCE = "pytorch"
# its ranks average in one way only
BRIEFLY_COMPARED = ("paddle",)
TESTED_AT_ONCE = 2
NOT_MADE = ["its environment could not be made"]
SHARED_TESTS = ("tests/worker/test_adapter.py", "tests/worker/test_adapter_training.py")
# what runs in a framework's environment beside its adapter
OTHER_TESTS = {"tensorflow1": ["tests/worker/test_tensorpack_source.py"]}
# those whose tests take longest first, so that none of them is left to run by itself
FRAMEWORKS = (
    "mindspore",
    "jax",
    "tensorflow2",
    "tensorflow1",
    "megengine",
    "oneflow",
    "mxnet",
    "paddle",
    REFERENCE,
)


def main() -> int:
    """Test all frameworks, or those named; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--present", action="store_true", help="make nothing")
    modes.add_argument("--brief", action="store_true", help="without the exhaustive tests")
    arguments = parser.parse_args()
    frameworks = arguments.frameworks or FRAMEWORKS
    if arguments.present:
        return test_present(frameworks)
    options = ["-m", "not exhaustive"] if arguments.brief else []
    possible = [framework for framework in frameworks if is_possible(framework)]
    with ThreadPoolExecutor(1) as making, ThreadPoolExecutor(TESTED_AT_ONCE) as testing:
        made = {name: making.submit(make_environment, name) for name in possible}
        tested = {name: testing.submit(test_made, name, made[name], options) for name in possible}
        failures = {name: test.result() for name, test in tested.items()}
    failures = try_alone(failures, options)
    compared = [name for name in possible if not arguments.brief or name in BRIEFLY_COMPARED]
    failures["verify"] = [] if not compared or verify(compared) else ["see its tables"]
    return conclude(failures)


def conclude(failures: "dict[str, list[str]]") -> int:
    """Say what failed, once more and last, where it is looked for; the exit code."""
    failed = {name: lines for name, lines in failures.items() if lines}
    for name, lines in failed.items():
        print("\n".join(f"{name}: {line}" for line in lines))
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


def test_present(frameworks: "list[str] | tuple[str, ...]") -> int:
    present = []
    for framework in frameworks:
        if (find_managed_environment(framework) / "bin" / "python").exists():
            present.append(framework)
        else:
            print(f"NOT RUN: {framework}: create it with: dlperf-slurm env create {framework}")
    with ThreadPoolExecutor(TESTED_AT_ONCE) as testing:
        failures = dict(zip(present, testing.map(run_tests, present)))
    return conclude(try_alone(failures))


def try_alone(
    failures: "dict[str, list[str]]", options: "Sequence[str]" = ()
) -> "dict[str, list[str]]":
    """What still fails of this with nothing beside it."""
    remaining = dict(failures)
    for name, lines in failures.items():
        if lines and lines != NOT_MADE:
            remaining[name] = run_tests(name, ["--last-failed", *options])
            if not remaining[name]:
                print("\n".join(f"{name}: passed alone, after {x}" for x in lines), flush=True)
    return remaining


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


def test_made(framework: str, making: "Future[str]", options: "list[str]") -> "list[str]":
    """What failed, in lines: making the environment, or tests in it."""
    try:
        print(making.result(), end="", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}", flush=True)
        return NOT_MADE
    return run_tests(framework, options)


def run_tests(framework: str, options: "Sequence[str]" = ()) -> "list[str]":
    """The adapter's own tests and those that every adapter owes, as these options of pytest say.

    Returns pytest's line on each that failed.
    """
    start = time.monotonic()
    python = find_managed_environment(framework) / "bin" / "python"
    run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "pytest"])
    # the rest of the reference's tests is `make test-worker`
    tests = ["-k", "horovod", *SHARED_TESTS] if framework == REFERENCE else list_tests(framework)
    command = [str(python), "-m", "pytest", "-q", f"--framework={framework}", *options, *tests]
    # of its own, for what failed last
    command += [f"--override-ini=cache_dir=.pytest_cache/{framework}"]
    with tempfile.TemporaryDirectory(prefix="dlperf-slurm-") as folder:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
    seconds = time.monotonic() - start
    title = f"--- {framework}: exit code {done.returncode}, {seconds:.0f} s"
    print(f"{title}\n{done.stdout}", end="", flush=True)
    if done.returncode == 0:
        return []
    failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED ", "ERROR "))]
    return failed or [f"pytest ended with exit code {done.returncode}"]


def list_tests(framework: str) -> "list[str]":
    """A framework's own files, of its adapter and of what else runs in its environment."""
    return [f"tests/worker/test_{framework}.py", *SHARED_TESTS, *OTHER_TESTS.get(framework, [])]


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
