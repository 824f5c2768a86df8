"""Pinned requirements -> one virtual environment per framework, made with a Python that fits."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import EnvironmentMissingError, InputError

STAMP_FILE = "dlperf-slurm.stamp"
NEWEST_MINOR = 14


@dataclass(frozen=True)
class Pins:
    """What a framework's environment is made of."""

    framework: str
    text: str
    oldest_python: tuple[int, int]

    @property
    def stamp(self) -> str:
        """Changes whenever the pins do."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def find_environments_dir() -> Path:
    """Where managed environments live.

    `$DLPERF_SLURM_ENVIRONMENTS`, else inside the virtual environment that runs this tool (they
    come and go with it), else the user's data folder.
    """
    chosen = os.environ.get("DLPERF_SLURM_ENVIRONMENTS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "environments"
    data_home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "dlperf-slurm" / "environments"


def list_pins() -> list[str]:
    """Names of the frameworks that the package has pins for."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.txt"))


def read_pins(framework: str) -> Pins:
    """The pins of a framework; InputError for an unknown one."""
    if framework not in list_pins():
        raise InputError(f"{framework!r} has no pins; known: {', '.join(list_pins())}")
    text = (Path(__file__).parent / f"{framework}.txt").read_text(encoding="utf-8")
    match = re.search(r"^# requires-python: >=3\.(\d+)$", text, re.M)
    return Pins(framework, text, (3, int(match[1]) if match else 9))


def find_managed_environment(framework: str) -> Path:
    return find_environments_dir() / framework


def is_current(environment: Path, pins: Pins) -> bool:
    """Whether the environment was made, to the end, from these pins."""
    try:
        return (environment / STAMP_FILE).read_text(encoding="utf-8") == pins.stamp
    except FileNotFoundError:
        return False


def find_interpreter(oldest: tuple[int, int]) -> Optional[str]:
    """A CPython at least as new as `oldest`: this one, else the nearest one found, else None."""
    if sys.version_info >= oldest:
        return sys.executable
    for minor in range(oldest[1], NEWEST_MINOR + 1):
        found = shutil.which(f"python3.{minor}")
        if found and _runs(found):
            return found
        for path in sorted(Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python")):
            return str(path)
    return None


def _runs(python: str) -> bool:
    # a pyenv shim is on PATH for versions that are not switched on, and fails when called
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def create_environment(framework: str, report: Callable[[str], None]) -> Path:
    """Make or bring up to date a managed environment; a half-made one is made again.

    Raises EnvironmentMissingError with the last lines of the installer when it cannot.
    """
    pins = read_pins(framework)
    environment = find_managed_environment(framework)
    if is_current(environment, pins):
        report(f"{framework}: up to date at {environment}")
        return environment
    python = find_interpreter(pins.oldest_python)
    if python is None:
        version = ".".join(map(str, pins.oldest_python))
        raise EnvironmentMissingError(
            f"{framework}: needs Python {version} or newer, and none was found on PATH or under "
            f"~/.pyenv/versions; install one (for instance python{version} and "
            f"python{version}-venv) and call this again"
        )
    report(f"{framework}: creating {environment} with {python}")
    _run_step([python, "-m", "venv", "--clear", str(environment)], framework)
    requirements = environment / "requirements.txt"
    requirements.write_text(pins.text, encoding="utf-8")
    report(f"{framework}: installing {', '.join(_list_requirements(pins))}")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install"]
    _run_step([*pip, "--disable-pip-version-check", "-r", str(requirements)], framework)
    (environment / STAMP_FILE).write_text(pins.stamp, encoding="utf-8")
    return environment


def _list_requirements(pins: Pins) -> Iterable[str]:
    return (line for line in pins.text.splitlines() if line and not line.startswith("#"))


def _run_step(command: Sequence[str], framework: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise EnvironmentMissingError(
            f"{framework}: {' '.join(command)} failed:\n  " + "\n  ".join(lines)
        )
