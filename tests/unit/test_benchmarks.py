"""Helpers of benchmarks/: targets that are met, printed tables, rows of each benchmark."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

BENCHMARKS_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS_FOLDER))

import run  # noqa: E402
from results_file import list_slower, write_results  # noqa: E402
from rows import Row  # noqa: E402


def make_row(**fields):
    return Row(
        **{"part": 1, "name": "files", "measured": 6.0, "unit": "files", "command": "x", **fields}
    )


@pytest.mark.parametrize(
    ("fields", "is_met"),
    [
        ({}, None),
        ({"target": 6}, True),
        ({"target": 5}, False),
        ({"target": 5, "measured": None}, None),
        ({"peer_measured": 3.0, "target_ratio": 2}, True),
        ({"peer_measured": 3.0, "target_ratio": 1.9}, False),
        # without the peer a missed target stays missed, and no target counts as met
        ({"target": 5, "target_ratio": 2}, False),
        ({"target": 6, "target_ratio": 2}, None),
        ({"target": 6, "target_ratio": 0.5, "peer_measured": 3.0}, False),
    ],
)
def test_row_is_met_where_all_that_it_may_be_is_known(fields, is_met):
    assert make_row(**fields).is_met is is_met


def test_results_have_a_line_for_each_row_and_why_a_target_is_missed():
    rows = [
        make_row(target=8, peer="cat", peer_measured=3.0, target_ratio=2.5),
        make_row(target=6, why_missed="not this"),
        make_row(target=5, why_missed="but this"),
        make_row(measured=None, problem="no strace"),
    ]
    text = write_results(rows, {"CPU": "a | b"}, {"gather": "exit code 1"})
    assert "| files | 6 files | 8 files and 2.5 x cat | cat: 3 files | 2 | yes | `x` |" in text
    assert "2 targets met, 1 missed" in text
    assert "but this" in text
    assert "not this" not in text
    assert "- files: not measured. no strace" in text
    assert "| CPU | a \\| b |" in text
    assert "| gather | exit code 1 |" in text


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"measured": 6.5}, 0),
        ({"measured": 7.0}, 1),
        ({"measured": 3.0}, 0),
        ({"measured": 7.0, "name": "files of another size"}, 0),
        # the ratio counts where there is one: the machine is slower, not the tool
        ({"measured": 12.0, "peer": "cat", "peer_measured": 6.0}, 0),
        ({"measured": 12.0, "peer": "cat", "peer_measured": 3.0}, 1),
    ],
)
def test_row_that_became_slower_beyond_noise_is_listed(fields, count):
    last = [make_row(), make_row(peer="cat", peer_measured=3.0)]
    found = list_slower([make_row(**fields)], write_results(last, {"CPU": "x"}, {}))
    assert len(found) == count
    assert all("slower: files" in line for line in found)


def test_benchmarks_are_found_and_asked_for_rows_of_a_size():
    assert {"rendering", "startup", "submit"} <= set(run.list_benchmarks())
    for name in run.list_benchmarks():
        parameters = inspect.signature(importlib.import_module(name).measure_rows).parameters
        assert list(parameters) == ["is_quick"]


def test_results_are_written_after_each_benchmark_and_failures_are_named(monkeypatch, tmp_path):
    (tmp_path / "a.py").write_text(
        "def begin():\n    pass\n\ndef measure_rows(is_quick):\n    return []\n"
    )
    (tmp_path / "b.py").write_text(
        "from pathlib import Path\n\ndef measure_rows(is_quick):\n"
        "    raise SystemExit('| b | it has not run yet |' in Path('RESULTS.md').read_text())\n"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "CHECKOUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 1
    # the second benchmark saw the file of the first; True is exit code 1
    assert "| b | exit code 1: it said nothing |" in (tmp_path / "RESULTS.md").read_text()
