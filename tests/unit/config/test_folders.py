"""What the tool keeps of a user is for that user alone, and has an end."""

import os
import pwd
import stat
from pathlib import Path

import pytest
from builders import give_to_another_user

from dlperf_slurm.config.folders import (
    PACKAGE,
    evict_oldest,
    find_cache_dir,
    find_state_dir,
    find_user_name,
    make_absolute_path,
    make_private_dir,
)
from dlperf_slurm.errors import InputError


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def read_mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("find", [find_cache_dir, find_state_dir])
def test_folders_are_private_and_that_of_another_user_is_refused(home, find, monkeypatch):
    folder = make_private_dir(find(), "reports")
    own, folders = folder.parent, [folder, *folder.parents]
    assert {read_mode(path) for path in folders[: folders.index(home)]} == {0o700}
    # that which others could read is closed
    own.chmod(0o755)
    make_private_dir(find(), "reports")
    assert read_mode(own) == 0o700
    give_to_another_user(monkeypatch, own)
    with pytest.raises(InputError, match=f"{own}: belongs to user 4242.*XDG_"):
        find()


def test_one_module_knows_where_user_folders_are():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "XDG_" in path.read_text(encoding="utf-8")
    }
    # the worker, which JAX's cache belongs to, cannot import the first one
    assert users == {"config/folders.py", "worker/frameworks/jax/compilation_cache.py"}


def test_what_was_changed_longest_ago_is_evicted(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/within").touch()
    for name in ("file", "newer", "newest"):
        (tmp_path / name).touch()
    for age, name in enumerate(("newest", "newer", "file", "folder")):
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    evict_oldest(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"newer", "newest"}


def test_folder_is_named_as_the_shell_names_it(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    monkeypatch.setenv("PWD", str(tmp_path / "home"))
    assert make_absolute_path(Path("results")) == tmp_path / "home" / "results"
    # a stale name is not believed
    monkeypatch.setenv("PWD", str(tmp_path))
    assert make_absolute_path(Path("results")) == tmp_path / "real" / "results"


def test_user_is_the_one_of_the_process(monkeypatch):
    monkeypatch.setenv("LOGNAME", "other")
    assert find_user_name() == pwd.getpwuid(os.geteuid()).pw_name
    # no entry, as in a container
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)
    assert find_user_name() == str(2**31 - 7)
