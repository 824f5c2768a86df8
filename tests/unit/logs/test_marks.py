"""Lines of ranks without labels, and the warm-up of printed intervals."""

import pytest
from support.problems import assert_problem

from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, RankMarks
from dlperf_slurm.logs.windows import Window, drop_warmup, make_warm_window, merge_unlabelled


def _collect(entries):
    """RankMarks of (rank, step, text), where the text is all that the line says."""
    lines = RankMarks()
    for rank, step, text in entries:
        lines.add(
            LogLine(rank, f"step {step} {text}", False), Mark((step,), value=float(len(text)))
        )
    return lines


def test_a_log_doubled_as_a_whole_has_one_rank():
    lines = _collect([(-1, step, str(step)) for step in (1, 2, 3) for _ in range(2)])
    assert list(lines.by_rank) == [-1]


def test_a_step_that_one_rank_did_not_print_is_named():
    lines = _collect([(-1, 1, "a"), (-1, 1, "b"), (-1, 2, "c")])
    assert_problem(lines.gap, says=("step 2 was printed by 1", "step 1 by 2"))
    labelled = _collect([(0, 1, "a"), (4, 1, "b"), (0, 2, "c")])
    assert_problem(labelled.gap, says=("rank 4", "step 2"))


def test_labels_on_some_lines_only_are_a_problem():
    assert "others do not" in _collect([(0, 1, "a"), (-1, 1, "b")]).fault


def test_the_slowest_unlabelled_window_is_the_job_s():
    windows = [Window(-1, 10, 5.0), Window(-2, 10, 6.0), Window(-3, 10, 4.0)]
    assert merge_unlabelled(windows) == (Window(-1, 10, 6.0),)
    assert merge_unlabelled([Window(2, 10, 5.0)]) == (Window(2, 10, 5.0),)


@pytest.mark.parametrize(
    ("intervals", "left"),
    [
        ([(1, 1.0)] * 120, 100),
        ([(10, 1.0)] * 10, 80),
        ([(1, 1.0)] * 40, 30),
        ([(100, 1.0)], 0),
        ([], 0),
    ],
)
def test_the_warmup_is_20_steps_or_a_quarter_in_whole_intervals(intervals, left):
    assert sum(steps for steps, _ in drop_warmup(intervals)) == left


def test_step_times_are_kept_where_each_step_is_timed():
    (window,) = make_warm_window(0, [(1, float(step)) for step in range(40)])
    assert window.step_seconds == tuple(float(step) for step in range(10, 40))
    (window,) = make_warm_window(0, [(2, 1.0)] * 40)
    assert (window.steps, window.seconds, window.step_seconds) == (60, 30.0, ())
