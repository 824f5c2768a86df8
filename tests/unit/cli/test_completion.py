"""What completes commands in shells, and the manual page: both have every command and option."""

import os
import re
import shutil
import subprocess

import pytest
from man_page import make_man_page

from dlperf_slurm.cli import main
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.cli.completion import SHELLS, list_parsers, make_full_parser


def list_options():
    parsers = [parser for _, parser in list_parsers(make_full_parser())]
    actions = [action for parser in parsers for action in parser._actions]
    return {
        name
        for action in actions
        if action.help != "==SUPPRESS=="
        for name in action.option_strings
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_a_shell_has_every_command_and_option(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*COMMANDS, *list_options()):
        # fish has long options without their hyphens
        assert re.search(rf"(?<![\w-]){re.escape(word)}\b|-l {re.escape(word[2:])}\b", script), word


def complete(home, capsys, words):
    """Return bash's completions of the last word."""
    main(["completion", "bash"])
    (home / "completion.bash").write_text(capsys.readouterr().out, encoding="utf-8")
    quoted = " ".join(f'"{word}"' for word in words)
    test = f"""
        source ./completion.bash
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        _shtab_dlperf_slurm
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", test], cwd=home, capture_output=True, text=True, env=os.environ
    )
    return done.stdout.split()


def test_bash_completes_commands_runs_frameworks_and_options(staged_run, home, capsys):
    (home / "results" / "README.md").touch()
    assert complete(home, capsys, ["dlperf-slurm", "comp"]) == ["compare", "completion"]
    assert complete(home, capsys, ["dlperf-slurm", "status", ""])[:1] == [staged_run.run_id]
    assert complete(home, capsys, ["dlperf-slurm", "env", "create", "pyt"]) == ["pytorch"]
    assert "--within" in complete(home, capsys, ["dlperf-slurm", "submit", "--w"])


def test_bash_completes_the_runs_of_the_chosen_folder(home, capsys, monkeypatch):
    (home / "all runs" / "20240501-a").mkdir(parents=True)
    monkeypatch.setenv("DLPERF_SLURM_RESULTS", "all runs")
    assert complete(home, capsys, ["dlperf-slurm", "report", ""]) == ["20240501-a", "latest"]


def test_manual_page_has_every_command_and_option():
    page = re.sub(r"\\f[BIR]", " ", make_man_page().replace("\\-", "-"))
    for word in (*COMMANDS, *list_options() - {"-h", "--help"}):
        assert re.search(rf"(?<![\w-]){re.escape(word)}\b", page), word


def test_manual_page_has_no_line_that_is_no_request():
    """A text that begins with a dot, or a bare backslash, would be taken for one."""
    known = {".TH", ".SH", ".SS", ".TP", ".B", ".I"}
    lines = make_man_page().splitlines()
    assert {line.split()[0] for line in lines if line.startswith((".", "'"))} <= known
    assert set(re.findall(r"\\(.)", make_man_page())) <= set("-fe&")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_manual_page_is_read_without_a_warning():
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8"], input=make_man_page(), capture_output=True, text=True
    )
    assert done.stderr == ""
    assert "DLPERF-SLURM(1)" in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
