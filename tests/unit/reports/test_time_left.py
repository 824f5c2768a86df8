"""What is said of the time that a run on this machine still takes."""

import pytest
from builders import make_manifest

from dlperf_slurm.plain_text import write_duration
from dlperf_slurm.reports.time_left import TimeLeft


def describe(looks, **manifest):
    """Return the texts at each (seconds since the first one, number of ended array tasks)."""
    now = [1000.0]
    manifest = make_manifest(**{"scheduler": "local", **manifest})
    time_left = TimeLeft(manifest, lambda: now[0])
    said = []
    for seconds, done in looks:
        now[0] = 1000.0 + seconds
        said.append(time_left.describe(done, total=12))
    return said


def test_pace_of_what_has_ended_says_how_long_the_others_take():
    said = describe([(0, 0), (30, 1), (31, 1), (60, 2), (360, 12)])
    assert said == ["", ", about 6 min left", ", about 6 min left", ", about 5 min left", ""]


def test_what_had_ended_before_the_first_look_has_no_pace():
    assert describe([(0, 6), (20, 7)]) == ["", ", about 100 s left"]


def test_a_limit_of_time_is_told_at_once_and_bounds_the_estimate():
    said = describe([(0, 0), (60, 1), (280, 3)], within_seconds=300)
    assert said == [", at most 5 min left", ", about 4 min left", ", about 20 s left"]


def test_of_a_cluster_nothing_is_told():
    assert describe([(0, 0), (30, 6)], scheduler="slurm") == ["", ""]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "10 s"), (101, "110 s"), (120, "2 min"), (1000, "17 min"), (9000, "2.5 h")],
)
def test_an_estimate_has_few_digits(seconds, text):
    assert write_duration(seconds) == text
