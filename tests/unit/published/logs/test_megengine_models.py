"""MegEngine's ResNet: means between lines, the first epoch alone."""

from log_excerpts import list_excerpt, read_one
from support.problems import assert_problem


def test_a_line_s_mean_counts_for_all_steps_since_the_last_line():
    lines = [
        f"05 10:10:00 Epoch 0 Step {step}, LR 0.0010, Loss 6.9 (6.9) Acc@1 0.1 (0.1) "
        f"Acc@5 0.5 (0.5) Time 9.0 ({mean})"
        for step, mean in ((0, 5.0), (20, 1.0), (40, 0.5), (60, 0.25))
    ]
    reading = read_one(
        "megengine_models", [*lines, "05 10:11:00 Epoch 1 Test Acc@1 0.1, Acc@5 0.5"]
    )
    assert reading.problem == ""
    (window,) = reading.windows
    assert (window.steps, window.seconds) == (40, 20 * 0.5 + 20 * 0.25)


def test_later_epochs_do_not_change_the_figure_but_must_have_ended():
    lines = list_excerpt("megengine_models/one_rank.log")
    first = lines[: next(index for index, line in enumerate(lines) if "Test" in line) + 1]
    assert (
        read_one("megengine_models", first).windows == read_one("megengine_models", lines).windows
    )
    problem = read_one("megengine_models", lines[: len(first) + 1]).problem
    assert_problem(problem, says=("epoch 1", "step 50", "'Test'"))
