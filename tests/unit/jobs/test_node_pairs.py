"""Rounds of pairs: each pair once, each node at most once per round."""

from itertools import combinations

import pytest

from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.jobs.node_pairs import choose_pairs, make_rounds


@pytest.mark.parametrize(("count", "rounds"), [(4, 3), (5, 5), (8, 7), (9, 9)])
def test_each_pair_is_in_one_round_and_no_node_twice(count, rounds):
    nodes = [f"n{number}" for number in range(count)]
    made = make_rounds(nodes)
    assert [len(pairs) for pairs in made] == [count // 2] * rounds
    for pairs in made:
        assert len({node for pair in pairs for node in pair.split(",")}) == 2 * (count // 2)
    found = [tuple(pair.split(",")) for pairs in made for pair in pairs]
    assert sorted(found) == list(combinations(nodes, 2))


def test_chosen_rounds_are_blocks_of_the_run_and_the_seed_repeats_them():
    nodes = [f"n{number}" for number in range(8)]
    pairs = choose_pairs(nodes, 3, 5)
    assert pairs == choose_pairs(nodes, 3, 5)
    by_block = {}
    for repeat, pair in enumerate(pairs, start=1):
        by_block.setdefault(compute_block(repeat, 3), []).append(pair)
    assert len(by_block) == 3
    assert all(pairs in make_rounds(nodes) for pairs in by_block.values())
