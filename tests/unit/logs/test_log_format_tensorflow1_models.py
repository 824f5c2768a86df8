"""TensorFlow 1's official models: cycles, the hook's own average."""

import pytest
from log_excerpts import list_excerpt, publish, read_all, read_one


def test_the_publisher_s_figure_is_the_hook_s_last_average():
    assert publish("tensorflow1_models", list_excerpt("tensorflow1_models/two_cycles.log")) == (
        603.053612
    )
    assert (
        publish("tensorflow1_models", list_excerpt("tensorflow1_models/before_2018.log")) == 285.3
    )


def test_a_cycle_that_was_announced_and_did_not_end_fails():
    lines = list_excerpt("tensorflow1_models/two_cycles.log")
    ended = max(index for index, line in enumerate(lines) if "Loss for final step" in line)
    assert read_one("tensorflow1_models", lines[:ended]).problem == (
        "the log ends at step 800: 1 of 2 cycles came to their end"
    )


def test_training_that_starts_over_is_another_run():
    lines = list_excerpt("tensorflow1_models/two_cycles.log")
    first, second = read_all("tensorflow1_models", lines[:9] + lines)
    assert first.problem.endswith("0 of 2 cycles came to their end")
    assert second.problem == ""


@pytest.mark.parametrize("name", ["accuracy", "average_examples_per_sec"])
def test_other_metrics_are_not_timed(name):
    lines = [line for line in list_excerpt("tensorflow1_models/two_cycles.log") if name in line]
    assert lines
    assert read_one("tensorflow1_models", lines).problem == "the log holds no timed step"
