"""Before the install, and on a Python that is too old, one line says what to do."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import write_program

import dlperf_slurm
from dlperf_slurm.errors import DlperfError
from dlperf_slurm.installation import LIBRARIES, NOT_INSTALLED_EXIT_CODE, find_library

pytestmark = pytest.mark.not_in_check

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(dlperf_slurm.__file__).parent
# modules that a Python of any age imports before the check of its version
FOR_OLD_PYTHONS = ("__init__.py", "__main__.py", "installation.py", "version.py")
OLD_PYTHONS = ("2.7", "3.6", "3.7", "3.8")


@pytest.fixture
def clone(tmp_path):
    """Make a checkout without a .venv."""
    folder = tmp_path / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "*.csv", "assets")
    shutil.copytree(PACKAGE, folder / "dlperf_slurm", ignore=ignored)
    for name in ("Makefile", "setup.cfg"):
        (folder / name).touch()
    return folder


@pytest.fixture
def tools(tmp_path):
    """Make the only folder on PATH, with a fake make."""
    folder = tmp_path / "tools"
    folder.mkdir()
    write_program(folder, "make", "true")
    return folder


def run_bare(clone, tools, *words, python=(sys.executable, "-S"), path=""):
    """Run the tool on a Python without any library, and return its exit code and its output."""
    done = subprocess.run(
        [*python, "-m", "dlperf_slurm", *words],
        cwd=clone,
        env={"PATH": str(tools), "HOME": str(tools), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def check_refusal(result):
    """Assert that the tool printed one line of error, and return it."""
    exit_code, out, err = result
    assert (exit_code, out) == (NOT_INSTALLED_EXIT_CODE, "")
    assert err.startswith("dlperf-slurm: error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("words", [["submit", "matrices/bert.toml"], ["env", "list"]])
def test_fresh_clone_names_what_installs_it_and_shows_version_and_help(clone, tools, words):
    for option in ("--version", "--help"):
        assert run_bare(clone, tools, option)[0] == 0
    line = check_refusal(run_bare(clone, tools, *words))
    assert "make .venv/installed " in line
    assert re.search(rf"({'|'.join(LIBRARIES)}) cannot be imported", line)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda clone, tools: (tools / "make").unlink(),
            "-m venv .venv && .venv/bin/python -m pip install",
        ),
        (
            lambda clone, tools: write_program(clone / ".venv", "installed", ""),
            " .venv/bin/python -m dlperf_slurm\n",
        ),
    ],
)
def test_without_make_or_once_installed_other_commands_are_named(clone, tools, change, says):
    (clone / ".venv").mkdir()
    change(clone, tools)
    line = check_refusal(run_bare(clone, tools, "status"))
    assert says in line
    assert "make" not in line


def test_clone_elsewhere_is_named_by_its_path(clone, tools, tmp_path):
    home = clone.rename(tmp_path / "a b")
    line = check_refusal(run_bare(tools, tools, "status", path=str(home)))
    assert f"make -C '{home}' .venv/installed " in line
    assert f"'{home}/.venv/bin/python' -m dlperf_slurm" in line


def test_package_names_the_libraries_that_pip_installs(clone, tools):
    (clone / "Makefile").unlink()
    command = check_refusal(run_bare(clone, tools, "status")).partition("install it: ")[2].split()
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert set(command[4:]) == {*LIBRARIES.values()} - {"tomli"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "raise ImportError('\\n\\nIMPORTANT') from ImportError('libx.so: no such file')",
            "libx.so",
        ),
        ("import pydantic._core", "pydantic._core"),
    ],
)
def test_broken_library_is_named_and_installed_again(clone, tools, tmp_path, source, reason):
    (clone / "Makefile").unlink()
    for name in LIBRARIES:
        (tmp_path / "libraries" / name).mkdir(parents=True)
    (tmp_path / "libraries" / "pydantic" / "__init__.py").write_text(source, encoding="utf-8")
    words = ["config", "show", "--site", "local"]
    line = check_refusal(run_bare(clone, tools, *words, path=str(tmp_path / "libraries")))
    assert "pydantic cannot be imported" in line
    assert reason in line
    assert "pip install --force-reinstall pydantic\n" in line


@pytest.mark.parametrize("module", ["dlperf_slurm.no_such", "json.no_such"])
def test_other_import_errors_are_not_masked(clone, tools, module):
    with (clone / "dlperf_slurm" / "cli" / "runs.py").open("a", encoding="utf-8") as file:
        file.write(f"import {module}\n")
    exit_code, _, err = run_bare(clone, tools, "status")
    assert exit_code == 70
    assert f"No module named '{module}'" in err


def test_library_that_calls_our_code_is_not_the_cause():
    # as pydantic calls validators
    library = {"__name__": "pydantic.main"}
    exec("def call(function): function()", library)
    ours = {"__name__": "dlperf_slurm.config.site", "call": library["call"]}
    exec("def fail(): import dlperf_slurm.no_such\ndef validate(): call(fail)", ours)
    with pytest.raises(ImportError) as caught:
        ours["validate"]()
    # without the frame of this test
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert find_library(error) == "dlperf_slurm"


def test_libraries_are_those_that_the_package_requires():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    required = {re.split("[ <>=]", line)[0] for line in lines if line.strip(" ") and line[0] != "#"}
    assert {*LIBRARIES.values()} == required


def test_exit_code_is_no_error_classes():
    def list_codes(kind):
        return {kind.exit_code}.union(*map(list_codes, kind.__subclasses__()))

    assert NOT_INSTALLED_EXIT_CODE not in list_codes(DlperfError)


@pytest.mark.parametrize("name", FOR_OLD_PYTHONS)
def test_what_old_pythons_read_has_no_newer_syntax(name):
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"), feature_version=(3, 4))
    nodes = list(ast.walk(tree))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.Nonlocal)
    assert not [node for node in nodes if isinstance(node, newer)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert not [function.name for function in functions if function.returns]
    assert not [node.arg for node in nodes if isinstance(node, ast.arg) and node.annotation]


def find_python(version):
    """Return an interpreter of this version, from pyenv or PATH, or skip the test."""
    places = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
    for python in (*map(str, places), shutil.which(f"python{version}")):
        # pyenv has shims of inactive versions, which fail
        if python and not subprocess.run([python, "--version"], capture_output=True).returncode:
            return python
    return pytest.skip(f"no Python {version} on this machine")


@pytest.mark.parametrize("version", OLD_PYTHONS)
@pytest.mark.parametrize("words", [["submit", "matrices/bert.toml"], ["--help"]])
def test_old_python_is_told_which_it_needs(clone, tools, version, words):
    write_program(tools, "python3.11", "true")
    line = check_refusal(run_bare(clone, tools, *words, python=[find_python(version)]))
    assert "3.9 or newer" in line
    assert f"is Python {version}." in line
    assert "make .venv/installed PYTHON=python3.11" in line


def test_worker_runs_on_the_oldest_python_of_a_framework(clone, tools):
    command = [find_python("3.7"), "-m", "dlperf_slurm.worker", "run", "--help"]
    done = subprocess.run(command, cwd=clone, env=dict(os.environ), capture_output=True, text=True)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:")
