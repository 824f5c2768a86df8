"""A report of a run that has not changed is printed again, and not made again."""

import os

import pytest
from builders import find_start_dir
from history_runs import add_run, write_step_seconds

from dlperf_slurm.cli import main
from dlperf_slurm.contract.parity import PROOFS_FILE
from dlperf_slurm.contract.record import RECORD_FILE
from dlperf_slurm.errors import CasesFailedError
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, open_run
from dlperf_slurm.reports import report_files
from dlperf_slurm.results import cache

pytestmark = pytest.mark.integration


@pytest.fixture
def run(staged, home, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = add_run(staged, 1)
    write_step_seconds(path)
    return open_run(path)


@pytest.fixture
def made(monkeypatch):
    """Return a list that gets an entry for each report that is made."""
    made, make = [], report_files.make_report
    monkeypatch.setattr(report_files, "make_report", lambda *given: made.append(1) or make(*given))
    return made


def report(run, capsys, *options):
    code = main(["report", str(run.path), "--plots", "none", *options])
    return code, capsys.readouterr().out


def find_record(run):
    return find_start_dir(run, run.read_all_tasks()[0]) / RECORD_FILE


def change_code(monkeypatch):
    cache.fingerprint_code.cache_clear()
    monkeypatch.setattr(cache, "__version__", "another")


def write_proofs(run):
    (run.path.parent / "parity").mkdir()
    (run.path.parent / "parity" / PROOFS_FILE).write_text("{}")


CHANGES = {
    "nothing": (lambda run, patch: None, 1),
    "a record": (lambda run, patch: os.utime(find_record(run)), 2),
    "a marker": (lambda run, patch: (run.path / MARKERS_DIR / "1n1g.0.killed").touch(), 2),
    "the matrix": (lambda run, patch: (run.path / MATRIX_FILE).write_text("# changed"), 2),
    "a file of the report": (lambda run, patch: (run.report_dir / "report.csv").unlink(), 2),
    "the mode of the run": (lambda run, patch: run.path.chmod(0o750), 2),
    "a proof of parity": (lambda run, patch: write_proofs(run), 2),
    "the code": (lambda run, patch: change_code(patch), 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_report_is_made_again_if_anything_has_changed(run, made, capsys, monkeypatch, name):
    change, count = CHANGES[name]
    first = report(run, capsys)
    try:
        change(run, monkeypatch)
        second = report(run, capsys)
    finally:
        cache.fingerprint_code.cache_clear()
    assert len(made) == count
    assert second == first or name == "the code"


def test_report_with_other_options_is_made_again(run, made, capsys):
    first = report(run, capsys)
    assert report(run, capsys, "--all") != first
    assert len(made) == 2


def test_report_of_a_run_with_missing_records_fails_again(run, made, capsys):
    find_record(run).unlink()
    first = report(run, capsys)
    assert first[0] == CasesFailedError.exit_code
    assert report(run, capsys) == first
    assert len(made) == 1
