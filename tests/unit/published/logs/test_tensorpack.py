"""tensorpack: humanized times, the end that it announces."""

import pytest
from log_excerpts import list_excerpt, publish, read_one
from support.problems import assert_problem


def _epoch(number, duration):
    return (
        f"[0802 10:00:00 @base.py:282] Epoch {number} (global_step {number * 100}) finished, "
        f"time:{duration}."
    )


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("0.0123 seconds", 0.0123),
        ("42.3 seconds", 42.3),
        ("1 minute 1 second", 61),
        ("2 hours 3 minutes", 7380),
        ("1 day 9 hours 2 minutes 3 seconds", 118923),
    ],
)
def test_durations_are_summed_over_their_units(duration, seconds):
    lines = [
        _epoch(1, "1 second"),
        _epoch(2, duration),
        "[0802 10:06:00 @base.py:288] Training has finished!",
    ]
    (window,) = read_one("tensorpack", lines).windows
    assert (window.steps, window.seconds) == (100, pytest.approx(seconds))


@pytest.mark.parametrize(
    ("duration", "samples_per_s", "seconds"),
    [
        # the same time with more digits: 25,600 images
        ("42.3 seconds", 604.95, 25600 / 604.95),
        # another time, or another batch size: what callbacks made of it
        ("42.3 seconds", 302.6, 42.3),
        ("1 minute 1 second", 420.0, 61),
    ],
)
def test_rate_that_is_the_printed_time_is_more_exact(duration, samples_per_s, seconds):
    lines = [
        "[0802 10:00:00 @t.py:48] Running on 4 towers. Batch size per tower: 64",
        _epoch(1, "1 second"),
        "[0802 10:00:00 @monitor.py:471] Throughput (samples/sec): 25600",
        _epoch(2, duration),
        f"[0802 10:00:00 @monitor.py:471] Throughput (samples/sec): {samples_per_s}",
        "[0802 10:06:00 @base.py:288] Training has finished!",
    ]
    (window,) = read_one("tensorpack", lines).windows
    assert window.seconds == pytest.approx(seconds, rel=1e-9)


def test_training_that_was_stopped_has_not_finished():
    lines = [_epoch(1, "1 second"), _epoch(2, "1 second")]
    stopped = [*lines, "[0802 10:06:00 @base.py:290] Detected Ctrl-C and exiting main loop."]
    for log in (lines, stopped):
        problem = read_one("tensorpack", log).problem
        assert_problem(problem, says=("after step 200", "'Training has finished!'"))


def test_the_publisher_s_figure_is_the_mean_of_the_tracker_s_but_the_first():
    figure = publish("tensorpack", list_excerpt("tensorpack/four_towers.log"))
    assert figure == pytest.approx((605.2 + 610.98 + 412.9) / 3)
