import json
import os
import signal

import pytest

from dlperf_slurm.files import FileProblem, reading


@pytest.fixture(autouse=True)
def ends_soon():
    """End a test whose reader blocks, by SIGALRM."""
    signal.alarm(10)
    yield
    signal.alarm(0)


def link(path, target):
    path.symlink_to(target)
    return path


def make_pipe(path):
    os.mkfifo(path)
    return path


def make_sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    "make",
    [
        make_pipe,
        lambda path: link(path, "/dev/zero"),
        lambda path: link(path, "/"),
    ],
)
def test_what_is_no_regular_file_is_not_read(tmp_path, make):
    path = make(tmp_path / "file")
    with pytest.raises(OSError, match=str(path)):
        reading.read_bytes(path)


def test_file_above_its_limit_is_not_read(tmp_path):
    path = make_sparse(tmp_path / "file", 10**12)
    with pytest.raises(FileProblem, match=f"{path}: has more than 1000 bytes"):
        reading.read_bytes(path, 1000)
    make_sparse(path, 1000)
    assert reading.read_bytes(path, 1000) == bytes(1000)


@pytest.fixture
def run(tmp_path):
    """Make a folder with a link to a file and one to a folder outside of it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/record.json").write_text("{}")
    link(tmp_path / "run/matrix.toml", "../elsewhere/record.json")
    link(tmp_path / "run/cases", tmp_path / "elsewhere")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("matrix.toml", "run/matrix.toml: is a link"),
        ("cases/record.json", "cases .*link"),
        ("../elsewhere/record.json", "is outside"),
    ],
)
def test_path_that_leads_out_of_the_root_is_refused(run, path, problem):
    with pytest.raises(FileProblem, match=problem):
        reading.read_json(run / path, root=run)
    assert reading.read_json(run / path) == {}


def test_link_to_the_root_itself_is_followed(run, tmp_path):
    root = link(tmp_path / "link", "elsewhere")
    assert reading.read_json(root / "record.json", root=root) == {}


def test_name_of_no_file_is_refused_and_an_absent_file_is_told_from_it(tmp_path):
    for name in ("a\0b", "\ud800"):
        for root in (None, tmp_path):
            with pytest.raises(FileProblem, match="valid file name"):
                reading.read_text(tmp_path / name, root=root)
    for path in (tmp_path / "file", tmp_path / "folder/file"):
        with pytest.raises(FileNotFoundError):
            reading.read_bytes(path, root=tmp_path)


def test_text_that_is_not_utf_8_is_named_with_its_line(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\nthr\xe9e\n")
    with pytest.raises(FileProblem, match=f"{path}:3: not UTF-8: byte offset 11"):
        reading.read_text(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 10**6, "nested too deeply"),
        ("9" * 4301, "64 bits"),
        (str(2**63), "64 bits"),
        (str(-(2**63) - 1), "64 bits"),
        ('{"a": 1', "line 1 column 8"),
        ("", "line 1 column 1"),
    ],
)
def test_json_that_cannot_be_used_is_named(text, problem):
    with pytest.raises(FileProblem, match=f"^record.json: not JSON.*{problem}") as caught:
        reading.parse_json(text, "record.json")
    assert len(str(caught.value)) < 200


def test_json_is_read_and_half_a_surrogate_pair_can_be_written():
    value = [2**63 - 1, -(2**63), 1.5, "ü", "\U0001f600", [{"a": None}]]
    assert reading.parse_json(json.dumps(value), "here") == value
    text = '{"a\\ud800": ["\\udCe9b", "\\\\ud800", "\\ud83d\\ude00"]}'
    assert reading.parse_json(text, "here") == {"a?": ["?b", "\\ud800", "\U0001f600"]}
