"""The run in docs/example: reports, comparisons and frames of a real run, from its files alone.

After a change of tables that is meant: `UPDATE_GOLDEN=1 python -m pytest` of this file.
"""

import shutil
from pathlib import Path

import pytest
from golden import assert_is_golden

import dlperf_slurm
from dlperf_slurm.cli import main

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "example"


@pytest.fixture
def example(home):
    """Copy the run without its report."""
    return shutil.copytree(EXAMPLE, home / "results" / "example", ignore=lambda *_: ["report"])


def test_tables_of_the_example_are_made_of_its_records(example, capsys):
    assert main(["report", str(example), "--plots", "none"]) == 0
    for name in ("report.csv", "report.md"):
        made = (example / "report" / name).read_text(encoding="utf-8")
        assert_is_golden(made, EXAMPLE / "report" / name)
    # a checkout stays clean
    assert b"\r" not in (example / "report" / "report.csv").read_bytes()
    printed = capsys.readouterr().out
    assert "24 of 24 repeats measured" in " ".join(printed.split())
    assert f"\nReport: {example}/report/" in printed


def test_example_compared_with_itself_is_not_slower(example, capsys):
    assert main(["compare", str(example), str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("images/s") == 4
    assert "measured in neither run: pytorch-resnet50-2n2g" in printed
    assert "slower" not in printed.split("medians over repeats")[0]


def test_example_is_a_frame(example):
    frame = dlperf_slurm.open_run(example).frame()
    assert list(frame["samples_per_s"].notna()) == [True] * 4 + [False] * 2


def test_example_is_small_and_names_no_machine():
    files = [path for path in EXAMPLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if "report" not in path.parts) < 600_000
    for path in files:
        if path.suffix in (".json", ".jsonl", ".toml", ".sbatch"):
            assert "/tmp/" not in path.read_text(encoding="utf-8"), path
