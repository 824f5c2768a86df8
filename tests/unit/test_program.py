"""Hints start with the command that the user typed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import IMPORT_DIR, write_program

import dlperf_slurm
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.program import PROGRAM, find_command

PACKAGE = Path(dlperf_slurm.__file__).parent
# code that writes commands into jobs and files, which are used elsewhere
MAIN = "/opt/tool/dlperf_slurm/__main__.py"
FOR_ELSEWHERE = ("worker/",)


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Return a function that finds the command of a hint, by how the tool was started."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def find(*typed, script):
        monkeypatch.setattr("sys.orig_argv", list(typed), raising=False)
        monkeypatch.setattr("sys.argv", [str(script)])
        return find_command()

    return find


@pytest.mark.parametrize(
    ("typed", "script", "words"),
    [
        (["python3", "-m", "dlperf_slurm"], MAIN, "python3 -m dlperf_slurm"),
        (["/a b/python", "-m", "dlperf_slurm"], MAIN, "'/a b/python' -m dlperf_slurm"),
        # other programs that use the tool
        *((["python3"], script, PROGRAM) for script in ("", "-c", "/x/pytest/__main__.py")),
    ],
)
def test_hint_begins_with_the_words_that_were_typed(start, typed, script, words):
    assert start(*typed, script=script) == words


def test_python_that_does_not_know_how_it_was_typed_is_named_by_its_path(start, monkeypatch):
    start("python3", script="x")
    monkeypatch.delattr("sys.orig_argv")
    monkeypatch.setattr("sys.argv", [MAIN])
    assert find_command() == f"{sys.executable} -m dlperf_slurm"


def test_script_is_named_by_its_path_where_path_does_not_find_it(start, tmp_path):
    folders = [tmp_path / name for name in ("bin", "other")]
    for folder in folders:
        folder.mkdir()
        write_program(folder, PROGRAM, "true")
    found, other = (folder / PROGRAM for folder in folders)
    assert start("python", str(found), script=found) == PROGRAM
    assert start("python", str(other), script=other) == str(other)
    found.unlink()
    assert start("python", str(other), script=other) == str(other)


def test_errors_and_help_of_the_module_name_the_module():
    python = sys.executable
    for words in (["plan", "nowhere.toml"], ["--help"], ["plan", "--help"]):
        done = subprocess.run(
            [python, "-m", "dlperf_slurm", *words], cwd=IMPORT_DIR, capture_output=True, text=True
        )
        printed = done.stdout + done.stderr
        assert f"{python} -m dlperf_slurm" in printed
        assert not re.search(rf"{PROGRAM} (init|plan|COMMAND)", printed)
    # but shell completion is for the script
    command = [python, "-m", "dlperf_slurm", "completion", "bash"]
    text = subprocess.check_output(command, cwd=IMPORT_DIR, text=True)
    assert re.search(rf"^complete .* {PROGRAM}$", text, re.M)


def list_written_out(path):
    """List the strings of a module, without docstrings, that contain a command of the script."""
    pattern = rf"{PROGRAM} ({'|'.join(COMMANDS)})\b"
    text = path.read_text(encoding="utf-8")
    if not re.search(pattern, text):
        return []
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and re.search(pattern, node.value)
    ]


def test_no_hint_has_the_name_of_the_script_written_out(tmp_path):
    found = {
        name: texts
        for path in PACKAGE.rglob("*.py")
        if (texts := list_written_out(path))
        and not (name := path.relative_to(PACKAGE).as_posix()).startswith(FOR_ELSEWHERE)
    }
    assert found == {}
    hint = tmp_path / "hint.py"
    hint.write_text(f'print("run {PROGRAM} doctor")\n')
    assert list_written_out(hint)
