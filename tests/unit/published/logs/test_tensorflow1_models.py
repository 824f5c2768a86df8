"""TensorFlow 1's official models: cycles, the hook's own average."""

from log_excerpts import list_excerpt, publish, read_all


def test_the_publisher_s_figure_is_the_hook_s_last_average():
    assert publish("tensorflow1_models", list_excerpt("tensorflow1_models/two_cycles.log")) == (
        603.053612
    )
    assert (
        publish("tensorflow1_models", list_excerpt("tensorflow1_models/before_2018.log")) == 285.3
    )


def test_training_that_starts_over_is_another_run():
    lines = list_excerpt("tensorflow1_models/two_cycles.log")
    first, second = read_all("tensorflow1_models", lines[:9] + lines)
    assert "0 of 2 cycles" in first.problem
    assert second.problem == ""
