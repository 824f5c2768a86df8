import errno
import os
import subprocess
import sys

import pytest
from builders import IMPORT_DIR

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import remove_file, write_file, write_once

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


def test_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"a long text", b"short", b""):
        write_file(path, content)
        assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_what_a_link_leads_to_stays_as_it_is(tmp_path):
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / "report.csv").symlink_to(".bashrc")
    write_file(tmp_path / "report.csv", b"theirs")
    assert (tmp_path / ".bashrc").read_text() == "mine"
    assert (tmp_path / "report.csv").read_bytes() == b"theirs"
    assert not (tmp_path / "report.csv").is_symlink()


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "papers").mkdir()
    (tmp_path / "run/report").symlink_to(tmp_path / "papers")
    with pytest.raises(FileProblem, match=r"report .*link"):
        write_file(tmp_path / "run/report/report.csv", b"", root=tmp_path / "run")
    with pytest.raises(FileProblem, match=r"report .*link"):
        make_folder(tmp_path / "run/report/plots", root=tmp_path / "run")
    assert list((tmp_path / "papers").iterdir()) == []


def test_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    def refuse(*path, **folder):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(FileProblem, match=r"run/report: .*Read-only"):
        make_folder(tmp_path / "run/report", root=tmp_path)


def test_folders_are_made_and_kept(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a/b", root=tmp_path)
        write_file(tmp_path / "a/b/c", b"c", root=tmp_path)
    assert (tmp_path / "a/b/c").read_bytes() == b"c"


def test_folder_in_the_place_of_a_file_is_named(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(FileProblem, match=f"{tmp_path}/file: cannot be written"):
        write_file(tmp_path / "file", b"")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


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
    assert done.stderr.startswith(f"{path}: cannot be written: {os.strerror(errno.EFBIG)}; it has")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_full_file_system_leaves_the_old_file_whole_and_is_told_with_its_room(tmp_path):
    options = ["-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path = tmp_path / "file"
        path.write_text("old")
        done = run_writer(path)
        assert done.stderr.splitlines() == [
            f"{path}: cannot be written: {os.strerror(errno.ENOSPC)}; it has 2097152 bytes, "
            f"{2**20 - 4096} are free there"
        ]
        assert path.read_text() == "old"
        assert [file.name for file in tmp_path.iterdir()] == ["file"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_only_the_first_of_two_is_written(tmp_path):
    assert write_once(tmp_path / "claim", b"first", tmp_path)
    assert not write_once(tmp_path / "claim", b"second", tmp_path)
    assert (tmp_path / "claim").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["claim"]


def test_link_to_nothing_is_something_that_is_there(tmp_path):
    (tmp_path / "claim").symlink_to(tmp_path / "elsewhere")
    assert not write_once(tmp_path / "claim", b"first")
    assert not (tmp_path / "elsewhere").exists()


def test_file_for_its_owner_alone_is_so_from_the_start(tmp_path):
    before = os.umask(0)
    try:
        write_file(tmp_path / "private", b"", mode=0o600)
        write_file(tmp_path / "public", b"")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("private", "public")]
    assert modes == [0o600, 0o666]


def test_link_is_removed_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to("precious")
    for _ in range(2):
        remove_file(tmp_path / "link", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_nothing_is_removed_through_a_link_to_a_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/plot.svg").touch()
    (tmp_path / "run/plots").symlink_to(tmp_path / "papers")
    with pytest.raises(FileProblem, match=r"plots .*link"):
        remove_file(tmp_path / "run/plots/plot.svg", tmp_path / "run")
    assert (tmp_path / "papers/plot.svg").exists()
