"""The skeleton of the formats: what groups of lines say, which lines are taken, windows, ends."""

import re

import pytest
from support.problems import assert_problem

from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.timed_run import TimedFormat, find_missing_steps, if_whole
from dlperf_slurm.logs.windows import list_since_last, make_warm_window

STEP = re.compile(r"step (?P<step>\d+): (?P<seconds>[\d.]+)")


def start(*lines, **others):
    return TimedFormat(
        lines=lines,
        identify=lambda run: Identity(model=run.facts.get("model", "")),
        make_windows=lambda run, rank, marks: make_warm_window(rank, list_since_last(marks)),
        find_problem=lambda run: "the format's own problem" if "bad" in run.facts else "",
        **others,
    ).start_run()


def feed(run, *texts, rank=-1):
    for text in texts:
        run.add(LogLine(rank, text, False))
    return run


@pytest.mark.parametrize(
    ("pattern", "text", "mark"),
    [
        (STEP, "step 7: 0.5", Mark((7,), value=0.5)),
        (re.compile(r"(?P<epoch>\d),(?P<step>\d)"), "2,9", Mark((2, 9))),
        (
            re.compile(r"(?P<time>\S+ \S+) (?P<step>\d) (?P<rate>\S+)"),
            "1970-01-02 00:00:01.5 3 1,000.5",
            Mark((3,), 86401.5, 1000.5),
        ),
        (re.compile(r"(?P<step>\d) (?P<unix_time>\S+)"), "3 1598.25", Mark((3,), 1598.25)),
        (re.compile(r"(?P<step>\d) (?P<mean>\S+)"), "3 0.25", Mark((3,), mean=0.25)),
        (re.compile(r"(?P<step>\d) (?P<mean_ms>\S+)"), "3 250", Mark((3,), mean=0.25)),
    ],
)
def test_groups_of_a_timed_line_are_its_mark(pattern, text, mark):
    assert feed(start(pattern), text).first_marks == [mark]


def test_other_groups_are_facts_of_which_the_last_counts():
    timed = re.compile(r"step (?P<step>\d+)/(?P<steps_in_all>\d+)")
    argument = re.compile(r"(?P<name>\w+) = (?P<value>.*)")
    namespace = re.compile(r"Namespace\((?P<namespace>.*)\)")
    model = re.compile(r"(?:model (?P<model>\w+)|no (?P<bad>model))")
    run = start(timed, argument, namespace, model)
    feed(run, "step 1/9", "batch = 8 ", "batch = 16", "Namespace(a=1, b='x')", "model bert")
    assert run.facts == {"steps_in_all": "9", "batch": "16", "a": "1", "b": "x", "model": "bert"}
    assert (run.read_count("none", "batch"), run.read_count("b")) == (16, 0)


def test_line_that_the_end_of_the_file_may_have_cut_is_not_taken():
    for is_unended, count in ((True, 0), (False, 1)):
        run = start(if_whole(STEP))
        run.add(LogLine(-1, "step 7: 0.5", is_unended))
        assert len(run.first_marks) == count


def test_each_rank_has_a_window_unless_one_speaks_for_all():
    texts = [f"step {step}: 0.5" for step in range(1, 5)]
    windows = {}
    for is_of_job in (False, True):
        run = start(STEP, is_of_job=is_of_job)
        feed(feed(run, *texts, rank=1), *texts, rank=0)
        windows[is_of_job] = [(each.rank, each.steps) for each in run.finish().windows]
    assert windows == {False: [(0, 3), (1, 3)], True: [(-1, 3)]}


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["bad"], "the log contains no timed step"),
        (["step 2: 1", "step 1: 1", "bad"], "training goes back from step 2 to step 1"),
        (["step 1: 1", "bad"], "the format's own problem"),
        (["step 1: 1"], ""),
    ],
)
def test_problems_that_all_formats_have_come_first(texts, problem):
    found = feed(start(STEP, re.compile("(?P<bad>bad)")), *texts).finish().problem
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("found", "announced", "interval", "is_short"),
    [(99, 100, 0, True), (100, 100, 1, False), (91, 100, 10, False), (90, 100, 10, True)],
)
def test_log_lacks_steps_if_another_line_had_its_place(found, announced, interval, is_short):
    problem = f"the log has {found} of {announced} steps" if is_short else ""
    assert find_missing_steps(found, announced, interval) == problem


def test_announcements_are_over_with_the_first_timed_step():
    run = start(STEP, announcements=(re.compile(r"size (?P<size>\d+)"),))
    feed(run, "size 8", "step 1: 0.5", "size 9")
    assert run.facts == {"size": "8"}


def test_ranks_that_did_not_end_are_named():
    run = feed(start(STEP, re.compile(r"total (?P<rate>\d)")), "step 1: 1")
    assert_problem(run.find_unended_ranks("the end is"), says=("the end is missing",))
    assert feed(run, "total 5").find_unended_ranks("the end is") == ""
    feed(run, "step 1: 1", rank=4)
    feed(run, "step 1: 1", rank=2)
    assert run.find_unended_ranks("the end is").endswith("missing for ranks 2, 4")
