"""Which files of a run are looked at for changes, and what counts as a change."""

import os
import shutil
from pathlib import Path

import pytest

from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.run_files import find_files, have_changed

ATTEMPT = Path("cases/a-case/r1/a1")


@pytest.fixture
def run(tmp_path):
    """Return a run directory with one attempt, which has written a record."""
    (tmp_path / MARKERS_DIR).mkdir()
    (tmp_path / ATTEMPT).mkdir(parents=True)
    (tmp_path / ATTEMPT / "record.json").write_text("{}")
    return tmp_path


def start_task(run):
    """Do what an array task does when it starts a second attempt: a folder, then a marker."""
    (run / ATTEMPT).with_name("a2").mkdir()
    (run / MARKERS_DIR / "1n1g.0.s0.started").touch()


def rewrite(path):
    """Write a file in place, in another second, with as many bytes."""
    path.write_text("[]")
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize(
    "change",
    [
        start_task,
        lambda run: rewrite(run / ATTEMPT / "record.json"),
        lambda run: (run / ATTEMPT / "details.npz").touch(),
        lambda run: (run / ATTEMPT / "record.json").unlink(),
        lambda run: shutil.rmtree(run / "cases"),
        shutil.rmtree,
    ],
)
def test_changes_of_a_run_are_found(run, change):
    states = find_files(run)
    # folders of folders alone are not looked at
    assert not {"cases", "cases/a-case", "cases/a-case/r1"} & {name for name, *_ in states}
    assert not have_changed(run, states)
    change(run)
    assert have_changed(run, states)


def test_archive_is_one_file(tmp_path):
    archive = tmp_path / "run.zip"
    archive.write_bytes(b"1")
    states = find_files(archive)
    assert [name for name, *_ in states] == [""]
    assert not have_changed(archive, states)
    archive.write_bytes(b"22")
    assert have_changed(archive, states)
