"""Run directory -> outcomes: sound records are used, all others are named with the reason."""

import dataclasses
import math
import re

import numpy
import pytest
from builders import (
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
from outcome_builders import PHASE_SECONDS, make_started_case
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import OUT_OF_MEMORY, TERMINATED
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.journal import JOURNAL_FILE, STATE, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.jobs.stage import stage_groups
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.results.collect import QUEUE, TO_FIRST_STEP_SUM, Outcome, collect_outcomes


def collect_one(run, topology="1n2g", repeat=1) -> Outcome:
    """Collect the outcome of one repeat of the case of a topology."""
    # opened again: a test may have changed what was planned
    cases = collect_outcomes(open_run(run.path))
    (case,) = (c for c in cases if c.case.axes.topology == topology)
    return case.outcomes[repeat - 1]


def write_sound(run, topology="1n2g", repeat=1, **changes):
    """Write a valid record with changes; return its path."""
    task = find_task(run, topology, repeat)
    return write_record(run, task, make_record(read_case(run, task), **changes))


def journal(run, event: str, array_task_id=-1, state="", detail=""):
    time = "2024-05-01T12:00:00Z"
    append_event(run.path, Event(event, time, "1n2g", "42", array_task_id, state, detail))


def test_sound_record_is_that_of_its_own_repeat(staged_run):
    write_sound(staged_run, repeat=2)
    first, second = (collect_one(staged_run, repeat=repeat) for repeat in (1, 2))
    assert (first.record, first.problem) == (None, "not submitted")
    assert (second.record.samples_per_s, second.problem, second.step_seconds) == (80.0, "", ())


def test_window_of_a_case_is_that_of_the_slowest_rank(staged_run):
    ranks = (make_rank(0, window_seconds=2.0), make_rank(1, window_seconds=4.0))
    write_sound(staged_run, ranks=ranks)
    # 2 ranks x 8 samples x 10 steps in 4 s
    assert collect_one(staged_run).record.samples_per_s == 40.0


def plan_inference(run, task):
    """Change an array task's case to inference, in the manifest too."""
    case = vary(read_case(run, task), mode="infer")
    replace_case(run, task, case)
    planned = (
        vary(planned, mode="infer") if planned.case_id == task.case_id else planned
        for planned in run.manifest.cases
    )
    manifest = dataclasses.replace(run.manifest, cases=tuple(planned))
    (run.path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")
    return case


def write_times(run, step_seconds, is_inference=False):
    """Write a sound record of two ranks with 10 steps in 2 s, and these times; their path."""
    task = find_task(run, "1n2g")
    case = plan_inference(run, task) if is_inference else read_case(run, task)
    path = write_record(run, task, make_record(case)).with_name("step_seconds.npy")
    if step_seconds is not None:
        numpy.save(path, numpy.array(step_seconds))
    return path


def test_latencies_of_inference_are_those_of_all_ranks(staged_run):
    write_times(staged_run, [[0.2] * 10, [0.1, 0.3] * 5], is_inference=True)
    outcome = collect_one(staged_run)
    assert (outcome.problem, *outcome.latency_seconds["latency"]) == (
        *("", *[0.2] * 10, *[0.1, 0.3] * 5),
    )


def test_step_of_training_takes_as_long_as_on_the_slowest_rank(staged_run):
    write_times(staged_run, [[0.1, 0.3] * 5, [0.2] * 10])
    outcome = collect_one(staged_run)
    assert (outcome.problem, outcome.step_seconds) == ("", (0.2, 0.3) * 5)


@pytest.mark.parametrize(
    ("is_inference", "step_seconds", "problem"),
    [
        (True, None, "No such file"),
        (True, [[0.2] * 10], r"\(1, 10\), .*\(2, 10\)"),
        (True, [[0.2] * 10, [0.19] * 10], r"rank 1 .*1\.9\d* s .*window_seconds of this rank is 2"),
        (True, [[0.2] * 10, [math.nan] * 10], "NaN times"),
        (True, [[0.2] * 10, [-0.2] * 10], "NaN times"),
        # which numpy would have to unpickle
        (False, [[{}] * 10] * 2, r"\.npy .*numbers"),
    ],
)
def test_times_that_cannot_be_those_of_the_window_are_named(
    staged_run, is_inference, step_seconds, problem
):
    write_times(staged_run, step_seconds, is_inference)
    outcome = collect_one(staged_run)
    assert outcome.record is None
    assert re.search(problem, outcome.problem)


def test_missing_record_of_a_submitted_task_may_still_come(staged_run):
    journal(staged_run, SUBMITTED)
    assert_problem(collect_one(staged_run).problem, key="no record yet", says=("pending",))


@pytest.mark.parametrize(
    ("error", "state", "problem", "is_open"),
    [
        (TERMINATED, "TIMEOUT", "failed: terminated: TIMEOUT", False),
        (TERMINATED, "CANCELLED", "failed: terminated: CANCELLED", True),
        # failed before the job was cancelled
        ("ValueError", "CANCELLED", "failed: terminated", False),
    ],
)
def test_terminated_ranks_have_the_state_of_their_job(staged_run, error, state, problem, is_open):
    task = find_task(staged_run, "1n2g")
    record = make_failed_record(read_case(staged_run, task), reason="terminated")
    failures = tuple(dataclasses.replace(one, error=error) for one in record.failures)
    write_record(staged_run, task, dataclasses.replace(record, failures=failures))
    journal(staged_run, STATE, array_task_id=task.array_task_id, state=state)
    outcome = collect_one(staged_run)
    assert (outcome.problem, outcome.is_open) == (problem, is_open)


def test_missing_record_has_the_last_state_that_was_seen_of_its_own_task(staged_run):
    task = find_task(staged_run, "1n2g", repeat=2)
    journal(staged_run, STATE, array_task_id=task.array_task_id, state="TIMEOUT", detail="limit")
    problems = [collect_one(staged_run, repeat=repeat).problem for repeat in (1, 2)]
    assert problems == ["not submitted", "no record: TIMEOUT (limit)"]
    journal(
        staged_run, STATE, array_task_id=task.array_task_id, state="FAILED", detail="no record, x"
    )
    assert collect_one(staged_run, repeat=2).problem == "FAILED (no record, x)"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00\x80", None])
def test_record_that_is_not_whole_is_broken(staged_run, content):
    path = write_sound(staged_run)
    path.write_bytes(path.read_bytes()[:200] if content is None else content)
    assert_problem(collect_one(staged_run).problem, key="broken record", says=("record.json",))


@pytest.mark.parametrize(
    ("status", "reason", "partial_steps", "says"),
    [
        ("failed", "rank 1: ValueError: x\nmore", 0, ("failed: rank 1: ValueError: x",)),
        ("failed", "", 0, ("failed: ", "no reason")),
        ("failed", "stalled: rank 1", 4, ("failed: stalled: rank 1", "4 of 10 steps")),
        (OUT_OF_MEMORY, "rank 0: too large", 0, ("out of memory: rank 0: too large",)),
    ],
)
def test_failed_record_has_the_first_line_of_its_reason(
    staged_run, status, reason, partial_steps, says
):
    task = find_task(staged_run, "1n2g")
    record = make_failed_record(read_case(staged_run, task), status, reason)
    write_record(staged_run, task, dataclasses.replace(record, partial_steps=partial_steps))
    outcome = collect_one(staged_run)
    assert outcome.record is None
    assert_problem(outcome.problem, says=says)
    assert "more" not in outcome.problem


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ranks": (make_rank(0),)}, ("ranks [1] of 2", "missing")),
        ({"ranks": [make_rank(n) for n in (0, 1, 1)]}, ("ranks [0, 1, 1]", "ranks 0 to 1")),
        ({"status": "fine"}, ("status is 'fine'",)),
    ],
)
def test_values_that_cannot_be_make_a_record_invalid(staged_run, changes, says):
    write_sound(staged_run, **changes)
    assert_problem(collect_one(staged_run).problem, key="invalid record", says=says)


def test_wrong_number_of_hosts_makes_a_record_invalid(staged_run):
    case = read_case(staged_run, find_task(staged_run, "2n2g"))
    ranks = tuple(make_rank(rank.rank, host="node1") for rank in make_ranks(case))
    write_sound(staged_run, "2n2g", ranks=ranks)
    problem = collect_one(staged_run, "2n2g").problem
    assert_problem(problem, key="invalid record", says=("1 host", "2"))


@pytest.mark.parametrize(("is_valid", "attempt"), [(False, 2), (True, 1)])
def test_first_valid_attempt_counts(staged_run, is_valid, attempt):
    first = find_task(staged_run, "1n2g")
    make = make_record if is_valid else make_failed_record
    write_record(staged_run, first, make(read_case(staged_run, first)))
    cases = expand_matrix(read_matrix(write_matrix())).cases
    (case,) = (case for case in cases if case.axes.topology == "1n2g")
    groups = group_array_tasks([ArrayTask(case, 1, 2)], make_site(), 1001, suffix="-try2")
    stage_groups(staged_run.path, staged_run.path, staged_run.manifest, groups, make_site())
    second = find_task(staged_run, "1n2g-try2")
    write_record(staged_run, second, make_record(read_case(staged_run, second)))
    assert collect_one(staged_run).record.case.attempt == attempt


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:99])]
)
def test_record_counts_whatever_became_of_the_journal(staged_run, damage):
    write_sound(staged_run)
    damage(staged_run.path / JOURNAL_FILE)
    assert collect_one(staged_run).record is not None
    assert collect_one(staged_run, repeat=2).problem == "not submitted"


def test_repeat_whose_files_are_gone_too_is_named(staged_run):
    (staged_run.path / JOURNAL_FILE).unlink()
    (staged_run.path / "scripts" / "1n2g.tasks").unlink()
    assert_problem(collect_one(staged_run).problem, says=("journal", "no entry"))


def write_start(run, number, record):
    """Write a record for one start of the first repeat on 1n2g; return its path."""
    folder = run.path / find_task(run, "1n2g").attempt_dir / f"s{number}"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "record.json", record)
    return folder / "record.json"


def test_newest_sound_start_of_an_attempt_counts(staged_run):
    case = read_case(staged_run, find_task(staged_run, "1n2g"))
    for number, window in ((0, 2.0), (2, 4.0)):
        write_start(staged_run, number, make_record(case, window))
    path = write_start(staged_run, 10, make_record(case, 8.0))
    write_start(staged_run, 11, make_failed_record(case))
    assert collect_one(staged_run).record.window_seconds == 8.0
    # cut short
    path.with_name("step_seconds.npy").write_bytes(b"\x93NUMPY")
    assert collect_one(staged_run).record.window_seconds == 4.0


def test_failed_start_before_one_that_has_no_record_yet_is_no_failure(staged_run):
    journal(staged_run, SUBMITTED)
    case = read_case(staged_run, find_task(staged_run, "1n2g"))
    write_start(staged_run, 1, make_record(case)).unlink()
    write_start(staged_run, 0, make_failed_record(case))
    assert collect_one(staged_run).problem.startswith("no record yet")


@pytest.mark.parametrize(
    ("submitted_at", "seconds"),
    [
        # a record's own time begins behind the ranks: 3 s after the script
        ("2026-01-01T00:00:00Z", [57]),
        # by a clock that is ahead of the node's
        ("2026-01-01T00:02:00Z", [0]),
        ("", []),
    ],
)
def test_queue_ends_where_the_script_began(submitted_at, seconds):
    known = {**PHASE_SECONDS, "unknown": 1.0}
    start = make_started_case(known, submitted_at=submitted_at).outcomes[0].phases
    assert list(start) == [*[QUEUE] * len(seconds), *PHASE_SECONDS, TO_FIRST_STEP_SUM]
    assert [value for name, value in start.items() if name == QUEUE] == seconds
    # with its end, and without the rest of the warm-up
    assert start[TO_FIRST_STEP_SUM] == 7.5
