"""The lanes of `make check`, `make test` and `make test-all`: which run, and which are missing."""

import re
import subprocess
from pathlib import Path

import pytest
import run_lanes

ROOT = Path(__file__).resolve().parents[2]
LANES = [lane for lanes in run_lanes.SPEEDS.values() for lane in lanes]


@pytest.fixture
def checkout(home, monkeypatch):
    """Make a checkout of one file and a Makefile with fake lanes."""
    monkeypatch.setattr(run_lanes, "CHECKOUT", home)
    monkeypatch.setattr(run_lanes, "TESTED", home / ".venv" / "tested")
    (home / ".venv").mkdir()
    (home / ".gitignore").write_text("/.venv\n", encoding="utf-8")
    (home / "file").write_text("1", encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=home, check=True)
    monkeypatch.setattr(run_lanes, "SPEEDS", {"test": ["good"], "test-all": ["other"]})
    write_makefile(home, good=0, other=0)
    return home


def write_makefile(home, **exit_codes):
    """Write lanes that print a last line of pytest, and end with these exit codes."""
    lines = [
        f"{lane}:\n\t@echo '3 passed in 0.1s ({lane})'; exit {code}\n"
        for lane, code in exit_codes.items()
    ]
    (home / "Makefile").write_text("".join(lines), encoding="utf-8")


def run(speed, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", ["run_lanes.py", speed])
    return run_lanes.main(), capfd.readouterr().out


@pytest.mark.parametrize("lane", sorted({*LANES, *run_lanes.REQUIREMENTS}))
def test_each_lane_is_a_target_of_the_makefile(lane):
    targets = re.findall(r"^([\w. -]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    assert lane in {name for line in targets for name in line.split()}


def test_summary_ends_with_what_pytest_said_and_what_failed(checkout, monkeypatch, capfd):
    code, out = run("test", monkeypatch, capfd)
    assert code == 0
    assert out.splitlines()[-2] == "3 passed in 0.1s (good)"
    write_makefile(checkout, good=1, other=0)
    code, out = run("test", monkeypatch, capfd)
    assert code == 1
    assert "failed: good" in out.splitlines()[-1]


def test_what_a_machine_cannot_run_is_one_line_and_fails_nothing(checkout, monkeypatch, capfd):
    write_makefile(checkout, good=1, other=0)
    monkeypatch.setitem(run_lanes.REQUIREMENTS, "good", lambda: "needs root")
    code, out = run("test", monkeypatch, capfd)
    assert code == 0
    assert [line for line in out.splitlines() if "good" in line] == ["NOT RUN: good: needs root"]


def test_all_repeats_what_failed_or_changed(checkout, monkeypatch, capfd):
    assert run("test", monkeypatch, capfd)[0] == 0
    code, out = run("test-all", monkeypatch, capfd)
    assert (code, "(good)" in out, "(other)" in out) == (0, False, True)
    (checkout / "file").write_text("2", encoding="utf-8")
    assert "(good)" in run("test-all", monkeypatch, capfd)[1]
    write_makefile(checkout, good=1, other=0)
    assert run("test", monkeypatch, capfd)[0] == 1
    code, out = run("test-all", monkeypatch, capfd)
    assert (code, "(good)" in out, "(other)" in out) == (1, True, True)
