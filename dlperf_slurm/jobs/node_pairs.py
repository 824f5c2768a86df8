"""Nodes -> pairs of nodes to measure, in rounds that use each node at most once."""

import random
from collections.abc import Sequence


def make_rounds(nodes: Sequence[str]) -> list[list[str]]:
    """Return rounds of pairs such as "n1,n2", so that each pair is in one round.

    Circle method: N - 1 rounds of N / 2 pairs; with an odd N, N rounds, in each of which one node
    has no partner.
    """
    ring = [*range(len(nodes) + len(nodes) % 2)]
    half = len(ring) // 2
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = [sorted(pair) for pair in zip(ring[:half], reversed(ring[half:]))]
        rounds.append([f"{nodes[a]},{nodes[b]}" for a, b in pairs if b < len(nodes)])
        ring.insert(1, ring.pop())
    return rounds


def choose_pairs(nodes: Sequence[str], count: int, seed: int) -> list[str]:
    """Return the pairs of `count` rounds, chosen at random, in the order of a sweep's repeats.

    The first pairs of all rounds come first, as repeats 1, 2, 3 are in blocks 1, 2, 3 of a run
    (`manifest.compute_block`), and a round is a block.
    """
    rounds = random.Random(seed).sample(make_rounds(nodes), count)
    return [pair for pairs in zip(*rounds) for pair in pairs]
