"""Repeats on pairs of nodes, in rounds -> how slow each node and each link is, with p-values."""

from collections.abc import Sequence
from typing import Any

from dlperf_slurm.stats.slow_nodes import NodeEffect, compute_node_effects

_COST = 1.5
_ITERATIONS = 50
# residuals below this are zero; logarithms
_SMALLEST = 1e-6


def compute_pair_effects(
    pairs: Sequence[tuple[int, int]],
    rounds: Sequence[int],
    figures: Sequence[Any],
    least_effect: float,
    seed: int = 0,
) -> tuple[list[list[NodeEffect]], list[list[NodeEffect]]]:
    """Tell slow nodes from slow links; return the effects [figures][nodes] and [figures][pairs].

    Each of `pairs` has the indices of two nodes, and was measured in the round of `rounds` with its
    index. Each figure is an array [pairs, repeats]; a larger value is faster, a missing one is nan.
    The logarithm of a figure is the sum of an effect of the round, of both nodes, and of the link:
    a fit by least absolute deviations, which few slow links do not bend, and which needs no
    reference node. A node is tested by its rounds, each without the effect of its partner; a link
    by its repeats, without those of the round and of both nodes. Holm's correction is over all
    nodes and figures, and over all links and figures (`slow_nodes.compute_node_effects`).
    """
    import numpy

    first, second = numpy.array(pairs).T
    of_round = numpy.unique(rounds, return_inverse=True)[1]
    counts = int(max(first.max(), second.max())) + 1, int(of_round.max()) + 1
    by_node, by_link, spreads = [], [], []
    for values in figures:
        logs = numpy.log(numpy.asarray(values, dtype=float))
        medians = _take_medians(logs)
        nodes, of_rounds = _fit(medians, (first, second, of_round), *counts)
        table = numpy.full(counts, numpy.nan)
        table[first, of_round] = medians - nodes[second]
        table[second, of_round] = medians - nodes[first]
        by_node.append(numpy.exp(table))
        fitted = nodes[first] + nodes[second] + of_rounds[of_round]
        spreads.append(_compute_spread(medians - fitted, sum(counts)))
        by_link.append(numpy.exp(logs - fitted[:, None]))
    return (
        compute_node_effects(by_node, least_effect, seed),
        compute_node_effects(by_link, least_effect, seed, spreads),
    )


def _take_medians(rows: Any) -> Any:
    """Return the median of each row without its missing values; nan for a row without values."""
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
    # to standard deviations of a normal distribution
    return (1.4826 * float(numpy.median(sizes)), len(sizes)) if len(sizes) else (1.0, 1)


def _fit(values: Any, terms: Any, node_count: int, round_count: int) -> tuple[Any, Any]:
    """Fit values = first node + second node + round by least absolute deviations.

    `terms` has the indices of these three for each value. Returns the effects of the nodes and of
    the rounds. An effect of a node costs as much as _COST deviations, so that a slow link of a few
    nodes is not taken for several slow nodes. Solved by iteratively reweighted least squares.
    """
    import numpy

    has_value = ~numpy.isnan(values)
    first, second, of_round = (term[has_value] for term in terms)
    values = values[has_value]
    columns = first, second, node_count + of_round
    solution = numpy.zeros(node_count + round_count)
    weights = numpy.ones(len(values))
    costs = numpy.full(len(solution), _SMALLEST)
    for _ in range(_ITERATIONS):
        normal, right = numpy.diag(costs), numpy.zeros(len(solution))
        for row in columns:
            numpy.add.at(right, row, weights * values)
            for column in columns:
                numpy.add.at(normal, (row, column), weights)
        solution = numpy.linalg.solve(normal, right)
        residuals = values - sum(solution[column] for column in columns)
        weights = 1 / numpy.maximum(numpy.abs(residuals), _SMALLEST)
        costs[:node_count] = _COST / numpy.maximum(numpy.abs(solution[:node_count]), _SMALLEST)
    return solution[:node_count], solution[node_count:]
