"""History: results folders -> summaries -> timelines; what is broken is named once and no more."""

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import IMPORT_DIR, find_start_dir, make_record, read_case, replace_case, write_record
from history_runs import CASE_1, CASE_2, RESULTS, add_run, fail_case, set_manifest
from outcome_builders import RATES
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_cache_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.journal import JOURNAL_FILE
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.reports.plots.between_runs import draw_timelines
from dlperf_slurm.results import cache
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.history.run_cache import read_run_cache
from dlperf_slurm.results.history.timeline import drop_copies, make_history, read_history


def read_rows(patterns=(), frameworks=()):
    """Return the rows of the history of these cases, with attributes."""
    history = read_history([RESULTS], patterns, frameworks).rows
    return [SimpleNamespace(**row) for row in list_records(history)]


def list_points(case_id=CASE_1):
    return read_rows([case_id])


@pytest.fixture
def two_runs(staged, home):
    return [add_run(staged, 1), add_run(staged, 2, 0.9)]


def test_case_has_its_runs_in_the_order_of_their_creation(staged, home):
    for day in (3, 1, 2):
        # in folders whose names are in another order
        add_run(staged, day).rename(RESULTS / str(9 - day))
    assert [point.created_at[9] for point in list_points()] == ["1", "2", "3"]


def test_point_has_the_median_with_its_interval_and_the_verdict_of_compare(two_runs):
    # 8 samples x 10 steps at 100 windows per second; seven repeats: the extremes
    first, second = list_points()
    assert (first.median, first.interval_low, first.interval_high) == pytest.approx(
        (80 * 100, 80 * min(RATES), 80 * max(RATES))
    )
    assert (first.verdict, first.speed_ratio, first.changes) == ("", None, [])
    assert (second.verdict, second.speed_ratio) == ("slower", pytest.approx(0.9))
    assert second.samples_a == first.samples_per_s


def test_changed_version_and_code_of_ours_are_named(staged, home):
    for day, (torch, git) in enumerate((("2.5.0", "abcdef0"), ("2.13.0", "1234567")), start=1):
        # an installed package has no revision of its own
        set_manifest(
            add_run(staged, day, versions={"torch": torch}), tool_version="1", tool_git=git
        )
    assert list_points()[1].changes == [
        "torch 2.5.0 -> 2.13.0",
        "dlperf_slurm 1 abcdef0 -> 1 1234567",
    ]


def test_failed_run_is_listed_and_passed_over_by_the_next_verdict(staged, home):
    add_run(staged, 1)
    fail_case(add_run(staged, 2), CASE_1)
    add_run(staged, 3, 0.9)
    points = list_points()
    assert [point.state for point in points] == ["", "failed", ""]
    assert points[1].problem == "failed: rank 1 on node1: ValueError: x"
    assert points[2].verdict == "slower"


def write_other_case(run, task, **changes):
    """Write a valid record of a case with these values, which is also the planned one."""
    case = vary(read_case(run, task), **changes)
    replace_case(run, task, case)
    write_record(run, task, make_record(case))


def test_other_sizes_of_the_model_are_another_timeline(staged, home):
    for day, size in ((1, 224), (2, 32), (3, 224), (5, 32)):
        run = open_run(add_run(staged, day))
        for task in run.read_all_tasks():
            write_other_case(run, task, model_parameters={"image_size": size})
    add_run(staged, 4, repeats=0)
    assert [(row.timeline, row.sizes, row.created_at[9]) for row in list_points()] == [
        (0, "image_size 224", "1"), (0, "image_size 224", "3"), (0, "image_size 224", "4"),
        (1, "image_size 32", "2"), (1, "image_size 32", "5"),
    ]  # fmt: skip


def test_other_steps_are_not_comparable_with_the_run_before(staged, home):
    add_run(staged, 1)
    run = open_run(add_run(staged, 2))
    for task in run.read_all_tasks():
        write_other_case(run, task, warmup_steps=9)
    point = list_points()[1]
    assert (point.verdict, point.reason) == (
        "not comparable", "different workload: warmup_steps 3 -> 9",
    )  # fmt: skip
    figure = draw_timelines(make_history(read_run_cache(RESULTS).entries))
    line = figure.axes[0].get_lines()[0].get_ydata()
    assert [value == value for value in line] == [True, False, True]


def test_verdicts_of_a_case_hold_together(staged, home):
    # seven and seven repeats: 2 / 3432 each, of three 3 times as much for the smallest (Holm)
    for day, factor in enumerate((1.0, 0.9, 0.8, 0.7), start=1):
        add_run(staged, day, factor)
    assert [point.p_value for point in list_points()[1:]] == pytest.approx([3 * 2 / 3432] * 3)


@pytest.mark.parametrize(
    ("patterns", "frameworks", "count"),
    [([], [], 2), (["1n1g"], [], 1), (["pytorch-*-1n?g-*"], [], 2), ([], ["pytorch"], 2)],
)
def test_cases_are_chosen_by_pattern_and_framework(two_runs, patterns, frameworks, count):
    assert len({row.timeline for row in read_rows(patterns, frameworks)}) == count


@pytest.mark.parametrize(("patterns", "frameworks"), [(["*1n1g"], []), ([], ["jax"])])
def test_error_lists_the_cases_if_none_is_chosen(two_runs, patterns, frameworks):
    with pytest.raises(InputError) as caught:
        read_rows(patterns, frameworks)
    assert_problem(caught.value, file=RESULTS, says=(CASE_1, CASE_2))


def test_only_a_run_that_changed_is_read_again(two_runs):
    first, second = read_run_cache(RESULTS), read_run_cache(RESULTS)
    assert (first.read_runs, second.read_runs, second.run_count) == (2, 0, 2)
    assert second.entries.equals(first.entries)
    fail_case(two_runs[1], CASE_1)
    assert read_run_cache(RESULTS).read_runs == 1
    assert [point.state for point in list_points()] == ["", "failed"]


def find_summaries() -> list[Path]:
    """Return the files that summaries of runs are kept in."""
    return sorted((find_cache_dir() / "summaries").iterdir())


def test_run_with_a_record_more_or_less_is_read_again(two_runs):
    (record, *_) = sorted(two_runs[0].glob("cases/*/r*/a*/s0/record.json"))
    content = record.read_bytes()
    read_run_cache(RESULTS)
    for change in (record.unlink, lambda: record.write_bytes(content)):
        change()
        assert [read_run_cache(RESULTS).read_runs for _ in range(2)] == [1, 0]


def test_summaries_are_for_their_user_alone(two_runs):
    before = os.umask(0)
    try:
        read_run_cache(RESULTS)
    finally:
        os.umask(before)
    (summary, _) = find_summaries()
    assert [path.stat().st_mode & 0o077 for path in (summary, summary.parent)] == [0, 0]


DAMAGED_SUMMARIES = {
    "no summary": lambda path: path.write_bytes(b"x" * 10_000),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
}


@pytest.mark.parametrize("damage", DAMAGED_SUMMARIES)
def test_run_whose_summary_cannot_be_read_is_read_again(two_runs, damage):
    whole = read_run_cache(RESULTS)
    DAMAGED_SUMMARIES[damage](find_summaries()[0])
    found = read_run_cache(RESULTS)
    assert found.entries.equals(whole.entries)
    assert (found.read_runs, found.problems) == (1, ())
    assert read_run_cache(RESULTS).read_runs == 0


def test_summary_that_cannot_be_stored_does_not_hide_the_run(two_runs):
    read_run_cache(RESULTS)
    path = find_summaries()[0]
    path.unlink()
    path.mkdir()
    found = read_run_cache(RESULTS)
    assert len(found.entries) == 4
    assert [str(path) in problem for problem in found.problems] == [True]


@pytest.fixture
def command(staged, home):
    """Return a function that starts a process of `history` over six runs."""
    for day in range(1, 7):
        add_run(staged, day)
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    line = [sys.executable, "-m", "dlperf_slurm", "history", "--json"]
    return functools.partial(subprocess.Popen, line, stdout=subprocess.PIPE, env=environment)


@pytest.mark.integration
def test_four_processes_at_once_agree_and_leave_whole_summaries(command):
    processes = [command() for _ in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    timelines = [json.loads(output)["timelines"] for output in outputs]
    assert timelines == [timelines[0]] * 4
    assert read_run_cache(RESULTS).read_runs == 0


@pytest.mark.integration
def test_killed_process_leaves_summaries_that_can_be_used(command):
    with command() as process:
        deadline = time.monotonic() + 60
        while not (find_cache_dir() / "summaries").exists() and process.poll() is None:
            assert time.monotonic() < deadline
        process.kill()
    assert len(read_run_cache(RESULTS).entries) == 12


def test_folder_of_what_are_no_runs_has_no_entries_and_no_problems(home):
    RESULTS.mkdir()
    (RESULTS / "README.md").write_text("mine\n", encoding="utf-8")
    (RESULTS / "photos").mkdir()
    (RESULTS / ".20240501-partial").mkdir()
    (RESULTS / ".20240501-partial" / JOURNAL_FILE).touch()
    found = read_run_cache(RESULTS)
    assert (found.problems, len(found.entries)) == ((), 0)


def write_manifest(text):
    return lambda path: (path / MANIFEST_FILE).write_text(text, encoding="utf-8")


def put_folder_for_journal(path):
    (path / JOURNAL_FILE).unlink()
    (path / JOURNAL_FILE).mkdir()


def break_tasks(path):
    for file in (path / "scripts").glob("*.tasks"):
        file.write_text("no tab here\n", encoding="utf-8")


DAMAGES = {
    "torn manifest": write_manifest('{"schema_version": 1'),
    "nested manifest": write_manifest("[" * 100_000),
    "no time": lambda path: set_manifest(path, created_at="yesterday"),
    "folder for a journal": put_folder_for_journal,
    "no scripts": lambda path: shutil.rmtree(path / "scripts"),
    "torn tasks": break_tasks,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_broken_run_is_named_once_and_hides_no_other(two_runs, damage):
    DAMAGES[damage](two_runs[1])
    for _ in range(2):
        found = read_run_cache(RESULTS)
        assert len(found.problems) == 1
        assert str(two_runs[1]) in found.problems[0]
        found.problems[0].encode()
        assert {Path(run_dir) for run_dir in found.entries.run_dir} == {two_runs[0]}


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"{"), lambda path: path.symlink_to(path.name)]
)
def test_broken_record_is_a_problem_of_its_case_only(two_runs, spoil):
    run = open_run(two_runs[1])
    for task in run.read_all_tasks():
        if task.case_id == CASE_1:
            path = find_start_dir(run, task) / "record.json"
            path.unlink()
            spoil(path)
    point = list_points()[1]
    assert (point.median, "broken record" in point.problem) == (None, True)
    assert [point.state for point in list_points(CASE_2)] == ["", ""]
    assert read_run_cache(RESULTS).problems == ()


def test_links_to_runs_and_in_circles_add_nothing(two_runs):
    (RESULTS / "again").symlink_to(two_runs[0].name)
    (RESULTS / "circle").symlink_to("circle")
    (RESULTS / "here").symlink_to(".")
    found = read_run_cache(RESULTS)
    assert (found.run_count, found.problems) == (2, ())


@pytest.mark.parametrize(
    ("name", "shown"), [(b"\xff", r"results/'\udcff'"), (b"new\nline", r"results/'new\nline'")]
)
def test_folder_whose_name_cannot_be_printed_is_named(two_runs, name, shown):
    two_runs[0].rename(os.fsdecode(os.fsencode(RESULTS) + b"/" + name))
    (problem,) = read_run_cache(RESULTS).problems
    assert_problem(problem, key=shown, says=("left out", "cannot be printed"))


@pytest.mark.parametrize("name", ["z-copy", "0-copy"])
def test_copy_of_a_run_counts_once(two_runs, name):
    run_id = "20260101-000000-resnet-v1.5-local-ab12"
    set_manifest(two_runs[0], run_id=run_id)
    two_runs[0] = two_runs[0].rename(RESULTS / run_id)
    copy = RESULTS / name
    shutil.copytree(two_runs[0], copy)
    kept, problems = drop_copies(read_run_cache(RESULTS).entries)
    assert len(kept) == 4
    (problem,) = problems
    assert_problem(problem, file=copy, says=("left out", str(two_runs[0])))


@pytest.mark.parametrize("name", ["a b", "a'b", "$(x)", "a\\b", "é"])
def test_hostile_folder_name_is_kept(staged, home, name):
    add_run(staged, 1).rename(RESULTS / name)
    for _ in range(2):
        found = read_run_cache(RESULTS)
        assert {Path(run_dir).name for run_dir in found.entries.run_dir} == {name}
        assert found.problems == ()


@pytest.mark.parametrize(
    ("title", "kept"),
    [("a'b", "a'b"), ("\0", ""), ("\x1b[31m", "[31m"), ("x" * 10_000, "x" * 10_000)],
)
def test_hostile_text_in_a_record_is_kept_without_control_characters(staged, home, title, kept):
    add_run(staged, 1, versions={"torch": title})
    for _ in range(2):
        assert json.loads(read_run_cache(RESULTS).entries.versions[0]) == {"torch": [kept]}


def test_summary_by_other_code_is_made_anew(two_runs, monkeypatch):
    read_run_cache(RESULTS)
    cache.fingerprint_code.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "__version__", "another")
        assert [read_run_cache(RESULTS).read_runs for _ in range(2)] == [2, 0]
    cache.fingerprint_code.cache_clear()
