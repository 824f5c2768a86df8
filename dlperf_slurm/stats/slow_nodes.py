"""Repeats on every node, in blocks -> how slow each node is against the others, with p-values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from dlperf_slurm.stats.multiple_testing import adjust_by_holm

LEVEL = 0.05
# blocks in which a node was measured, below which nothing is decided
LEAST_BLOCKS = 3
# draws of the statistic when nothing is slow; more for many tests, so that a p-value can be small
_DRAWS = 200_000
_DRAWS_PER_TEST = 400
_MAX_DRAWS = 4_000_000
# blocks that are drawn: the median of more of them varies less, by the square root of their number
_MOST_DRAWN = 51
# values drawn at once
_CHUNK = 5_000_000


@dataclass(frozen=True)
class NodeEffect:
    """The speed of a node as a ratio to that of the other nodes: 0.95 is 5 % slower.

    With fewer than LEAST_BLOCKS blocks `ratio` is nan, and nothing is decided. `low` and `high` are
    the ends of the ratio's 95 % interval, for this node alone, or nan. `p_value` is for the
    hypothesis that the node is not slower than the others, adjusted for all nodes and figures that
    were tested together. `more_blocks` is about how many further blocks would decide about a node
    that seems slow.
    """

    ratio: float
    low: float
    high: float
    p_value: float
    more_blocks: Optional[int] = None

    def is_slow(self, least_effect: float) -> bool:
        """Return whether the node is significantly slower, by at least `least_effect` (0.02)."""
        return self.ratio <= 1 - least_effect and self.p_value <= LEVEL

    def seems_slow(self, least_effect: float) -> bool:
        """Return whether the node is slower by `least_effect` (0.02: 2 %) but not significantly."""
        return self.ratio <= 1 - least_effect and self.p_value > LEVEL


def compute_node_effects(
    figures: Sequence[Any],
    least_effect: float,
    seed: int = 0,
    spreads: Sequence[tuple[float, int]] = (),
) -> list[list[NodeEffect]]:
    """Compare each node with the other nodes; return the effects [figures][nodes].

    Each figure, such as the throughput of a case, is an array [nodes, blocks]; a larger value is
    faster, a missing one is nan. Effects and p-values are those of docs/statistics.md, slow nodes,
    adjusted by Holm's method over all nodes and figures; `seed` makes the draws repeatable.
    `least_effect` is the slowdown from which a node is slow, a fraction.
    `spreads` has for each figure by how much good nodes differ from each other (a standard
    deviation of logarithms), and its degrees of freedom; by default all good nodes are alike.
    Without degrees of freedom (0), no node has an interval, and each p-value is 1.
    """
    spreads = spreads or [(0.0, 1)] * len(figures)
    tests = sum(len(values) for values in figures)
    slow: list[set[int]] = [set() for _ in figures]
    while True:
        found = [_Table(*one) for one in zip(figures, slow, spreads)]
        p_values = [p for table in found for p in table.compute_p_values(tests, seed)]
        adjusted = iter(adjust_by_holm(p_values))
        effects = [table.list_effects(adjusted, tests, least_effect) for table in found]
        now = [
            own | {node for node, one in enumerate(of_figure) if one.is_slow(least_effect)}
            for own, of_figure in zip(slow, effects)
        ]
        if now == slow:
            return effects
        slow = now


class _Table:
    """One figure of all nodes: logarithms of each node's ratio to the others: [nodes, blocks]."""

    def __init__(self, values: Any, slow: "set[int]", spread: "tuple[float, int]") -> None:
        import numpy

        self.spread, self.spread_freedom = spread
        logs = numpy.log(numpy.asarray(values, dtype=float))
        sound = numpy.array([node not in slow for node in range(len(logs))], dtype=bool)
        has_value = ~numpy.isnan(logs)
        # a node alone in its block has nothing to be compared with
        logs = logs[:, (has_value.sum(axis=0) > 1) & has_value[sound].any(axis=0)]
        if logs.size:
            logs = logs - _take_medians(logs, sound)
        self.blocks = (~numpy.isnan(logs)).sum(axis=1)
        self.decided = numpy.flatnonzero(self.blocks >= LEAST_BLOCKS)
        kept = logs[self.decided]
        self.effects = numpy.full(len(logs), numpy.nan)
        self.pool = numpy.zeros(0)
        self.freedom = 0
        self.quantiles = numpy.full((len(logs), 2), numpy.nan)
        if len(self.decided):
            self.effects[self.decided] = numpy.nanmedian(kept, axis=1)
            counts = self.blocks[self.decided, None]
            # deviations from a mean of few values are smaller than those of the values
            deviations = (kept - numpy.nanmean(kept, axis=1, keepdims=True)) * numpy.sqrt(
                counts / (counts - 1)
            )
            self.pool = deviations[~numpy.isnan(deviations)]
            self.freedom = max(1, int(self.blocks[self.decided].sum()) - len(self.decided))

    def compute_p_values(self, tests: int, seed: int) -> list[float]:
        """Return the unadjusted p-value of each node; 1 for a node that is not decided.

        Also stores quantiles of the draws, which `list_effects` needs. More `tests` (nodes times
        figures) take more draws; `seed` makes them repeatable.
        """
        import numpy

        p_values = numpy.ones(len(self.effects))
        if not self.spread_freedom:
            return [float(p) for p in p_values]
        count = min(_MAX_DRAWS, max(_DRAWS, _DRAWS_PER_TEST * tests))
        for blocks in sorted({int(n) for n in self.blocks[self.decided]}):
            nodes = self.decided[self.blocks[self.decided] == blocks]
            draws = numpy.sort(self._draw(blocks, count, seed))
            below = numpy.searchsorted(draws, self.effects[nodes], side="right")
            p_values[nodes] = (below + 1) / (count + 1)
            self.quantiles[nodes] = numpy.quantile(draws, [0.025, 0.975])
        return [float(p) for p in p_values]

    def _draw(self, blocks: int, count: int, seed: int) -> Any:
        """Draw `count` random effects of a node as fast as the others, over `blocks` blocks."""
        import numpy

        generator = numpy.random.default_rng([seed, blocks])
        parts = []
        number = min(blocks, _MOST_DRAWN)
        chunk = _CHUNK // number
        for start in range(0, count, chunk):
            size = min(chunk, count - start)
            drawn = numpy.median(generator.choice(self.pool, (size, number)), axis=1)
            drawn *= numpy.sqrt(number / blocks)
            scale = numpy.sqrt(self.freedom / generator.chisquare(self.freedom, size))
            drawn *= scale
            if self.spread:
                of_spread = self.spread_freedom
                scale = numpy.sqrt(of_spread / generator.chisquare(of_spread, size))
                drawn += self.spread * generator.standard_normal(size) * scale
            parts.append(drawn)
        return numpy.concatenate(parts)

    def list_effects(self, adjusted: Any, tests: int, least_effect: float) -> list[NodeEffect]:
        """Return the effect of each node; `adjusted` is an iterator over the adjusted p-values.

        `tests` and `least_effect` only serve to estimate `more_blocks` of nodes that seem slow.
        """
        from math import exp, nan

        effects = []
        for node, (effect, p_value) in enumerate(zip(self.effects, adjusted)):
            if effect != effect:
                more = LEAST_BLOCKS - int(self.blocks[node])
                effects.append(NodeEffect(nan, nan, nan, p_value, more))
                continue
            low, high = (exp(effect - quantile) for quantile in self.quantiles[node][::-1])
            one = NodeEffect(exp(effect), low, high, p_value)
            if one.seems_slow(least_effect):
                more = self._count_more(effect, int(self.blocks[node]), tests)
                one = NodeEffect(one.ratio, low, high, p_value, more)
            effects.append(one)
        return effects

    def _count_more(self, effect: float, blocks: int, tests: int) -> int:
        """Return about how many further blocks make `effect` significant, if it stays the same."""
        from statistics import NormalDist

        # a median varies by sqrt(pi / 2) more than a mean
        needed = -NormalDist().inv_cdf(LEVEL / tests) * 1.2533 * float(self.pool.std())
        return max(1, int((needed / effect) ** 2) + 1 - blocks)


def _take_medians(logs: Any, sound: Any) -> Any:
    """Return for each node the median of each block over the other sound nodes: [nodes, blocks].

    `logs` are logarithms [nodes, blocks], `sound` says which nodes are not slow. In a block with no
    other sound node, the node is compared with itself.
    """
    import numpy

    values = numpy.where(sound[:, None], logs, numpy.nan)
    has_value = ~numpy.isnan(values)
    # nan is sorted last
    places = numpy.argsort(values, axis=0)
    ranks = numpy.argsort(places, axis=0)
    ordered = numpy.take_along_axis(values, places, axis=0)
    others = has_value.sum(axis=0) - has_value
    middles = [
        # skips the node itself
        numpy.minimum(index + (has_value & (index >= ranks)), len(logs) - 1)
        for index in (numpy.maximum(others - 1, 0) // 2, others // 2)
    ]
    low, high = (numpy.take_along_axis(ordered, index, axis=0) for index in middles)
    return numpy.where(others > 0, (low + high) / 2, logs)
