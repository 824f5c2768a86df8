"""Repeats on pairs of nodes, in rounds -> how slow each node and each link is, with p-values."""

from collections.abc import Sequence
from typing import Any

from dlperf_slurm.stats.slow_nodes import NodeEffect, compute_node_effects

_COST = 1.5
_ITERATIONS = 50
# residuals (differences of logarithms) below this count as zero
_SMALLEST = 1e-6


def compute_pair_effects(
    pairs: Sequence[tuple[int, int]],
    rounds: Sequence[int],
    figures: Sequence[Any],
    least_effect: float,
    seed: int = 0,
    kinds: Sequence[str] = (),
) -> tuple[list[list[NodeEffect]], list[list[NodeEffect]]]:
    """Tell slow nodes from slow links; return the effects [figures][nodes] and [figures][pairs].

    Each of `pairs` has the indices of two nodes, and was measured in the round of `rounds` with its
    index. Each figure is an array [pairs, repeats]; a larger value is faster, a missing one is nan.
    Nodes of different `kinds` may be paired. The model of a figure, with effects of round, nodes,
    kinds and link, and the tests are in docs/statistics.md, slow links. `least_effect` is the
    slowdown from which a node or link is slow, a fraction; `seed` makes the draws repeatable.
    """
    import numpy

    first, second = numpy.array(pairs).T
    of_round = numpy.unique(rounds, return_inverse=True)[1]
    counts = int(max(first.max(), second.max())) + 1, int(of_round.max()) + 1
    kind = numpy.unique(kinds or [""] * counts[0], return_inverse=True)[1]
    size = int(kind.max()) + 1
    ends = numpy.stack([first * size + kind[second], second * size + kind[first]])
    found, own = numpy.unique(ends, return_inverse=True)
    own = own.reshape(ends.shape)
    of_kinds = numpy.unique(numpy.sort(kind[[first, second]], axis=0), axis=1, return_inverse=True)
    terms = (*own, len(found) + of_round, len(found) + counts[1] + of_kinds[1].reshape(-1))
    is_alike = kind[first] == kind[second]
    by_node, by_link, spreads = [], [], []
    for values in figures:
        logs = numpy.log(numpy.asarray(values, dtype=float))
        medians = _take_medians(logs)
        effects = _fit(medians, terms, len(found))
        table = numpy.full(counts, numpy.nan)
        for node, partner in ((first, own[1]), (second, own[0])):
            rest = medians - effects[partner] - effects[terms[3]]
            table[node[is_alike], of_round[is_alike]] = rest[is_alike]
        by_node.append(numpy.exp(table))
        fitted = sum(effects[term] for term in terms)
        spreads.append(_compute_spread(medians - fitted, len(effects) - 1))
        by_link.append(numpy.exp(logs - fitted[:, None]))
    return (
        compute_node_effects(by_node, least_effect, seed),
        compute_node_effects(by_link, least_effect, seed, spreads),
    )


def _take_medians(rows: Any) -> Any:
    """Return the median of each row of [rows, values] without nan: [rows]; nan without a value."""
    import numpy

    medians = numpy.full(len(rows), numpy.nan)
    has_value = ~numpy.isnan(rows).all(axis=1)
    medians[has_value] = numpy.nanmedian(rows[has_value], axis=1)
    return medians


def _compute_spread(residuals: Any, parameters: int) -> tuple[float, int]:
    """Return the standard deviation of a fit's residuals, robustly, and its degrees of freedom.

    Least absolute deviations make as many residuals zero as there are parameters.
    """
    import numpy

    sizes = numpy.sort(numpy.abs(residuals[~numpy.isnan(residuals)]))[parameters:]
    # factor from the median deviation to the standard deviation of a normal distribution
    return (1.4826 * float(numpy.median(sizes)), len(sizes)) if len(sizes) else (0.0, 0)


def _fit(values: Any, terms: Any, node_count: int) -> Any:
    """Fit values = the sum of the effects of their `terms`, by least absolute deviations.

    Each of `terms` has an index of an effect for each value; the first `node_count` effects are of
    nodes. Returns the effects. An effect of a node costs as much as _COST deviations, so that a
    slow link of a few nodes is not taken for several slow nodes. Solved by iteratively reweighted
    least squares.
    """
    import numpy

    has_value = ~numpy.isnan(values)
    effects = numpy.zeros(1 + max(int(term.max()) for term in terms))
    columns = [term[has_value] for term in terms]
    values = values[has_value]
    weights = numpy.ones(len(values))
    costs = numpy.full(len(effects), _SMALLEST)
    for _ in range(_ITERATIONS):
        normal, right = numpy.diag(costs), numpy.zeros(len(effects))
        for row in columns:
            numpy.add.at(right, row, weights * values)
            for column in columns:
                numpy.add.at(normal, (row, column), weights)
        effects = numpy.linalg.solve(normal, right)
        residuals = values - sum(effects[column] for column in columns)
        weights = 1 / numpy.maximum(numpy.abs(residuals), _SMALLEST)
        costs[:node_count] = _COST / numpy.maximum(numpy.abs(effects[:node_count]), _SMALLEST)
    return effects
