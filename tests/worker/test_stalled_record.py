"""Where ranks stood -> the words of a record: who comes first, and who is named together."""

import dataclasses
import json
import re

import numpy
import pytest
from support import attempts
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import FAILED, PARTIAL_STEP_SECONDS_FILE, RECORD_FILE, Record
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.stalled_record import describe_stall, keep_steps
from dlperf_slurm.worker.watch import (
    STALLED,
    STALLS_DIR,
    TIME_LIMIT,
    Standing,
    find_silence,
    find_stacks,
    find_standing,
)

RANKS = 4
CASE = vary(attempts.CASE, topology="2n2g")
HOSTS = ("n1", "n1", "n2", "n2")
STANDING = Standing(
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


@pytest.fixture
def attempt_dir(tmp_path):
    (tmp_path / STALLS_DIR).mkdir()
    write_json(tmp_path / CASE_FILE, CASE)
    return tmp_path


def say(attempt_dir, rank, **changes):
    standing = dataclasses.replace(STANDING, rank=rank, host=HOSTS[rank], **changes)
    text = json.dumps(dataclasses.asdict(standing))
    find_standing(attempt_dir, rank).write_text(text, encoding="utf-8")
    find_stacks(attempt_dir, rank).write_text(f"stacks of {rank}", encoding="utf-8")


def describe(attempt_dir):
    return describe_stall(attempt_dir, CASE)[0].message


def test_no_rank_that_stood_still_is_no_stall(attempt_dir):
    find_stacks(attempt_dir, 0).touch()
    assert describe_stall(attempt_dir, CASE) == ()
    assert keep_steps(attempt_dir, CASE) == 0


def test_ranks_at_the_same_line_are_named_together(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank)
    says = ("61 s", "ranks 0-3: step 4 of 10 (measured), at wait (a.py:7)")
    assert_problem(describe(attempt_dir), key="stalled", says=says)


def test_rank_that_is_alone_at_its_line_comes_first(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank, at="read (b.py:1)" if rank == 2 else "wait (a.py:7)")
    assert ": rank 2 on n2: step 4 of 10 (measured), at read (b.py:1); ranks 0-1, 3: " in describe(
        attempt_dir
    )


def test_rank_that_came_least_far_comes_first(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank, step=2 if rank in (1, 3) else 3)
    assert ": ranks 1, 3: step 3 of 10" in describe(attempt_dir)


def test_rank_of_an_earlier_phase_comes_before_one_with_fewer_steps(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank, **({"phase": "start", "phases": 0, "steps": 0} if rank == 3 else {}))
    assert ": rank 3 on n2: start, at wait (a.py:7); ranks 0-2: " in describe(attempt_dir)


def test_rank_that_says_nothing_comes_first_with_its_host(attempt_dir):
    for rank in (0, 1, 2):
        say(attempt_dir, rank)
    find_stacks(attempt_dir, 3).touch()
    assert ": rank 3 on n2: no answer" in describe(attempt_dir)


def test_rank_that_was_stopped_comes_first_though_it_came_as_far(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank, stopped_seconds=14.0 if rank == 1 else 0.0)
    assert ": rank 1 on n1: no answer for 14 s, then step 4 of 10" in describe(attempt_dir)


def test_rank_whose_timer_alone_wrote_is_in_native_code(attempt_dir):
    for rank in (0, 1, 2):
        say(attempt_dir, rank)
    find_stacks(attempt_dir, 3).write_text("stacks of 3", encoding="utf-8")
    failures = {failure.rank: failure for failure in describe_stall(attempt_dir, CASE)}
    assert "native code" in failures[3].message
    assert failures[3].traceback == "stacks of 3"


def test_rank_whose_timer_wrote_after_the_others_had_waited_was_stopped(attempt_dir):
    for rank in (0, 1, 2):
        say(attempt_dir, rank)
    find_silence(attempt_dir, 3).touch()
    find_stacks(attempt_dir, 3).write_text("stacks of 3", encoding="utf-8")
    failures = {failure.rank: failure for failure in describe_stall(attempt_dir, CASE)}
    assert failures[3].message.startswith("no answer")
    assert failures[3].traceback == "stacks of 3"


def test_ranks_that_all_hold_their_interpreter_are_a_stall(attempt_dir):
    for rank in range(RANKS):
        find_stacks(attempt_dir, rank).write_text("stacks", encoding="utf-8")
    assert describe(attempt_dir).startswith("stalled: ranks 0-3: in native code")


def test_time_limit_is_told_from_a_stall(attempt_dir):
    for rank in range(RANKS):
        say(attempt_dir, rank, cause=TIME_LIMIT if rank == 1 else "called", quiet_seconds=0.1)
    assert re.match("time limit: .*: ranks 0-3", describe(attempt_dir))


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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank": 0}', '{"rank": "x"}'])
def test_standing_that_cannot_be_read_is_no_answer(attempt_dir, text):
    for rank in (1, 2, 3):
        say(attempt_dir, rank)
    find_standing(attempt_dir, 0).write_text(text, encoding="utf-8")
    assert ": rank 0 on n1: no answer" in describe(attempt_dir)
