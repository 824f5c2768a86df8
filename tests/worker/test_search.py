"""The search for a batch size: its algorithm, and its process with a stand-in for the ranks."""

import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support import attempts, limited_ranks, sessions, stand_in
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
from dlperf_slurm.worker.datasets.batches import FileOrder
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.search import (
    BATCH_FILE,
    find_largest,
    find_largest_tried,
    list_fitting,
    publish_found,
)

PATHS = [str(Path(__file__).resolve().parents[folder]) for folder in (1, 2)]
CASE = vary(
    attempts.CASE,
    framework="pytorch",
    case_id="case",
    batch_size_per_device="max",
    batch_size_step=8,
)
LADDER = {"batch_size_per_device": "32 -> 24 -> 16"}
DEADLINE_SECONDS = 30


class Room:
    """Room for so many samples, and what was tried in it."""

    def __init__(self, samples):
        self.samples = samples
        self.tried = []

    def fits(self, size):
        self.tried.append(size)
        return size <= self.samples


@pytest.mark.parametrize("granularity", [1, 3, 8, 64])
def test_largest_is_the_last_multiple_that_fits(granularity):
    for samples in [*range(200), 255, 256, 257, 1000, 4095, 4096, 4097]:
        found = find_largest(Room(samples).fits, granularity)
        assert found == samples // granularity * granularity


def test_search_begins_with_the_smallest_and_doubles():
    room = Room(100)
    find_largest(room.fits, 8)
    assert room.tried == [8, 16, 32, 64, 128, 96, 112, 104]


def test_smallest_that_does_not_fit_is_the_only_trial():
    room = Room(7)
    assert (find_largest(room.fits, 8), room.tried) == (0, [8])


def test_number_of_trials_is_logarithmic_and_none_is_repeated():
    for samples in range(1, 5000, 7):
        room = Room(samples)
        find_largest(room.fits, 1)
        assert len(room.tried) == len(set(room.tried))
        assert len(room.tried) <= 2 * math.log2(samples) + 2


@pytest.mark.parametrize(("granularity", "found"), [(1, 1000), (3, 999), (64, 960), (2000, 2000)])
def test_search_without_a_limit_ends_at_its_bound(granularity, found):
    room = Room(10**9)
    assert find_largest(room.fits, granularity, largest_tried=1000) == found
    assert max(room.tried) == found
    assert len(room.tried) < 25


@pytest.mark.parametrize(
    ("samples", "rest"),
    [(40, [32, 24, 16]), (32, [32, 24, 16]), (31, [24, 16]), (16, [16]), (15, [])],
)
def test_ladder_is_gone_down_until_a_size_fits(samples, rest):
    room = Room(samples)
    assert list_fitting(room.fits, [32, 24, 16]) == rest
    assert room.tried == [32, 24, 16][: 4 - max(len(rest), 1)]


@pytest.fixture
def stage(tmp_path):
    """Makes the directory of one repeat of a case."""

    def stage(repeat=1, **changes):
        attempt_dir = tmp_path / "cases" / "case" / f"r{repeat}" / "a1"
        attempt_dir.mkdir(parents=True)
        write_json(attempt_dir / CASE_FILE, vary(CASE, repeat=repeat, **changes))
        return attempt_dir

    return stage


def start_search(attempt_dir, samples, *faults):
    command = [sys.executable, "-m", "dlperf_slurm.worker", "search", str(attempt_dir), "--"]
    env = attempts.make_environment(os.pathsep.join(PATHS))
    with (attempt_dir / "out").open("ab") as out, (attempt_dir / "err").open("ab") as err:
        return subprocess.Popen(
            [*command, *limited_ranks.make_command(samples, *faults)],
            cwd=str(attempt_dir),
            env=env,
            stdout=out,
            stderr=err,
        )


def search(attempt_dir, samples, *faults):
    """The record; the exit code of the process agrees with it."""
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
    asked = read_json(attempt_dir / CASE_FILE, Case)
    assert record.case == vary(asked, batch_size_per_device=40)
    assert list_trials(record) == [8, 16, 32, -64, -48, 40]


def test_trials_are_a_few_steps_and_the_measurement_is_all_of_them(stage):
    attempt_dir = stage()
    search(attempt_dir, 8)
    trial = read_json(attempt_dir / "trials/b8/case.json", Case)
    assert (trial.warmup_steps, trial.measured_steps) == (1, 2)
    measured = read_json(attempt_dir / "measured/b8/case.json", Case)
    assert (measured.warmup_steps, measured.measured_steps) == (3, 10)


def test_trial_tells_the_peak_of_memory_where_it_is_known(stage):
    record = search(stage(), 8)
    peaks = [trial.peak_memory_bytes for trial in record.batch_trials]
    assert peaks == [8 * 2**20, 0]
    assert all(trial.seconds > 0 for trial in record.batch_trials)


def test_attempt_gets_what_the_ranks_of_the_measurement_left(stage):
    attempt_dir = stage()
    search(attempt_dir, 8)
    assert (attempt_dir / STEP_SECONDS_FILE).read_text() == "measured/b8"
    assert "\nranks of measured/b8\n" in (attempt_dir / "out").read_text()
    assert (attempt_dir / "err").read_bytes() == b"ranks of measured/b8 complain: \xff\n"


def test_ladder_gives_the_smaller_size_and_notes_the_larger(stage):
    record = search(stage(**LADDER), 30)
    assert (record.status, record.case.axes.batch_size) == (OK, 24)
    assert list_trials(record) == [-32, 24]


def test_ladder_that_fits_at_once_has_no_size_without_memory(stage):
    record = search(stage(**LADDER), 32)
    assert (record.status, record.case.axes.batch_size) == (OK, 32)
    assert list_trials(record) == [32]


@pytest.mark.parametrize(
    ("changes", "tried", "size"), [({}, [-8], 8), (LADDER, [-32, -24, -16], 16)]
)
def test_no_room_for_the_smallest_gives_status_oom(stage, changes, tried, size):
    attempt_dir = stage(**changes)
    record = search(attempt_dir, 5)
    assert record.status == OUT_OF_MEMORY
    says = (f"batch size {size}", "rank 1 on n1: SomeError")
    assert_problem(record.reason, says=says)
    assert record.case == read_json(attempt_dir / CASE_FILE, Case)
    assert list_trials(record) == tried


WORDS = 5
SHORT_BERT = {"sequence_length": WORDS + 3, "predictions_per_sequence": 1}


@pytest.fixture
def text(tmp_path):
    """Changes for a case whose data set, of two documents, has so many samples."""

    def make(samples):
        numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
        folder = tmp_path / "text" / "train"
        folder.mkdir(parents=True)
        numpy.save(str(folder / "ids.npy"), numpy.full(WORDS * samples, 200, numpy.uint16))
        for name in ("sentence_starts", "document_starts"):
            numpy.save(str(folder / f"{name}.npy"), numpy.arange(2))
        description = {
            "vocabulary_size": 1000,
            "first_word_id": 104,
            "classification_id": 101,
            "separator_id": 102,
            "mask_id": 103,
        }
        (folder.parent / "dataset.json").write_text(json.dumps(description), encoding="utf-8")
        return {"data": "folder", "data_dir": str(folder.parent), "model_parameters": SHORT_BERT}

    return make


@pytest.mark.parametrize(("accumulation", "largest"), [(1, 48), (2, 24)])
def test_search_ends_at_the_largest_batch_that_the_data_set_has(stage, text, accumulation, largest):
    # 99 samples on two ranks
    asked = {**text(99), "gradient_accumulation": accumulation}
    record = search(stage(**asked), 10**9)
    assert (record.status, record.case.axes.batch_size) == (OK, largest)
    assert max(list_trials(record)) == largest


@pytest.mark.parametrize("accumulation", [1, 2, 3])
def test_bound_of_a_search_is_what_an_order_of_the_data_set_can_give(text, accumulation):
    case = vary(CASE, **text(99), gradient_accumulation=accumulation)
    size = find_largest_tried(case)
    place = replace(sessions.ALONE, world_size=case.world_size)
    assert len(FileOrder(vary(case, batch_size_per_device=size), place, 99, batches=1)) == 1
    with pytest.raises(DataError):
        FileOrder(vary(case, batch_size_per_device=size + 1), place, 99)


def test_data_set_that_is_too_small_for_the_smallest_is_left_to_the_ranks(stage, text):
    attempt_dir = stage(**text(3))
    assert search(attempt_dir, 40, "trials/b8=crash").reason.startswith(
        "batch size 8, the smallest"
    )
    assert limited_ranks.list_launches(attempt_dir) == ["trials/b8"]


def test_data_set_that_cannot_be_opened_is_left_to_the_ranks(stage, tmp_path):
    attempt_dir = stage(data="folder", data_dir=str(tmp_path / "nowhere"))
    record = search(attempt_dir, 40, "trials/b8=crash")
    assert record.reason == "batch size 8, the smallest: rank 1 on n1: SomeError: told to crash"


@pytest.mark.parametrize("fault", ["killed by slurm", "aborted for memory"])
def test_end_that_the_log_says_to_be_of_memory_is_too_large(stage, fault):
    record = search(stage(), 40, f"trials/b16={fault}")
    assert (record.status, record.case.axes.batch_size) == (OK, 8)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("crash", "rank 1 on n1: SomeError: told to crash"),
        ("aborted", "exit code 134"),
        ("killed", "killed (SIGKILL)"),
    ],
)
def test_other_failure_ends_the_search_and_is_never_taken_for_too_large(stage, fault, words):
    attempt_dir = stage()
    record = search(attempt_dir, 40, f"trials/b16={fault}")
    assert record.status == FAILED
    assert_problem(record.reason, key="batch size 16", says=(words,))
    assert record.failures
    assert list_trials(record) == [8]
    assert limited_ranks.list_launches(attempt_dir) == ["trials/b8", "trials/b16"]
    assert b"ranks of trials/b16 complain" in (attempt_dir / "err").read_bytes()


def test_search_ends_with_the_exit_code_of_the_launch_that_failed(stage):
    assert start_search(stage(), 40, "trials/b16=killed").wait() == 137


def test_failure_in_the_measurement_fails_the_attempt(stage):
    record = search(stage(), 40, "measured/b40=crash")
    assert (record.status, record.reason[:15]) == (FAILED, "batch size 40: ")


def test_memory_that_ends_in_the_measurement_gives_one_granularity_less(stage):
    attempt_dir = stage()
    record = search(attempt_dir, 40, "measured/b40=memory", "measured/b32=memory")
    assert (record.status, record.case.axes.batch_size) == (OK, 24)
    assert list_trials(record)[-2:] == [-40, -32]
    assert not (attempt_dir / "failures").exists()


def test_memory_that_ends_in_the_measurement_gives_the_next_size_of_a_ladder(stage):
    record = search(stage(**LADDER), 30, "measured/b24=memory")
    assert (record.status, record.case.axes.batch_size) == (OK, 16)
    assert list_trials(record) == [-32, 24, -24]


def test_memory_that_ends_in_every_measurement_gives_status_oom(stage):
    record = search(stage(), 16, "measured/b16=memory", "measured/b8=memory")
    assert record.status == OUT_OF_MEMORY
    assert record.reason.startswith("batch size 8, the smallest: ")


def test_later_repeat_measures_what_the_first_found(stage):
    first, second = stage(1), stage(2)
    found = search(first, 40)
    record = search(second, 100)
    assert (record.status, record.case.repeat) == (OK, 2)
    assert record.case.axes.batch_size == 40
    assert record.batch_trials == found.batch_trials
    assert limited_ranks.list_launches(second) == ["measured/b40"]


def test_later_repeat_without_memory_does_not_go_to_another_size(stage):
    search(stage(1), 40)
    record = search(stage(2), 30)
    assert record.status == OUT_OF_MEMORY
    assert record.reason.startswith("batch size 40: ")
    assert list_trials(record)[-1] == -40


def test_search_that_failed_leaves_the_next_repeat_to_search(stage):
    first, second = stage(1), stage(2)
    search(first, 40, "measured/b40=crash")
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


def test_of_many_that_find_a_size_at_once_one_decides(tmp_path):
    records = [
        stand_in.make_record(vary(CASE, repeat=repeat, batch_size_per_device=8 * repeat))
        for repeat in range(1, 33)
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda record: publish_found(record, tmp_path), records))
    assert all(one == found[0] for one in found)
    assert found[0] in records
    assert [path.name for path in tmp_path.iterdir()] == [BATCH_FILE]


def test_found_size_is_whole_and_leaves_no_other_file(stage):
    attempt_dir = stage()
    record = search(attempt_dir, 40)
    case_dir = attempt_dir.parents[1]
    assert read_json(case_dir / BATCH_FILE, Record) == record
    assert sorted(path.name for path in case_dir.iterdir()) == [BATCH_FILE, "r1"]


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
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)
    return int(path.read_text())
