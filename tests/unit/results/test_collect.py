"""Run directory -> outcomes: sound records are used, all others are named with the reason."""

import dataclasses
import json
import math
import re
import shutil

import numpy
import pytest
from builders import (
    find_start_dir,
    find_task,
    make_failed_record,
    make_rank,
    make_ranks,
    make_record,
    make_site,
    read_case,
    replace_case,
    write_matrix,
    write_record,
)
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.jobs.stage import stage_groups
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.results.collect import Outcome, collect_outcomes

INVALID = "invalid record: cases/pytorch-resnet50-1n2g-bs8-fp32/r1/a1/s0/record.json: "


def collect_one(run, topology="1n2g", repeat=1) -> Outcome:
    """The outcome of one repeat of the case of a topology."""
    # opened again: a test may have changed what was planned
    cases = collect_outcomes(open_run(run.path))
    (case,) = (c for c in cases if c.case.axes.topology == topology)
    return case.outcomes[repeat - 1]


def write_sound(run, topology="1n2g", repeat=1, **changes):
    """A sound record, less the changes; its path."""
    task = find_task(run, topology, repeat)
    return write_record(run, task, make_record(read_case(run, task), **changes))


def edit_json(path, **changes):
    data = json.loads(path.read_text(encoding="utf-8"))
    data.update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")


def journal(run, event: str, group_id="1n2g", array_task_id=-1, state="", detail=""):
    time = "2024-05-01T12:00:00Z"
    append_event(run.path, Event(event, time, group_id, "42", array_task_id, state, detail))


def test_sound_record_is_used(staged_run):
    write_sound(staged_run)
    outcome = collect_one(staged_run)
    assert (outcome.record.samples_per_s, outcome.problem) == (80.0, "")


def test_window_of_a_case_is_that_of_the_slowest_rank(staged_run):
    write_sound(
        staged_run, ranks=(make_rank(0, window_seconds=2.0), make_rank(1, window_seconds=4.0))
    )
    # 2 ranks x 8 samples x 10 steps in 4 s
    assert collect_one(staged_run).record.samples_per_s == 40.0


def test_each_record_belongs_to_its_own_repeat(staged_run):
    write_sound(staged_run, repeat=2)
    assert [collect_one(staged_run, repeat=r).record is None for r in (1, 2)] == [True, False]


def plan_inference(run, task):
    """The case of an array task, which now infers, as the manifest says too."""
    case = vary(read_case(run, task), mode="infer")
    replace_case(run, task, case)
    planned = (
        vary(planned, mode="infer") if planned.case_id == task.case_id else planned
        for planned in run.manifest.cases
    )
    manifest = dataclasses.replace(run.manifest, cases=tuple(planned))
    (run.path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")
    return case


def write_inference(run, step_seconds) -> None:
    """A sound record of two ranks with 10 batches in 2 s, and these times of the batches."""
    task = find_task(run, "1n2g")
    case = plan_inference(run, task)
    path = write_record(run, task, make_record(case))
    if step_seconds is not None:
        numpy.save(path.with_name("step_seconds.npy"), numpy.array(step_seconds))


def test_latencies_of_inference_are_those_of_all_ranks(staged_run):
    write_inference(staged_run, [[0.2] * 10, [0.1, 0.3] * 5])
    outcome = collect_one(staged_run)
    assert (outcome.problem, outcome.batch_seconds) == ("", (*[0.2] * 10, *[0.1, 0.3] * 5))


@pytest.mark.parametrize(
    ("step_seconds", "problem"),
    [
        (None, "No such file"),
        ([[0.2] * 10], r"\(1, 10\), .*\(2, 10\)"),
        ([[0.2] * 10, [0.19] * 10], r"rank 1 .*1\.9\d* s .*window 2"),
        ([[0.2] * 10, [math.nan] * 10], "no times"),
        ([[0.2] * 10, [-0.2] * 10], "no times"),
        ([["a"] * 10] * 2, r"\.npy .*numbers"),
    ],
)
def test_latencies_that_cannot_be_those_of_the_window_are_named(staged_run, step_seconds, problem):
    write_inference(staged_run, step_seconds)
    outcome = collect_one(staged_run)
    assert outcome.record is None
    assert re.search(problem, outcome.problem)


def test_latencies_cut_short_are_named(staged_run):
    write_inference(staged_run, [[0.2] * 10] * 2)
    path = find_start_dir(staged_run, find_task(staged_run, "1n2g")) / "step_seconds.npy"
    path.write_bytes(path.read_bytes()[:-8])
    assert str(path) in collect_one(staged_run).problem


def write_step_seconds(run, step_seconds) -> None:
    """A sound record of training, two ranks with 10 steps, and these times of the steps."""
    path = write_sound(run).with_name("step_seconds.npy")
    numpy.save(path, numpy.array(step_seconds))


def test_step_of_training_takes_as_long_as_on_the_slowest_rank(staged_run):
    write_step_seconds(staged_run, [[0.1, 0.3] * 5, [0.2] * 10])
    outcome = collect_one(staged_run)
    assert (outcome.problem, outcome.step_seconds) == ("", (0.2, 0.3) * 5)


def test_training_needs_no_step_times(staged_run):
    write_sound(staged_run)
    outcome = collect_one(staged_run)
    assert (outcome.problem, outcome.step_seconds) == ("", ())


def test_step_times_of_other_ranks_than_the_record_has_are_named(staged_run):
    write_step_seconds(staged_run, [[0.2] * 10])
    assert "has the shape (1, 10), not [ranks, steps] (2, 10)" in collect_one(staged_run).problem


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"text"])
def test_step_times_that_are_no_array_are_named(staged_run, content):
    path = write_sound(staged_run).with_name("step_seconds.npy")
    path.write_bytes(content)
    assert collect_one(staged_run).problem.startswith(f"broken record: {path}: ")


def test_pickled_step_times_are_not_loaded(staged_run):
    path = write_sound(staged_run).with_name("step_seconds.npy")
    numpy.save(path, numpy.array([[{}] * 10] * 2), allow_pickle=True)
    assert_problem(collect_one(staged_run).problem, says=("step_seconds.npy", "numbers"))


def test_run_that_was_not_submitted_says_so(staged_run):
    assert collect_one(staged_run).problem == "not submitted"


def test_missing_record_of_a_submitted_task_may_still_come(staged_run):
    journal(staged_run, SUBMITTED)
    assert_problem(collect_one(staged_run).problem, key="no record yet", says=("pending",))


def test_missing_record_has_the_last_state_that_was_seen(staged_run):
    task = find_task(staged_run, "1n2g")
    journal(staged_run, SUBMITTED)
    journal(staged_run, STATE, array_task_id=task.array_task_id, state="TIMEOUT", detail="limit")
    assert collect_one(staged_run).problem == "no record: TIMEOUT (limit)"


def test_state_of_another_task_does_not_count(staged_run):
    task = find_task(staged_run, "1n2g", repeat=2)
    journal(staged_run, STATE, array_task_id=task.array_task_id, state="TIMEOUT")
    assert collect_one(staged_run, repeat=1).problem == "not submitted"


@pytest.mark.parametrize("keep", [0, 1, 200])
def test_truncated_record_is_broken(staged_run, keep):
    path = write_sound(staged_run)
    path.write_bytes(path.read_bytes()[:keep])
    assert "record.json: not JSON: " in collect_one(staged_run).problem


def test_record_of_bytes_that_are_no_text_is_broken(staged_run):
    write_sound(staged_run).write_bytes(b"\xff\xfe\x00\x80")
    assert collect_one(staged_run).problem.startswith("broken record: ")


def test_record_of_another_schema_version_is_broken(staged_run):
    edit_json(write_sound(staged_run), schema_version=99)
    problem = collect_one(staged_run).problem
    assert re.search(r"s0/record\.json: schema_version is 99, this .* reads 1; read it", problem)


def test_record_with_a_wrong_key_is_broken(staged_run):
    path = write_sound(staged_run)
    edit_json(path, status=1)
    assert collect_one(staged_run).problem.startswith(f"broken record: {path}: status is 1: ")


def test_record_of_another_case_is_not_used(staged_run):
    path = write_sound(staged_run, "1n2g")
    shutil.copy(write_sound(staged_run, "1n1g"), path)
    assert re.fullmatch(
        r"invalid record: cases/.*/record.json: case.case_id is 'pytorch-resnet50-1n1g-bs8-fp32', "
        r"cases.jsonl has 'pytorch-resnet50-1n2g-bs8-fp32'; case.axes.topology is '1n1g', .*",
        collect_one(staged_run).problem,
    )


def test_record_of_another_repeat_is_not_used(staged_run):
    path = write_sound(staged_run, repeat=1)
    shutil.copy(write_sound(staged_run, repeat=2), path)
    assert collect_one(staged_run).problem == f"{INVALID}case.repeat is 2, cases.jsonl has 1"


def test_failed_record_has_the_first_line_of_its_reason(staged_run):
    task = find_task(staged_run, "1n2g")
    case = read_case(staged_run, task)
    write_record(staged_run, task, make_failed_record(case, reason="rank 1: ValueError: x\nmore"))
    assert collect_one(staged_run).problem == "failed: rank 1: ValueError: x"


def test_failed_record_without_a_reason_says_so(staged_run):
    task = find_task(staged_run, "1n2g")
    write_record(staged_run, task, make_failed_record(read_case(staged_run, task), reason=""))
    assert_problem(collect_one(staged_run).problem, key="failed", says=("no reason",))


def test_measured_steps_of_a_failed_record_are_named_and_not_used(staged_run):
    task = find_task(staged_run, "1n2g")
    record = make_failed_record(read_case(staged_run, task), reason="stalled: rank 1")
    write_record(staged_run, task, dataclasses.replace(record, partial_steps=4))
    outcome = collect_one(staged_run)
    steps = record.case.measured_steps
    assert outcome.record is None
    assert_problem(outcome.problem, key="failed: stalled", says=("rank 1", f"4 of {steps} steps"))


def test_out_of_memory_is_told_from_other_failures(staged_run):
    task = find_task(staged_run, "1n2g")
    record = make_failed_record(read_case(staged_run, task), OUT_OF_MEMORY, "rank 0: too large")
    write_record(staged_run, task, record)
    assert collect_one(staged_run).problem == "out of memory: rank 0: too large"


def test_missing_rank_makes_record_invalid(staged_run):
    write_sound(staged_run, ranks=(make_rank(0),))
    problem = collect_one(staged_run).problem
    assert_problem(problem.partition(INVALID)[2], says=("ranks [1] of 2", "missing"))


def test_rank_that_reports_twice_makes_record_invalid(staged_run):
    write_sound(staged_run, ranks=(make_rank(0), make_rank(1), make_rank(1)))
    problem = collect_one(staged_run).problem
    assert_problem(problem.partition(INVALID)[2], says=("ranks [0, 1, 1]", "2"))


def test_wrong_number_of_hosts_makes_record_invalid(staged_run):
    case = read_case(staged_run, find_task(staged_run, "2n2g"))
    ranks = tuple(make_rank(rank.rank, host="node1") for rank in make_ranks(case))
    write_sound(staged_run, "2n2g", ranks=ranks)
    problem = collect_one(staged_run, "2n2g").problem
    invalid = INVALID.replace("1n2g", "2n2g")
    assert_problem(problem.partition(invalid)[2], says=("1 hosts", "2"))


@pytest.mark.parametrize("changes", [{"final_loss": math.nan}, {"window_seconds": 0.0}])
def test_value_that_cannot_be_makes_record_broken(staged_run, changes):
    write_sound(staged_run, ranks=(make_rank(0), make_rank(1, **changes)))
    assert f": ranks[1].{min(changes)} is " in collect_one(staged_run).problem


def test_record_of_unknown_status_is_not_used(staged_run):
    write_sound(staged_run, status="fine")
    assert collect_one(staged_run).record is None


def test_record_that_is_a_folder_is_broken(staged_run):
    (find_start_dir(staged_run, find_task(staged_run, "1n2g")) / "record.json").mkdir(parents=True)
    assert collect_one(staged_run).problem.startswith("broken record: ")


def stage_second_attempt(run):
    """A further attempt of the first repeat on 1n2g; its task."""
    cases = expand_matrix(read_matrix(write_matrix())).cases
    (case,) = (case for case in cases if case.axes.topology == "1n2g")
    groups = group_array_tasks([ArrayTask(case, 1, 2)], make_site(), 1001, suffix="-try2")
    stage_groups(run.path, run.path, run.manifest, groups, make_site())
    return find_task(run, "1n2g-try2")


def test_later_attempt_stands_in_for_a_failed_one(staged_run):
    first = find_task(staged_run, "1n2g")
    write_record(staged_run, first, make_failed_record(read_case(staged_run, first)))
    second = stage_second_attempt(staged_run)
    write_record(staged_run, second, make_record(read_case(staged_run, second)))
    assert collect_one(staged_run).record.case.attempt == 2


def test_first_sound_attempt_counts(staged_run):
    write_sound(staged_run)
    second = stage_second_attempt(staged_run)
    write_record(staged_run, second, make_record(read_case(staged_run, second)))
    assert collect_one(staged_run).record.case.attempt == 1


DAMAGES = {
    "missing": lambda text: None,
    "empty": lambda text: b"",
    "torn": lambda text: text[: len(text) // 2],
    "no UTF-8": lambda text: text.replace(b'"group_id": "1n2g"', b'"group_id": "\xff\xfe"'),
}


def damage_journal(run, damage):
    path = run.path / "journal.jsonl"
    text = DAMAGES[damage](path.read_bytes())
    path.unlink()
    if text is not None:
        path.write_bytes(text)


@pytest.mark.parametrize("damage", DAMAGES)
def test_record_counts_whatever_became_of_the_journal(staged_run, damage):
    write_sound(staged_run)
    damage_journal(staged_run, damage)
    assert collect_one(staged_run).record is not None


@pytest.mark.parametrize("damage", DAMAGES)
def test_array_task_that_a_damaged_journal_lost_is_missing_for_its_own_reason(staged_run, damage):
    damage_journal(staged_run, damage)
    assert collect_one(staged_run).problem == "not submitted"


def test_repeat_whose_files_are_gone_too_is_named(staged_run):
    damage_journal(staged_run, "missing")
    (staged_run.path / "scripts" / "1n2g.tasks").unlink()
    assert_problem(collect_one(staged_run).problem, says=("journal", "no array task"))


def write_start(run, number, record):
    """A record in the folder of one start of the first repeat on 1n2g; its path."""
    folder = run.path / find_task(run, "1n2g").attempt_dir / f"s{number}"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "record.json", record)
    return folder / "record.json"


def test_newest_sound_start_of_an_attempt_counts(staged_run):
    case = read_case(staged_run, find_task(staged_run, "1n2g"))
    for number, window in ((0, 2.0), (2, 4.0), (10, 8.0)):
        write_start(staged_run, number, make_record(case, window))
    write_start(staged_run, 11, make_failed_record(case))
    assert collect_one(staged_run).record.window_seconds == 8.0


def test_failed_start_before_one_that_has_no_record_yet_is_no_failure(staged_run):
    journal(staged_run, SUBMITTED)
    case = read_case(staged_run, find_task(staged_run, "1n2g"))
    write_start(staged_run, 1, make_record(case)).unlink()
    write_start(staged_run, 0, make_failed_record(case))
    assert collect_one(staged_run).problem.startswith("no record yet")


def test_start_whose_times_were_cut_short_is_passed_over(staged_run):
    case = read_case(staged_run, find_task(staged_run, "1n2g"))
    write_start(staged_run, 0, make_record(case, 2.0))
    path = write_start(staged_run, 1, make_record(case, 4.0))
    path.with_name("step_seconds.npy").write_bytes(b"\x93NUMPY")
    assert collect_one(staged_run).record.window_seconds == 2.0


def test_copied_run_directory_is_collected_where_it_lies(staged_run, home):
    write_sound(staged_run)
    copied = open_run(shutil.copytree(staged_run.path, home / "copy"))
    shutil.rmtree(staged_run.path)
    assert collect_one(copied).record.samples_per_s == 80.0
