"""Where ranks stood -> the words of a record: who comes first, and who is named together."""

import dataclasses
import json
import re

import numpy
import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import FAILED, PARTIAL_STEP_SECONDS_FILE, RECORD_FILE, Record
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.stall_evidence import SILENT, STACKS, STALLS_DIR, STATUS, get_rank_path
from dlperf_slurm.worker.stalled_record import describe_stall, write_partial_steps
from dlperf_slurm.worker.watchdog import CALLED, STALLED, TIME_LIMIT, RankStatus

RANKS = 4
CASE = vary(attempts.CASE, topology="2n2g")
HOSTS = ("n1", "n1", "n2", "n2")
STANDING = RankStatus(
    rank=0,
    host="n1",
    cause=STALLED,
    phase="measured",
    phases=2,
    step=3,
    steps=10,
    quiet_seconds=61.0,
    stopped_seconds=0.0,
    at="wait (a.py:7)",
    hosts=HOSTS,
    step_seconds=(0.5, 0.25, 0.5),
)
AT_START = {"phase": "start", "phases": 0, "steps": 0}


@pytest.fixture
def attempt_dir(tmp_path):
    (tmp_path / STALLS_DIR).mkdir()
    write_json(tmp_path / CASE_FILE, CASE)
    return tmp_path


def say(attempt_dir, rank, **changes):
    standing = dataclasses.replace(STANDING, rank=rank, host=HOSTS[rank], **changes)
    text = json.dumps(dataclasses.asdict(standing))
    get_rank_path(attempt_dir, rank, STATUS).write_text(text, encoding="utf-8")
    get_rank_path(attempt_dir, rank, STACKS).write_text(f"stacks of {rank}", encoding="utf-8")


def describe(attempt_dir):
    return describe_stall(attempt_dir, CASE)[0].message


def test_no_rank_that_stood_still_is_no_stall_but_all_that_hold_their_interpreter_are(attempt_dir):
    get_rank_path(attempt_dir, 0, STACKS).touch()
    assert describe_stall(attempt_dir, CASE) == ()
    assert write_partial_steps(attempt_dir, CASE) == 0
    for rank in range(RANKS):
        get_rank_path(attempt_dir, rank, STACKS).write_text("stacks", encoding="utf-8")
    assert describe(attempt_dir).startswith("stalled: ranks 0-3: in native code")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # at the same line they are named together
        (
            {},
            "stalled: .* 61 s; no rank is behind, all wait in the same call: ranks 0-3: step 4 of "
            "10 (measured), at wait (a.py:7)$",
        ),
        # alone at its line
        (
            {2: {"at": "yield (z.py:1)"}},
            "; no rank is behind, but ranks are in different calls: rank 2 on n2: step 4 of 10 "
            "(measured), at yield (z.py:1); ranks 0-1, 3: ",
        ),
        # least far
        (
            {1: {"step": 2}, 3: {"step": 2}},
            "; ranks 1, 3 are behind the other ranks: ranks 1, 3: step 3 of 10",
        ),
        # an earlier phase before fewer steps
        (
            {3: AT_START},
            "; rank 3 is behind the other ranks: rank 3 on n2: start, at wait (a.py:7); ranks 0-2",
        ),
        # stopped, though it came as far
        ({1: {"stopped_seconds": 14.0}}, ": rank 1 on n1: no response for 14 s, then step 4 of 10"),
        # told from a stall
        (
            {
                rank: {"cause": TIME_LIMIT if rank == 1 else CALLED, "quiet_seconds": 0.1}
                for rank in range(RANKS)
            },
            "^time limit: .*: ranks 0-3",
        ),
    ],
)
def test_rank_that_is_likeliest_to_blame_comes_first(attempt_dir, changes, words):
    for rank in range(RANKS):
        say(attempt_dir, rank, **changes.get(rank, {}))
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), describe(attempt_dir))


@pytest.mark.parametrize(
    ("stacks", "is_silent", "words"),
    [
        ("", False, "does not respond"),
        # its timer alone wrote
        ("stacks of 3", False, "in native code"),
        # and after the others had waited: it was stopped
        ("stacks of 3", True, "does not respond"),
    ],
)
def test_rank_that_says_nothing_comes_first_with_its_host(attempt_dir, stacks, is_silent, words):
    for rank in (0, 1, 2):
        say(attempt_dir, rank)
    if is_silent:
        get_rank_path(attempt_dir, 3, SILENT).touch()
    get_rank_path(attempt_dir, 3, STACKS).write_text(stacks, encoding="utf-8")
    assert f": rank 3 on n2: {words}" in describe(attempt_dir)
    failures = {failure.rank: failure for failure in describe_stall(attempt_dir, CASE)}
    assert failures[3].message.startswith(words)
    assert failures[3].traceback == stacks


def test_steps_that_all_ranks_ended_are_counted_and_all_are_kept(attempt_dir):
    say(attempt_dir, 0)
    say(attempt_dir, 2, step_seconds=(0.5,))
    conclude_attempt(attempt_dir, 1)
    record = read_json(attempt_dir / RECORD_FILE, Record)
    assert (record.status, record.partial_steps) == (FAILED, 1)
    seconds = numpy.load(str(attempt_dir / PARTIAL_STEP_SECONDS_FILE))
    numpy.testing.assert_array_equal(seconds[0], [0.5, 0.25, 0.5])
    numpy.testing.assert_array_equal(seconds[2], [0.5, numpy.nan, numpy.nan])
    assert numpy.isnan(seconds[[1, 3]]).all()


@pytest.mark.parametrize("text", ["", "[]", '{"rank": 0}', '{"rank": "x"}'])
def test_standing_that_cannot_be_read_is_no_answer(attempt_dir, text):
    for rank in (1, 2, 3):
        say(attempt_dir, rank)
    get_rank_path(attempt_dir, 0, STATUS).write_text(text, encoding="utf-8")
    assert ": rank 0 on n1: does not respond" in describe(attempt_dir)
