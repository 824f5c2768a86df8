"""Slow nodes and slow links of simulated sweeps over pairs."""

import numpy
import pytest

from dlperf_slurm.jobs.grouping import make_rounds
from dlperf_slurm.stats.pair_effects import compute_pair_effects

LEAST_EFFECT = 0.02


def find_slow(nodes, slow_nodes=(), slow_links=(), blocks=5, rounds=None, lost=None):
    """Return the named nodes and links of a sweep whose slow ones are 10 % slower.

    `lost` is a node without any value.
    """
    random = numpy.random.default_rng(3)
    plan = make_rounds([str(node) for node in range(nodes)])[:rounds]
    pairs = [
        (tuple(map(int, pair.split(","))), turn) for turn, own in enumerate(plan) for pair in own
    ]
    drift = 0.03 * random.standard_normal(len(plan))
    logs = 0.005 * random.standard_normal((len(pairs), blocks))
    for index, (pair, turn) in enumerate(pairs):
        logs[index] += drift[turn] - 0.1 * len({*pair} & {*slow_nodes}) - 0.1 * (pair in slow_links)
        if lost in pair:
            logs[index] = numpy.nan
    (of_nodes,), (of_links,) = compute_pair_effects(*zip(*pairs), [numpy.exp(logs)], LEAST_EFFECT)
    return (
        {node for node, one in enumerate(of_nodes) if one.is_slow(LEAST_EFFECT)},
        {pair for (pair, _), one in zip(pairs, of_links) if one.is_slow(LEAST_EFFECT)},
    )


@pytest.mark.parametrize(
    "case",
    [
        {"nodes": 8},
        {"nodes": 9, "slow_nodes": [0]},
        {"nodes": 8, "slow_links": [(1, 6)]},
        {"nodes": 16, "slow_nodes": [3, 7], "slow_links": [(1, 6), (3, 9)]},
        {"nodes": 16, "slow_nodes": [3], "rounds": 5},
        {"nodes": 8, "slow_nodes": [2], "lost": 5},
        {"nodes": 4, "slow_nodes": [1]},
    ],
)
def test_slow_nodes_and_links_are_told_apart_under_a_drift(case):
    assert find_slow(**case) == (set(case.get("slow_nodes", ())), set(case.get("slow_links", ())))


def test_slow_link_of_four_nodes_is_not_taken_for_slow_nodes():
    assert find_slow(4, slow_links=[(0, 1)])[0] == set()
