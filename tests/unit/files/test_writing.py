"""Files are written whole or not at all, appended to or removed; never through a link."""

import errno
import os
import subprocess
import sys

import pytest
from builders import IMPORT_DIR

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import (
    open_to_append,
    remove_file,
    write_all,
    write_file,
    write_once,
)

WRITE_TWO_MIB = """
import resource, sys
from pathlib import Path
from dlperf_slurm.files.writing import write_file
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    write_file(Path(sys.argv[1]), bytes(2 * 2**20))
except OSError as error:
    sys.exit(str(error))
"""


def append(path, content, root=None):
    with open_to_append(path, root) as descriptor:
        write_all(descriptor, content)


def list_names(folder):
    return [path.name for path in folder.iterdir()]


def test_file_is_replaced_whole_in_folders_that_are_made_and_kept(tmp_path):
    path = tmp_path / "a/b/file"
    for content in (b"a long text", b"short", b""):
        make_folder(path.parent, root=tmp_path)
        write_file(path, content, root=tmp_path)
        assert path.read_bytes() == content
    assert list_names(path.parent) == ["file"]


def test_file_is_appended_to_and_only_the_first_of_two_is_written_once(tmp_path):
    for content in (b"one\n", b"two\n"):
        append(tmp_path / "log", content, tmp_path)
        write_once(tmp_path / "claim", content, tmp_path)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "claim").read_bytes() == b"one\n"
    assert sorted(list_names(tmp_path)) == ["claim", "log"]


def test_link_is_replaced_refused_or_removed_and_its_target_stays(tmp_path):
    (tmp_path / "target").write_text("mine")
    for name in ("written", "appended", "claimed", "removed"):
        (tmp_path / name).symlink_to("target")
    write_file(tmp_path / "written", b"theirs")
    with pytest.raises(FileProblem, match=r"appended: .*link"):
        append(tmp_path / "appended", b"theirs")
    assert write_once(tmp_path / "new", b"", tmp_path)
    assert not write_once(tmp_path / "claimed", b"theirs")
    for _ in range(2):
        remove_file(tmp_path / "removed", tmp_path)
    assert (tmp_path / "target").read_text() == "mine"
    assert (tmp_path / "written").read_bytes() == b"theirs"
    assert sorted(list_names(tmp_path)) == ["appended", "claimed", "new", "target", "written"]


@pytest.mark.parametrize(
    "change",
    [
        lambda path, root: write_file(path, b"", root=root),
        lambda path, root: write_once(path, b"", root=root),
        lambda path, root: append(path, b"", root),
        lambda path, root: make_folder(path / "plots", root=root),
        lambda path, root: remove_file(path, root),
    ],
)
def test_link_to_a_folder_below_the_root_is_refused(tmp_path, change):
    (tmp_path / "run").mkdir()
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/figure.svg").write_text("mine")
    (tmp_path / "run/report").symlink_to(tmp_path / "papers")
    with pytest.raises(FileProblem, match=r"report .*link"):
        change(tmp_path / "run/report/figure.svg", tmp_path / "run")
    assert list_names(tmp_path / "papers") == ["figure.svg"]
    assert (tmp_path / "papers/figure.svg").read_text() == "mine"


def test_what_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").mkdir()
    with pytest.raises(FileProblem, match=f"{tmp_path}/file: cannot be written"):
        write_file(tmp_path / "file", b"")
    assert list_names(tmp_path) == ["file"]
    with pytest.raises(FileProblem, match=r"missing/log: .*No such file"):
        append(tmp_path / "missing/log", b"")
    # a pipe is not waited for
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileProblem, match=r"pipe: .*regular file"):
        append(tmp_path / "pipe", b"")

    def refuse(*path, **folder):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(FileProblem, match=r"run/report: .*Read-only"):
        make_folder(tmp_path / "run/report", root=tmp_path)


def run_writer(path, *arguments):
    return subprocess.run(
        [sys.executable, "-c", WRITE_TWO_MIB, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": IMPORT_DIR},
        capture_output=True,
        text=True,
    )


def test_file_that_may_not_grow_leaves_the_old_one_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    done = run_writer(path, "limited")
    assert done.stderr.startswith(f"{path}: cannot be written: {os.strerror(errno.EFBIG)}; needed:")
    assert path.read_text() == "old"
    assert list_names(tmp_path) == ["file"]


def test_full_file_system_leaves_the_old_file_and_its_free_space_is_told(tmp_path):
    options = ["-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path = tmp_path / "file"
        path.write_text("old")
        text = run_writer(path).stderr
        assert text.startswith(f"{path}: cannot be written: {os.strerror(errno.ENOSPC)}; ")
        assert f"free: {2**20 - 4096}" in text
        assert path.read_text() == "old"
        assert list_names(tmp_path) == ["file"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_file_for_its_owner_alone_is_so_from_the_start(tmp_path):
    before = os.umask(0)
    try:
        write_file(tmp_path / "private", b"", mode=0o600)
        write_file(tmp_path / "public", b"")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("private", "public")]
    assert modes == [0o600, 0o666]
