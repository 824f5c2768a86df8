"""Every framework in an environment of its own: made where it is not there, tested, and compared.

    python tests/run_on_frameworks.py [FRAMEWORK ...] [--changed]

Environments are created one after the other in parallel with the tests, with Horovod where it
exists. Each framework is tested in two processes, as a test uses one core most of the time. The
output of each is printed when it is done. A failed test is retried alone, because ranks that wait
for each other may time out on shared cores; it is reported in any case. What this machine lacks (an
interpreter, a compiler) is reported, with what to do, and the rest continues. Frameworks that pass
are written to tests/proven_frameworks.txt at once, with the hash of their files.

With --changed, only frameworks are tested whose files changed since then, and TensorFlow 1: without
tests marked exhaustive, and with Horovod only if its use or its build changed. An unchanged
TensorFlow 1 is tested with ResNet-50 in fp32 alone, without XLA and parameter servers, to show that
its environment can be created and works. `make test` does the same with PyTorch each time; here a
changed PyTorch is tested with the other models and precisions. If more than MOST_CHANGED frameworks
changed, as by an edit of the interface that all share, these too are tested with ResNet-50 in fp32
alone, without Horovod, and compared with PyTorch: all of their tests take 100 minutes. They remain
unproven until `make test-frameworks` has run.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support import proven
from support.proven import ALWAYS_TESTED, Proof

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.provision.environments.horovod import BUILD_PROGRAMS, RECIPES, has_horovod
from dlperf_slurm.provision.environments.pins import list_pins, read_pins
from dlperf_slurm.provision.environments.system import (
    describe_missing_python,
    find_interpreter,
    find_missing_programs,
)

CHECKOUT = Path(__file__).resolve().parents[1]
PROOFS = CHECKOUT / "tests" / "proven_frameworks.txt"
TOOL = [sys.executable, "-m", "dlperf_slurm"]
REFERENCE = "pytorch"
# one test at a time for each process, as some take a minute
PARALLEL = ["-n", "2", "--dist", "load", "--maxschedchunk", "1"]
# select tests by name for an unchanged framework
LEFT_TO_CHANGES = ("-k", "not (bert or llama or vit or bf16 or fp16 or xla or server)")
# tests of the reference that test-worker leaves out
NOT_IN_TEST_WORKER = (
    "-k",
    "bert or llama or vit or bf16 or fp16 or server or sharded or (step_by_step and not native)",
)
# the number of changed frameworks that --changed tests with more than ResNet-50
MOST_CHANGED = 3
NOT_MADE = ["its environment could not be made"]
OWED_TESTS = ("tests/worker/test_adapter.py", "tests/worker/test_adapter_training.py")
# Bytes of memory of tests that need more than some machines have: MindSpore frees no part of a
# step's graph before its end.
LARGE_TESTS = {
    "mindspore": {
        "tests/worker/test_adapter.py::"
        "test_full_size_step_has_all_parameters_and_the_loss_of_pytorch[llama]": 32 * 2**30
    }
}
# GB of an environment on the disk, and what other tests of `make test-all` need beside them
ENVIRONMENT_GB = {
    "jax": 0.8,
    "megengine": 2.1,
    "mindspore": 2.9,
    "mxnet": 0.5,
    "oneflow": 2.7,
    "paddle": 1.0,
    "pytorch": 1.2,
    "tensorflow1": 0.8,
    "tensorflow2": 1.7,
}
LEFT_FREE_GB = 3.0
# tests in a framework's environment that are not about its adapter
OTHER_TESTS = {"tensorflow1": ("tests/worker/test_tensorpack_script.py",)}


@dataclass(frozen=True)
class Task:
    """A framework to test, with or without Horovod, and with options of pytest."""

    framework: str
    with_horovod: bool
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """pytest's lines about failures, and the duration of the tests."""

    failed: list[str]
    seconds: float = 0.0


def main() -> int:
    """Test all frameworks, those that changed, or those named; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    parser.add_argument("--changed", action="store_true", help="those whose files changed")
    arguments = parser.parse_args()
    # computed before the tests, which prove nothing about later edits
    hashes = compute_hashes()
    proofs = proven.read_proofs(PROOFS)
    proven_hashes = {name: proof.sha256 for name, proof in proofs.items()}
    changed = {name for name, sha256 in hashes.items() if sha256 != proven_hashes.get(name)}
    tasks = choose_tasks(arguments.frameworks or list_pins(), changed, arguments.changed)
    # the reference first, whose environment other tests need
    tasks.sort(key=lambda task: task.framework != REFERENCE)
    tasks = [task for task in tasks if is_possible(task.framework)]
    tasks = fit_on_disk(tasks, shutil.disk_usage(CHECKOUT).free)

    def keep(results: Mapping[str, Result]) -> None:
        if not arguments.changed:
            write_proofs(tasks, results, hashes, proofs)

    results = test_tasks(tasks, keep)
    compared = [task.framework for task in tasks]
    if arguments.changed:
        compared = [name for name in compared if name in changed and name != REFERENCE]
    failures = {name: result.failed for name, result in results.items()}
    failures["verify"] = [] if not compared or verify(compared) else ["see its tables"]
    return conclude(failures)


def compute_hashes() -> dict[str, str]:
    """Compute the hash of each framework's files, and of its Horovod as `FRAMEWORK-horovod`."""
    hashes = {}
    for framework in list_pins():
        files = proven.list_files(CHECKOUT, framework, list_own_tests(framework))
        files = [path for path in files if path not in list_tests_of_others(framework)]
        hashes[framework] = proven.compute_hash(CHECKOUT, files)
        if framework in RECIPES:
            files = proven.list_horovod_files(CHECKOUT, framework)
            hashes[name_horovod(framework)] = proven.compute_hash(CHECKOUT, files)
    return hashes


def name_horovod(framework: str) -> str:
    """Return the name of the proof of a framework with Horovod."""
    return f"{framework}-horovod"


def choose_tasks(frameworks: Iterable[str], changed: set[str], is_gate: bool) -> list[Task]:
    """Choose complete tests of these frameworks, or as a gate short tests of the changed ones."""
    tasks = []
    is_brief = len(changed.intersection(list_pins())) > MOST_CHANGED
    for framework in frameworks:
        horovod_changed = name_horovod(framework) in changed
        if not is_gate:
            tasks.append(Task(framework, framework in RECIPES))
        elif horovod_changed or framework in (*ALWAYS_TESTED, *changed):
            options = ("-m", "not exhaustive")
            if framework == REFERENCE:
                options += NOT_IN_TEST_WORKER
            elif is_brief or (framework not in changed and not horovod_changed):
                options += LEFT_TO_CHANGES
            tasks.append(Task(framework, horovod_changed and not is_brief, options))
    return tasks


def is_possible(framework: str) -> bool:
    """Return whether this machine can create the environment; print what is missing."""
    pins = read_pins(framework)
    missing = find_missing_programs("gcc") if pins.built else ""
    if find_interpreter(pins.pythons) is None:
        lack = describe_missing_python(pins.pythons)
    elif missing:
        lack = f"{', '.join(pins.built)} cannot be built: {missing}"
    else:
        return True
    print(f"NOT RUN: {framework}: {lack}", flush=True)
    return False


def fit_on_disk(tasks: Iterable[Task], free: int) -> list[Task]:
    """Return the tasks whose environments exist or fit in `free` bytes; print those left out."""
    fitting = []
    left = free / 1e9 - LEFT_FREE_GB
    for task in tasks:
        needed = ENVIRONMENT_GB[task.framework]
        if find_managed_environment(task.framework).exists():
            needed = 0.0
        if needed > max(left, 0.0):
            print(
                f"NOT RUN: {task.framework}: its environment takes {needed} GB, with "
                f"{LEFT_FREE_GB} GB left free for other tests; the disk of {CHECKOUT} has "
                f"{max(left + LEFT_FREE_GB, 0.0):.1f} GB for it",
                flush=True,
            )
            continue
        left -= needed
        fitting.append(task)
    return fitting


def make_environment(task: Task) -> str:
    """Create the environment, with Horovod if requested; return the output.

    Raises CalledProcessError if that fails.
    """
    command = [*TOOL, "env", "create", task.framework]
    note = ""
    if task.with_horovod:
        lack = find_missing_programs(*BUILD_PROGRAMS)
        if lack:
            note = f"NOT RUN: {task.framework} with Horovod: {lack}\n"
        else:
            command.append("--horovod")
    start = time.monotonic()
    written = run(command)
    seconds = time.monotonic() - start
    return f"{written}{note}--- environment of {task.framework}: {seconds:.0f} s\n"


def test_tasks(
    tasks: Sequence[Task], keep: Callable[[Mapping[str, Result]], None]
) -> dict[str, Result]:
    """Create the environments in parallel with the tests, test each, and retry failed tests alone.

    `keep` receives the results by framework so far, after each framework.
    """
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(1) as making:
        made = {task: making.submit(make_environment, task) for task in tasks}
        for task in tasks:
            results[task.framework] = test_made(task, made[task])
            keep(results)
    for task in tasks:
        result = results[task.framework]
        if result.failed and result.failed != NOT_MADE:
            again = run_tests(task, ["--last-failed"])
            if not again.failed:
                lines = [f"{task.framework}: passed alone, after {x}" for x in result.failed]
                print("\n".join(lines), flush=True)
            results[task.framework] = Result(again.failed, result.seconds)
            keep(results)
    return results


def test_made(task: Task, making: "Future[str]") -> Result:
    """Wait for the environment and test the framework; return what failed."""
    try:
        print(making.result(), end="", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}", flush=True)
        return Result(NOT_MADE)
    return run_tests(task, PARALLEL)


def run_tests(task: Task, options: Sequence[str]) -> Result:
    """Run a framework's tests with further options of pytest."""
    framework = task.framework
    start = time.monotonic()
    python = install_pytest(framework)
    command = [python, "-m", "pytest", "-q", f"--framework={framework}"]
    command += [*task.options, *options, *leave_out_large(framework), *list_tests(framework)]
    # a cache per framework, for --last-failed
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
        return Result([], seconds)
    failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED ", "ERROR "))]
    return Result(failed or [f"pytest ended with exit code {done.returncode}"], seconds)


def install_pytest(framework: str) -> str:
    """Install pytest in the environment of a framework and return its Python.

    Locked, as `run_on_pythons` tests in an environment of a framework at the same time.
    """
    environment = find_managed_environment(framework)
    python = str(environment / "bin" / "python")
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
    with (environment / "pytest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run([python, *install, "pytest", "pytest-xdist"])
    return python


def leave_out_large(framework: str) -> list[str]:
    """Return options of pytest that skip tests for which memory is too small, and print them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    options = []
    for test, needed in LARGE_TESTS.get(framework, {}).items():
        if memory < needed:
            has = f"takes {needed / 2**30:.0f} GiB of memory; this machine has {memory / 2**30:.0f}"
            print(f"NOT RUN: {framework}: {test} {has}", flush=True)
            options.append(f"--deselect={test}")
    return options


def list_tests(framework: str) -> list[str]:
    """List the tests of a framework's environment; the reference runs all of the worker's tests."""
    return ["tests/worker"] if framework == REFERENCE else list_own_tests(framework)


def list_own_tests(framework: str) -> list[str]:
    """List the test files about a framework's adapter."""
    own = f"tests/worker/test_{framework}.py"
    return [own, *OWED_TESTS, *OTHER_TESTS.get(framework, ())]


def list_tests_of_others(framework: str) -> set[Path]:
    """Return the tests that are skipped without another framework than this one."""
    others = [name for name in list_pins() if name != framework]
    tests = {f"tests/worker/test_{name}.py" for name in others}
    tests.update(test for name in others for test in OTHER_TESTS.get(name, ()))
    return {CHECKOUT / test for test in tests}


def write_proofs(
    tasks: Iterable[Task],
    results: Mapping[str, Result],
    hashes: Mapping[str, str],
    proofs: Mapping[str, Proof],
) -> None:
    """Write the proofs of tasks that passed completely, drop those that failed, and keep others."""
    written = {name: proof for name, proof in proofs.items() if name in hashes}
    for task in tasks:
        if task.framework not in results:
            continue
        result = results[task.framework]
        names = [task.framework]
        if has_horovod(find_managed_environment(task.framework)):
            names.append(name_horovod(task.framework))
        for name in names:
            written.pop(name, None)
            if not result.failed:
                written[name] = Proof(round(result.seconds), hashes[name])
    proven.write_proofs(PROOFS, written)


def verify(frameworks: Sequence[str]) -> bool:
    """Return whether all frameworks compute the same, on one rank and on two."""
    start = time.monotonic()
    done = subprocess.run([*TOOL, "parity", *frameworks], cwd=CHECKOUT)
    print(f"--- verify: exit code {done.returncode}, {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode == 0


def conclude(failures: Mapping[str, Sequence[str]]) -> int:
    """Print the failures once more at the end; return the exit code."""
    failed = {name: lines for name, lines in failures.items() if lines}
    for name, lines in failed.items():
        print("\n".join(f"{name}: {line}" for line in lines))
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


def run(command: Sequence[str]) -> str:
    """Return the output of a command; raises CalledProcessError if it fails."""
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
