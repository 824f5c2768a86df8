"""Which runs are the user's own: those that were marked where they lie, and are still the same."""

import os
import shutil

import pytest

from dlperf_slurm.jobs import run_ownership
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.jobs.run_ownership import is_own, mark_own


@pytest.fixture
def own_run(staged_run):
    assert mark_own(staged_run) == ""
    return staged_run


def test_run_is_nobodys_before_it_is_marked_and_the_same_by_a_link(staged_run, home):
    assert not is_own(staged_run)
    mark_own(staged_run)
    assert is_own(staged_run)
    (home / "link").symlink_to(staged_run.path)
    assert is_own(open_run(home / "link"))


def test_copied_moved_or_replaced_directory_is_not_own(own_run, home):
    assert not is_own(open_run(shutil.copytree(own_run.path, home / "copy")))
    own_run.path.rename(home / "moved")
    assert not is_own(open_run(home / "moved"))
    shutil.copytree(home / "copy", own_run.path)
    assert not is_own(own_run)


def test_run_with_another_id_is_not_own(own_run):
    manifest = own_run.path / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace(own_run.run_id, own_run.run_id[:-1] + "!"), encoding="utf-8")
    assert not is_own(open_run(own_run.path))


def test_files_of_another_user_are_not_own(own_run, monkeypatch):
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert not is_own(own_run)


@pytest.mark.parametrize("name", ["", "manifest.json", "matrix.toml", "site.toml"])
def test_each_file_that_decides_what_runs_is_the_users(own_run, name):
    if os.geteuid():
        pytest.skip("needs root, to give a file to another user")
    os.chown(own_run.path / name, 65534, -1)
    assert not is_own(own_run)


def test_files_of_a_run_that_is_being_deleted_have_no_other_owner(own_run, monkeypatch):
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    shutil.rmtree(own_run.path)
    assert run_ownership.has_own_files(own_run)


def test_mark_that_others_could_write_is_none(own_run):
    folder = run_ownership._find_mark(own_run).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    for path, mode in ((folder, 0o777), (run_ownership._find_mark(own_run), 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not is_own(own_run)
        path.chmod(before)
    assert is_own(own_run)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": 1}'])
def test_damaged_mark_is_none(own_run, text):
    run_ownership._find_mark(own_run).write_text(text)
    assert not is_own(own_run)


def test_state_folder_that_cannot_be_written_is_named(staged_run, home, monkeypatch):
    (home / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    assert str(home / "file") in mark_own(staged_run)
    assert not is_own(staged_run)


def test_marks_do_not_grow_for_ever(own_run, home, monkeypatch):
    monkeypatch.setattr(run_ownership, "MOST_RUNS", 1)
    mark = run_ownership._find_mark(own_run)
    os.utime(mark, (1, 1))
    mark_own(open_run(shutil.copytree(own_run.path, home / "copy")))
    assert not mark.exists()
    assert len([*mark.parent.iterdir()]) == 1
