"""The second report of a run reads what is new of it, and says what the first one would."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import find_start_dir
from history_runs import add_run, write_step_seconds
from pandas.testing import assert_frame_equal

from dlperf_slurm.config.folders import find_cache_dir
from dlperf_slurm.contract.record import RECORD_FILE, STEP_SECONDS_FILE
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.run_directory import CASES_FILE, open_run
from dlperf_slurm.reports import report_cache
from dlperf_slurm.reports.report_cache import decode_rows
from dlperf_slurm.reports.report_files import make_folder, make_report, write_files
from dlperf_slurm.results import cache
from dlperf_slurm.results.history.run_cache import read_run_cache

pytestmark = pytest.mark.integration

opened = None


def _note_opened(event, details):
    if opened is not None and event == "open" and isinstance(details[0], (str, bytes)):
        opened.append(os.fsdecode(details[0]))


# there is no way to remove it again
sys.addaudithook(_note_opened)


@contextmanager
def note_opened():
    """Yield a list that gets the names of the records that were opened in this context."""
    global opened
    opened, records = [], []
    try:
        yield records
    finally:
        records += [name for name in opened if name.endswith(RECORD_FILE)]
        opened = None


@pytest.fixture
def run(staged, home):
    path = add_run(staged, 1)
    write_step_seconds(path)
    return open_run(path)


def write_report(run):
    """Write a report, and return the contents of its files by name."""
    folder = make_folder(run)
    write_files(make_report(run, {}), folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in list_files(folder)}


def list_files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def find_entry():
    (entry,) = list_files(Path(os.environ["XDG_CACHE_HOME"], "dlperf-slurm", "rows"))
    return entry


def change_record(run, index=0):
    """Write a record again, with another end."""
    path = find_start_dir(run, run.read_all_tasks()[index]) / RECORD_FILE
    record = json.loads(path.read_text())
    record["ended_at"] = "2030-01-01T00:00:00Z"
    path.write_text(json.dumps(record))


def lose_steps(run):
    (find_start_dir(run, run.read_all_tasks()[0]) / STEP_SECONDS_FILE).unlink()


def test_second_report_opens_no_record_and_is_the_same(run):
    with note_opened() as records:
        first = write_report(run)
    assert len(records) == len(run.read_all_tasks())
    with note_opened() as records:
        assert write_report(run) == first
    assert records == []


CHANGES = {
    "a record": (change_record, "case"),
    "a record of another case": (lambda run: change_record(run, -1), "case"),
    "steps that are gone": (lose_steps, "case"),
    "the file of all cases": (lambda run: os.utime(run.path / CASES_FILE), "all"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_has_the_records_of_its_case_read_again(run, name):
    change, which = CHANGES[name]
    write_report(run)
    change(run)
    repeats = len(run.read_all_tasks())
    with note_opened() as records:
        after = write_report(run)
    assert len(records) == (repeats if which == "all" else repeats // len(run.manifest.cases))
    find_entry().unlink()
    assert write_report(run) == after


def replace_code(monkeypatch):
    cache.fingerprint_code.cache_clear()
    monkeypatch.setattr(cache, "__version__", "another")


def replace_library(package):
    def replace(monkeypatch):
        cache.fingerprint_code.cache_clear()
        find = cache.find_spec
        other = SimpleNamespace(submodule_search_locations=[f"/elsewhere/{package}"])
        monkeypatch.setattr(
            cache, "find_spec", lambda name: other if name == package else find(name)
        )

    return replace


def change_entry(change):
    return lambda monkeypatch: find_entry().write_bytes(change(find_entry().read_bytes()))


@pytest.mark.parametrize(
    "spoil",
    [
        replace_code,
        replace_library("pandas"),
        replace_library("numpy"),
        # of another user
        lambda monkeypatch: monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1),
        change_entry(lambda content: b""),
        change_entry(lambda content: content[:-1]),
        change_entry(lambda content: content[:40] + b"x" + content[41:]),
    ],
)
def test_entry_that_is_not_of_this_code_or_damaged_is_not_used(run, monkeypatch, spoil):
    first = write_report(run)
    with monkeypatch.context() as patch:
        spoil(patch)
        with note_opened() as records:
            assert write_report(run) == first
        assert len(records) == len(run.read_all_tasks())
    cache.fingerprint_code.cache_clear()


def test_cache_that_cannot_be_written_changes_no_report(run, monkeypatch, tmp_path):
    first = write_report(run)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert write_report(run) == first


def test_cache_keeps_the_runs_that_were_used_last(run, monkeypatch):
    monkeypatch.setattr(report_cache, "MOST_RUNS", 1)
    folder = Path(os.environ["XDG_CACHE_HOME"], "dlperf-slurm", "rows")
    folder.mkdir(parents=True)
    (folder / "old").write_bytes(b"")
    os.utime(folder / "old", (0, 0))
    write_report(run)
    assert find_entry().name != "old"


@pytest.mark.parametrize("value", [os.system, print, Path("x")])
def test_rows_have_nothing_but_values(value):
    with pytest.raises(pickle.UnpicklingError):
        decode_rows(zlib.compress(pickle.dumps(value)))


def test_history_of_a_reported_run_opens_no_record(run):
    read = read_run_cache(run.path.parent).entries
    shutil.rmtree(find_cache_dir() / "summaries")
    write_report(run)
    with note_opened() as records:
        found = read_run_cache(run.path.parent)
    assert records == []
    assert found.read_runs == 0
    assert_frame_equal(found.entries, read)


@pytest.mark.slow
def test_report_of_as_many_repeats_as_a_manifest_may_have_takes_little_memory(run):
    path = run.path / MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["cases"] = [{**manifest["cases"][0], "repeats": 100_000}]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    # not the peak that wait4 reports, which may be that of this process, before the exec
    code = (
        "import pathlib, re, sys; from dlperf_slurm.cli import main; code = main(sys.argv[1:]); "
        "status = pathlib.Path('/proc/self/status').read_text(); "
        "print(code, re.search(r'VmHWM:\\s+(\\d+) kB', status)[1])"
    )
    command = [sys.executable, "-c", code, "report", str(run.path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    exit_code, peak_kib = map(int, ended.stdout.splitlines()[-1].split())
    assert exit_code == 5, ended.stderr[-500:]
    assert peak_kib < 500 * 1024
