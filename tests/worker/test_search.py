"""The search for a batch size: its algorithm, its process with a stand-in, and real ranks."""

import json
import math
import os
import subprocess
import sys

import pytest
from support import attempts, limited_ranks, sessions
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    FAILED,
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    Record,
)
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.search import BATCH_FILE, find_largest

PATHS = [str(sessions.CHECKOUT / "tests"), str(sessions.CHECKOUT)]
ASKED = {"batch_size_per_device": "max", "batch_size_step": 8}
CASE = vary(attempts.CASE, framework="pytorch", case_id="case", **ASKED)
LADDER = {"batch_size_per_device": "32 -> 24 -> 16"}
DEADLINE_SECONDS = 60
MIB = 2**20


class Room:
    """Room for so many samples, and what was tried in it."""

    def __init__(self, samples):
        self.samples = samples
        self.tried = []

    def fits(self, size):
        self.tried.append(size)
        return size <= self.samples


@pytest.mark.parametrize("granularity", [1, 3, 8, 64])
def test_largest_is_the_last_multiple_that_fits_in_few_trials(granularity):
    for samples in [*range(200), 255, 256, 257, 1000, 4095, 4096, 4097]:
        room = Room(samples)
        assert find_largest(room.fits, granularity) == samples // granularity * granularity
        assert len(room.tried) == len(set(room.tried))
        assert len(room.tried) <= 2 * math.log2(max(samples, 1)) + 2


@pytest.mark.parametrize(("granularity", "found"), [(1, 1000), (3, 999), (64, 960), (2000, 2000)])
def test_search_without_a_limit_ends_at_its_bound(granularity, found):
    room = Room(10**9)
    assert find_largest(room.fits, granularity, largest_tried=1000) == found
    assert max(room.tried) == found
    assert len(room.tried) < 25


@pytest.fixture
def stage(tmp_path):
    """Return a function that makes the directory of one repeat of a case."""

    def stage(repeat=1, **changes):
        attempt_dir = tmp_path / "cases" / "case" / f"r{repeat}" / "a1"
        attempt_dir.mkdir(parents=True)
        write_json(attempt_dir / CASE_FILE, vary(CASE, repeat=repeat, **changes))
        return attempt_dir

    return stage


def start_search(attempt_dir, samples, *faults):
    command = [sys.executable, "-m", "dlperf_slurm.worker", "search", str(attempt_dir), "--"]
    command += limited_ranks.make_command(samples, *faults)
    env = attempts.make_environment(os.pathsep.join(PATHS))
    with (attempt_dir / "out").open("ab") as out, (attempt_dir / "err").open("ab") as err:
        return subprocess.Popen(command, cwd=str(attempt_dir), env=env, stdout=out, stderr=err)


def search(attempt_dir, samples, *faults):
    """Run a search and return the record; asserts that the exit code agrees with it."""
    exit_code = start_search(attempt_dir, samples, *faults).wait()
    record = read_json(attempt_dir / RECORD_FILE, Record)
    assert (exit_code == 0) == (record.status == OK)
    return record


def list_trials(record):
    """Sizes in their order, negative where memory ran out."""
    return [
        trial.batch_size_per_device * (-1 if trial.is_out_of_memory else 1)
        for trial in record.batch_trials
    ]


def test_largest_batch_is_found_and_measured(stage):
    attempt_dir = stage()
    record = search(attempt_dir, 40)
    assert record.status == OK
    assert record.case == vary(read_json(attempt_dir / CASE_FILE, Case), batch_size_per_device=40)
    assert list_trials(record) == [8, 16, 32, -64, -48, 40]
    # trials are a few steps, the measurement is all of them
    for folder, steps in (("trials/b8", (1, 2)), ("measured/b40", (3, 10))):
        case = read_json(attempt_dir / folder / CASE_FILE, Case)
        assert (case.warmup_steps, case.measured_steps) == steps
    # a trial tells the peak of memory where it is known
    peaks = [trial.peak_memory_bytes // MIB for trial in record.batch_trials]
    assert peaks == [8, 16, 32, 0, 0, 40]
    assert all(trial.seconds > 0 for trial in record.batch_trials)
    # the attempt gets what the ranks of the measurement left
    assert (attempt_dir / STEP_SECONDS_FILE).read_text() == "measured/b40"
    assert "\nranks of measured/b40\n" in (attempt_dir / "out").read_text()
    assert (attempt_dir / "err").read_bytes() == b"ranks of measured/b40 complain: \xff\n"
    # the size that was found is whole, and no other file is beside it
    case_dir = attempt_dir.parents[1]
    assert read_json(case_dir / BATCH_FILE, Record) == record
    assert sorted(path.name for path in case_dir.iterdir()) == [BATCH_FILE, "r1"]


@pytest.mark.parametrize(
    ("changes", "samples", "faults", "size", "tried"),
    [
        # a ladder gives the smaller size and notes the larger
        (LADDER, 30, (), 24, [-32, 24]),
        (LADDER, 32, (), 32, [32]),
        # memory that ends in the measurement gives one granularity less, or the next of a ladder
        ({}, 40, ("measured/b40=memory", "measured/b32=memory"), 24, [40, -40, -32]),
        (LADDER, 30, ("measured/b24=memory",), 16, [-32, 24, -24]),
        # what the log says to be of memory is too large
        ({}, 40, ("trials/b16=killed by slurm",), 8, [8, -16]),
        ({}, 40, ("trials/b16=aborted for memory",), 8, [8, -16]),
    ],
)
def test_size_that_is_measured_is_one_that_fits(stage, changes, samples, faults, size, tried):
    attempt_dir = stage(**changes)
    record = search(attempt_dir, samples, *faults)
    assert (record.status, record.case.axes.batch_size) == (OK, size)
    assert list_trials(record)[-len(tried) :] == tried
    assert not (attempt_dir / "failures").exists()


@pytest.mark.parametrize(
    ("changes", "samples", "faults", "tried", "size"),
    [
        ({}, 5, (), [-8], 8),
        (LADDER, 5, (), [-32, -24, -16], 16),
        ({}, 16, ("measured/b16=memory", "measured/b8=memory"), [-16, -8], 8),
    ],
)
def test_no_room_for_the_smallest_gives_status_oom(stage, changes, samples, faults, tried, size):
    attempt_dir = stage(**changes)
    record = search(attempt_dir, samples, *faults)
    assert record.status == OUT_OF_MEMORY
    says = (f"batch size {size}", "smallest", "rank 1 on n1: SomeError")
    assert_problem(record.reason, says=says)
    assert record.case == read_json(attempt_dir / CASE_FILE, Case)
    assert list_trials(record)[-len(tried) :] == tried


TEXT_TOKENS = 5
SHORT_BERT = {"sequence_length": TEXT_TOKENS + 3, "predictions_per_sequence": 1}


@pytest.fixture
def text(tmp_path):
    """Return a function that makes a data set of two documents, for this number of samples."""

    def make(samples):
        numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
        folder = tmp_path / "text" / "train"
        folder.mkdir(parents=True)
        numpy.save(str(folder / "ids.npy"), numpy.full(TEXT_TOKENS * samples, 200, numpy.uint16))
        for name in ("sentence_starts", "document_starts"):
            numpy.save(str(folder / f"{name}.npy"), numpy.arange(2))
        ids = {"classification_id": 101, "separator_id": 102, "mask_id": 103}
        description = {"vocabulary_size": 1000, "first_word_id": 104, **ids}
        (folder.parent / "dataset.json").write_text(json.dumps(description), encoding="utf-8")
        return {"data": "folder", "data_dir": str(folder.parent), "model_parameters": SHORT_BERT}

    return make


@pytest.mark.parametrize(("accumulation", "largest"), [(1, 49), (3, 16)])
def test_search_ends_at_the_largest_batch_that_the_data_set_has(stage, text, accumulation, largest):
    # 99 samples on two ranks
    asked = {**text(99), "gradient_accumulation": accumulation, "batch_size_step": 1}
    record = search(stage(**asked), 10**9)
    assert (record.status, record.case.axes.batch_size) == (OK, largest)
    assert max(list_trials(record)) == largest


@pytest.mark.parametrize("is_there", [True, False])
def test_data_set_that_cannot_be_used_is_left_to_the_ranks(stage, text, tmp_path, is_there):
    missing = {"data": "folder", "data_dir": str(tmp_path / "nowhere")}
    attempt_dir = stage(**(text(3) if is_there else missing))
    record = search(attempt_dir, 40, "trials/b8=crash")
    assert record.reason.startswith("batch size 8, the smallest to try: rank 1 on n1: SomeError")
    assert limited_ranks.list_launches(attempt_dir) == ["trials/b8"]


@pytest.mark.parametrize(
    ("fault", "words", "exit_code"),
    [
        ("crash", "rank 1 on n1: SomeError: told to crash", 1),
        ("aborted", "exit code 134", 134),
        ("killed", "killed (SIGKILL)", 137),
    ],
)
def test_other_failure_ends_the_search_and_is_never_taken_for_too_large(
    stage, fault, words, exit_code
):
    attempt_dir = stage()
    assert start_search(attempt_dir, 40, f"trials/b16={fault}").wait() == exit_code
    record = read_json(attempt_dir / RECORD_FILE, Record)
    assert record.status == FAILED
    assert_problem(record.reason, key="batch size 16", says=(words,))
    assert record.failures
    assert list_trials(record) == [8]
    assert limited_ranks.list_launches(attempt_dir) == ["trials/b8", "trials/b16"]
    assert b"ranks of trials/b16 complain" in (attempt_dir / "err").read_bytes()


@pytest.mark.parametrize(("samples", "status"), [(100, OK), (30, OUT_OF_MEMORY)])
def test_later_repeat_measures_what_the_first_found_and_no_other_size(stage, samples, status):
    first, second = stage(1), stage(2)
    found = search(first, 40)
    record = search(second, samples)
    assert (record.status, record.case.repeat) == (status, 2)
    if status == OK:
        assert record.case.axes.batch_size == 40
        assert record.batch_trials == found.batch_trials
    else:
        assert record.reason.startswith("batch size 40: ")
        assert list_trials(record)[-1] == -40
    assert limited_ranks.list_launches(second) == ["measured/b40"]


def test_search_that_failed_leaves_the_next_repeat_to_search(stage):
    first, second = stage(1), stage(2)
    record = search(first, 40, "measured/b40=crash")
    assert (record.status, record.reason[:15]) == (FAILED, "batch size 40: ")
    assert not (first.parents[1] / BATCH_FILE).exists()
    assert list_trials(search(second, 16)) == [8, 16, -32, -24]


def test_repeat_that_is_second_to_find_a_size_measures_that_of_the_first(stage):
    first, second = stage(1), stage(2)
    process = start_search(second, 100, "measured/b96=wait")
    await_pid(second / "measured/b96/pid")
    found = search(first, 40)
    (second / "measured/b96/go").touch()
    assert process.wait(DEADLINE_SECONDS) == 0
    record = read_json(second / RECORD_FILE, Record)
    assert record.case.axes.batch_size == 40
    assert record.batch_trials == found.batch_trials
    assert (second / STEP_SECONDS_FILE).read_text() == "measured/b40"


def test_found_size_that_was_cut_short_is_named(stage):
    attempt_dir = stage()
    (attempt_dir.parents[1] / BATCH_FILE).write_text('{"schema_version": 1, "ca')
    assert start_search(attempt_dir, 40).wait() == 1
    assert f"{BATCH_FILE}: not JSON" in (attempt_dir / "err").read_text()


def test_search_begins_anew_after_a_requeue(stage):
    attempt_dir = stage()
    stale = attempt_dir / "trials" / "b8"
    stale.mkdir(parents=True)
    (stale / RECORD_FILE).write_text(json.dumps({"status": "ok"}))
    record = search(attempt_dir, 5)
    assert (record.status, list_trials(record)) == (OUT_OF_MEMORY, [-8])


@pytest.mark.parametrize("folder", ["trials/b16", "measured/b40"])
def test_termination_ends_the_ranks_and_is_what_the_record_says(stage, folder):
    attempt_dir = stage()
    process = start_search(attempt_dir, 40, f"{folder}=wait")
    pid = await_pid(attempt_dir / folder / "pid")
    process.terminate()
    assert process.wait(DEADLINE_SECONDS) == 143
    assert not attempts.is_running(pid)
    conclude_attempt(attempt_dir, 143)
    record = read_json(attempt_dir / RECORD_FILE, Record)
    assert record.status == FAILED
    assert record.reason.startswith("terminated (SIGTERM)")


def await_pid(path):
    attempts.await_that(lambda: path.exists() and path.read_text())
    return int(path.read_text())


@pytest.fixture
def attempt(tmp_path, code_dir, mpi):
    """Two ranks that spin under real MPI, with a limit to their memory."""
    folder = tmp_path / "cases" / "spin" / "r1" / "a1"
    return attempts.Attempt(folder, code_dir, memory_limit_bytes=24 * MIB, **ASKED)


@pytest.mark.integration
def test_largest_batch_of_two_ranks_is_measured_by_both(attempt):
    record = attempt.search(sample_bytes=MIB).read_record()
    assert (attempt.exit_code, record.status) == (0, OK)
    assert [rank.peak_memory_bytes for rank in record.ranks] == [24 * MIB, 24 * MIB]
    assert list_trials(record) == [8, 16, -32, 24]
