"""What is added to files that stay: to regular ones alone, never through a link, whole."""

import os

import pytest

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.appending import open_to_append, write_all


def append(path, content, root=None):
    with open_to_append(path, root) as descriptor:
        write_all(descriptor, content)


def test_file_is_made_and_grows(tmp_path):
    for content in (b"one\n", b"two\n"):
        append(tmp_path / "log", content, tmp_path)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_link_of_that_name_is_refused_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / "log").symlink_to(".bashrc")
    with pytest.raises(FileProblem, match=r"log: .*link"):
        append(tmp_path / "log", b"theirs")
    assert (tmp_path / ".bashrc").read_text() == "mine"


def test_link_to_a_folder_below_the_root_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/scripts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileProblem, match=r"scripts .*link"):
        append(tmp_path / "run/scripts/log", b"", tmp_path / "run")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "log")
    with pytest.raises(FileProblem, match=r"log: .*regular file"):
        append(tmp_path / "log", b"")


def test_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileProblem, match=r"missing/log: .*No such file"):
        append(tmp_path / "missing/log", b"")
