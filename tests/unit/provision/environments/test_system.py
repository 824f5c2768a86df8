"""Interpreters: which one makes an environment, and what is said when there is none."""

import sys

import pytest
from builders import write_program
from support.problems import assert_problem

from dlperf_slurm.provision.environments.system import (
    Interpreter,
    describe_missing_python,
    find_interpreter,
)

OWN = "{}.{}".format(*sys.version_info)
WORKS = "exit 0"
NO_VENV = 'case "$*" in *ensurepip*) exit 1;; esac'


@pytest.fixture(autouse=True)
def no_pyenv(home, bin_dir, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYENV_ROOT", raising=False)


def test_interpreter_is_this_one_if_it_fits_else_the_first_version_on_path(bin_dir):
    assert find_interpreter(["3.1", OWN]).path == sys.executable
    assert find_interpreter(["3.1", "3.2"]) is None
    # one that does not run is passed over
    write_program(bin_dir, "python3.1", "echo 'pyenv: not switched on' >&2; exit 127")
    later = write_program(bin_dir, "python3.2", WORKS)
    assert find_interpreter(["3.1", "3.2"]) == Interpreter(str(later), "3.2")
    first = write_program(bin_dir, "python3.1", WORKS)
    assert find_interpreter(["3.1", "3.2"]) == Interpreter(str(first), "3.1")


@pytest.mark.parametrize("root", [None, "elsewhere"])
def test_interpreter_is_found_among_those_of_pyenv(home, root, monkeypatch):
    if root:
        monkeypatch.setenv("PYENV_ROOT", str(home / root))
    folder = home / (root or ".pyenv") / "versions/3.2.6/bin"
    folder.mkdir(parents=True)
    path = write_program(folder, "python", WORKS)
    assert find_interpreter(["3.2"]).path == str(path)


def test_missing_interpreter_is_named_with_what_to_install(bin_dir):
    message = describe_missing_python(["3.1", "3.2"])
    assert_problem(message, says=("Python 3.1 or 3.2", "pyenv install 3.1"))
    path = write_program(bin_dir, "python3.2", NO_VENV)
    assert find_interpreter(["3.2"]) is None
    says = (path, "apt-get install python3.2-venv")
    assert_problem(describe_missing_python(["3.2"]), says=says)
