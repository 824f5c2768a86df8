"""Helpers of benchmarks/: targets that are met, printed tables, rows of each benchmark."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

BENCHMARKS_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS_FOLDER))

import run  # noqa: E402
import tracking  # noqa: E402
from measuring import CommandFailed, measure_command  # noqa: E402
from peers import PEERS, PeerMissing, find_program  # noqa: E402
from results_file import format_number, list_slower, write_results  # noqa: E402
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


def test_figures_have_three_digits_or_all_before_the_point():
    values = (0.00123, 2.5432, 100, 123.4, 100425.0)
    assert [*map(format_number, values)] == ["0.00123", "2.54", "100", "123", "100,425"]


def test_benchmarks_are_found_and_asked_for_rows_of_a_size():
    assert {"rendering", "startup", "submit"} <= set(run.list_benchmarks())
    for name in run.list_benchmarks():
        parameters = inspect.signature(importlib.import_module(name).measure_rows).parameters
        assert list(parameters) == ["is_quick"]


@pytest.mark.slow
def test_status_of_a_run_is_measured_in_each_state(tmp_path):
    for state in tracking.STATES:
        folder = tracking.make_run(tmp_path / state.replace(" ", "-"), state, tracking.CASES)
        for program in (tracking.ONCE, tracking.POLL):
            seconds, opened, mib = tracking.measure(program, folder)
            assert min(seconds, mib) > 0
            assert opened < 200


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


def test_command_is_measured_with_what_it_starts_and_fails_with_its_last_line(tmp_path):
    work = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10**7))'])"
    some = measure_command([sys.executable, "-c", work], tmp_path)
    none = measure_command([sys.executable, "-c", "pass"], tmp_path)
    assert some.cpu_seconds > none.cpu_seconds + 0.02
    with pytest.raises(CommandFailed, match=r"^python.*: exit code 1: no disk$"):
        measure_command([sys.executable, "-c", "raise SystemExit('no disk')"], tmp_path)


def test_peers_have_their_inputs_and_may_be_missing(monkeypatch):
    for peer in PEERS.values():
        assert all((BENCHMARKS_FOLDER / "peers" / file).is_file() for file in peer.inputs)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PeerMissing, match="jube"):
        find_program(PEERS["jube"])
