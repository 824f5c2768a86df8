"""This machine -> its Python interpreters and programs, and how to install missing ones."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import find_user_dir

# programs whose Debian package has another name
DEBIAN_PACKAGES = {"nm": "binutils"}


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter on this machine; `version` is like "3.11"."""

    path: str
    version: str


def find_interpreter(versions: Sequence[str]) -> Optional[Interpreter]:
    """Find a Python of one of these versions that can create virtual environments.

    It is the one that runs this program if it has such a version, else of the first of `versions`
    that is on PATH or in pyenv. Returns None if there is none; `describe_missing_python` then says
    what to install.
    """
    own = Interpreter(sys.executable, "{}.{}".format(*sys.version_info))
    if own.version in versions and _can_make_environments(own.path):
        return own
    for version in versions:
        for path in _list_candidates(version):
            if _can_make_environments(path):
                return Interpreter(path, version)
    return None


def describe_missing_python(versions: Sequence[str]) -> str:
    """Return why `find_interpreter` found no Python of these versions, and what to install."""
    wanted = " or ".join(versions)
    for version in versions:
        for path in _list_candidates(version):
            if _runs(path, "import sys"):
                return (
                    f"needs Python {wanted}; {path} cannot make virtual environments (on Debian: "
                    f"apt-get install python{version}-venv)"
                )
    return (
        f"needs Python {wanted}, which is neither on PATH nor in pyenv; install Python (for "
        f"instance `pyenv install {versions[0]}`) or load its module, and run the command again"
    )


def _list_candidates(version: str) -> Iterator[str]:
    """Yield the paths of interpreters of a version on PATH, then in pyenv."""
    pyenv = find_user_dir("PYENV_ROOT", "~/.pyenv")
    on_path = [Path(folder) / f"python{version}" for folder in os.get_exec_path()]
    in_pyenv = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"), reverse=True)
    return (str(path) for path in (*on_path, *in_pyenv) if os.access(path, os.X_OK))


def _can_make_environments(python: str) -> bool:
    """Return whether a Python has the modules to create virtual environments."""
    # Debian's python3.X has no ensurepip until python3.X-venv is installed
    return _runs(python, "import ensurepip, venv")


def _runs(python: str, program: str) -> bool:
    """Return whether a Python runs this program text without an error."""
    # pyenv puts shims of inactive versions on PATH too, which fail when called
    return subprocess.run([python, "-I", "-c", program], capture_output=True).returncode == 0


def find_missing_programs(*programs: str) -> str:
    """Return which programs are not on PATH and how to install them, or "" if all are."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return ""
    packages = " ".join(DEBIAN_PACKAGES.get(program, program) for program in missing)
    return (
        f"{' and '.join(f'no {program}' for program in missing)} on PATH; load a module, or on "
        f"Debian: apt-get install {packages}"
    )
