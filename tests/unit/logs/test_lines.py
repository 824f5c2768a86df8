"""Bytes of a log -> lines with their ranks."""

import gzip

import pytest

from dlperf_slurm.logs.lines import LONGEST_LINE_BYTES, read_lines, split_lines


def split(text):
    return [(line.rank, line.text) for line in split_lines([text.encode()])]


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[1,3]<stdout>:loss 1\n", 3),
        ("Wed Jun  1 10:55:30 2022[1,0]<stdout>:loss 1\n", 0),
        ("[prterun-n1-4711@1,7]<stdout>: loss 1\n", 7),
        ("[5]<stdout>:loss 1\n", 5),
        ("0: loss 1\n", 0),
        ("[rank6]: loss 1\n", 6),
        ("[default1]:loss 1\n", 1),
        ("2020-06-01T07:26:38.052109Z loss 1\n", -1),
        ("2020-06-01T07:26:38+00:00 [1,3]<stdout>:loss 1\n", 3),
        ("\x1b[32mloss 1\x1b[0m\n", -1),
        ("lo\x00ss 1\n", -1),
    ],
)
def test_label_tells_the_rank_and_is_taken_off(text, rank):
    assert split(text) == [(rank, "loss 1")]


def test_pieces_of_one_stream_are_joined():
    assert split("[1,0]<stderr>:[09:00:37] a.cc[1,0]<stderr>::196: Using\n") == [
        (0, "[09:00:37] a.cc:196: Using")
    ]


def test_other_ranks_and_streams_within_a_line_are_lines_of_their_own():
    text = "[1,0]<stderr>:50%|##[1,0]<stdout>:loss 1[1,1]<stdout>:loss 2\n"
    assert split(text) == [(1, "loss 2"), (0, "50%|##"), (0, "loss 1")]


def test_progress_bar_is_apart_from_what_follows_it():
    assert split("10%\r20%\rloss 1\n") == [(-1, "10%"), (-1, "20%"), (-1, "loss 1")]


@pytest.mark.parametrize("label", ["[1," + "9" * 5000 + "]<stdout>:", "9" * 5000 + ": "])
def test_rank_that_is_no_rank_is_text(label):
    assert [line.rank for line in split_lines([(label + "loss 1\n").encode()])] == [-1]


def test_last_line_without_its_end_is_marked(home):
    (home / "log").write_bytes(b"one\ntwo")
    assert [line.is_last_unended for line in read_lines(home / "log")] == [False, True]


def test_gzip_is_known_by_its_first_bytes(home):
    (home / "log").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert [line.text for line in read_lines(home / "log")] == ["one", "two"]


def test_endless_line_comes_in_pieces(home):
    (home / "log").write_bytes(b"x" * (LONGEST_LINE_BYTES + 3) + b"\nend\n")
    lines = list(read_lines(home / "log"))
    assert [len(line.text) for line in lines] == [LONGEST_LINE_BYTES, 3, 3]
    assert not any(line.is_last_unended for line in lines)
