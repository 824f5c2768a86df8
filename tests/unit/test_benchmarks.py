"""Figures of benchmarks/: what is met, what is printed, what each benchmark offers."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from rows import Row  # noqa: E402


def make_row(**fields):
    return Row(**{"part": 1, "name": "files", "measured": 6.0, "unit": "files", **fields})


@pytest.mark.parametrize(
    ("fields", "is_met"),
    [
        ({}, None),
        ({"target": 6}, True),
        ({"target": 5}, False),
        ({"target": 5, "measured": None}, None),
        ({"peer_measured": 3.0, "target_ratio": 2}, True),
        ({"peer_measured": 3.0, "target_ratio": 1.9}, False),
        # a peer that could not be had leaves a missed target missed, and none met
        ({"target": 5, "target_ratio": 2}, False),
        ({"target": 6, "target_ratio": 2}, None),
        ({"target": 6, "target_ratio": 0.5, "peer_measured": 3.0}, False),
    ],
)
def test_row_is_met_where_all_that_it_may_be_is_known(fields, is_met):
    assert make_row(**fields).is_met is is_met
