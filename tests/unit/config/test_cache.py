"""The user's cache is for its user alone, whichever part of the tool makes it first."""

import os
import stat

import pytest

from dlperf_slurm.config.folders import PACKAGE, find_cache_dir, make_cache_dir


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def read_mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_all_folders_of_a_new_cache_are_private(home, open_umask):
    folder = make_cache_dir("reports", "x")
    folders = [folder, *folder.parents]
    modes = {read_mode(path) for path in folders[: folders.index(home)]}
    assert modes == {0o700}


def test_cache_that_others_could_read_is_closed(open_umask):
    find_cache_dir().mkdir(parents=True, mode=0o755)
    make_cache_dir()
    assert read_mode(find_cache_dir()) == 0o700


def test_nothing_makes_a_folder_in_the_cache_by_itself():
    users = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "XDG_CACHE_HOME" in path.read_text(encoding="utf-8")
    ]
    assert users == ["config/folders.py"]
