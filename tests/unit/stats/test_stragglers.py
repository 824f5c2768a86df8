"""Planted slow machines are named, all of them, and sound ones are not."""

import random

import pytest

from dlperf_slurm.stats.stragglers import Machine, find_slow_machines

NODES = [f"n{number:02}" for number in range(1, 17)]


@pytest.mark.parametrize(
    ("factors", "repeats"),
    [({"n07": 1.3}, 3), ({"n07": 1.3, "n11": 1.3}, 9), ({"n07": 1.01}, 9), ({}, 9)],
)
def test_each_slow_node_of_a_sweep_is_named(factors, repeats):
    noise = random.Random(1)
    sweep = [
        {Machine(node): factors.get(node, 1.0) * noise.gauss(2.0, 0.004) for node in NODES}
        for _ in range(repeats)
    ]
    found = [slow.machine.host for slow in find_slow_machines(sweep)]
    assert found == [node for node, factor in factors.items() if factor > 1.02]
