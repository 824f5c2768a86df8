"""The outcomes of a sweep over pairs -> verdicts on the nodes, and on the links between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from dlperf_slurm.jobs.manifest import Manifest, compute_block, get_node
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import make_frame_of_values
from dlperf_slurm.results.node_differences import list_differences, name_kinds, read_node_facts
from dlperf_slurm.results.node_verdicts import (
    ABSENT,
    ALL_REDUCE,
    LEAST_EFFECT,
    NODES,
    THROUGHPUT,
    UNDECIDED,
    NodeVerdicts,
    decide_verdict,
    list_figures,
)
from dlperf_slurm.stats.pair_effects import compute_pair_effects
from dlperf_slurm.stats.slow_nodes import LEAST_BLOCKS

# number of failed pairs with a common node from which that node, not its links, is at fault
_LEAST_FAILED = 2


def judge_pairs(
    manifest: Manifest, cases: Sequence[CaseOutcomes], least_effect: float = LEAST_EFFECT
) -> list[NodeVerdicts]:
    """Decide which nodes and which links of a sweep over pairs are good, slow, failed or undecided.

    Returns the verdicts on the nodes, and those on the links (docs/statistics.md, slow links), by
    throughput and all-reduce. `least_effect` is the slowdown from which one is slow, a fraction.
    """
    measured = [case for case in cases if not case.case.reason]
    pairs = [tuple(pair.split(",")) for pair in manifest.nodes]
    nodes = sorted({node for pair in pairs for node in pair})
    by_pair: dict[tuple[str, ...], list[Outcome]] = {pair: [] for pair in pairs}
    for case in measured:
        for outcome in case.outcomes:
            by_pair[tuple(get_node(outcome.repeat, manifest.nodes).split(","))].append(outcome)
    problems = {
        pair: [one.problem for one in own if one.record is None and not one.is_open]
        for pair, own in by_pair.items()
    }
    failed = find_failed_nodes(problems)
    figures = list_figures(manifest, measured, (THROUGHPUT, ALL_REDUCE))
    facts = read_node_facts([(manifest, cases)])
    kinds = name_kinds(facts)
    alike = Counter(kinds.get(node, "") for node in nodes)
    places = {node: place for place, node in enumerate(nodes)}
    # a round is a block of each case
    count = max((case.case.blocks for case in measured), default=1)
    rounds = [compute_block(place + 1, count) for place in range(len(pairs))]
    found = compute_pair_effects(
        [(places[first], places[second]) for first, second in pairs],
        *(rounds, [*figures.values()], least_effect),
        kinds=[kinds.get(node, "") for node in nodes],
    )
    of_nodes, of_links = ([list(own) for own in zip(*effects)] for effects in found)
    unit = "rounds"
    if len(pairs) == len(nodes) * (len(nodes) - 1) // 2:
        unit += " (use more --blocks, as all pairs are measured already)"
    rows: list[tuple[Any, ...]] = []
    for node in nodes:
        # failures of a link say nothing about its nodes
        own = [
            one
            for pair, outcomes in by_pair.items()
            if node in pair
            for one in outcomes
            if one.record or one.is_open or node in failed
        ]
        effects = of_nodes[places[node]] if of_nodes else []
        verdict, reason = decide_verdict(own, effects, [*figures], least_effect, unit)
        kind = kinds.get(node, "")
        if verdict == UNDECIDED and alike[kind] <= LEAST_BLOCKS:
            hardware = f"the same hardware ({kind})" if kind else "the same hardware"
            reason = (
                f"a verdict needs {LEAST_BLOCKS} or more other nodes with {hardware}; "
                f"this sweep has {alike[kind] - 1}"
            )
        count = sum(one.record is not None for one in own)
        planned = sum(len(outcomes) for pair, outcomes in by_pair.items() if node in pair)
        rows.append((node, verdict, count, planned, effects, failed.get(node, reason)))
    for text in manifest.absent_nodes:
        node, _, state = text.partition(": ")
        rows.append((node, ABSENT, 0, 0, [], f"{state} when the sweep was submitted"))
    links: list[tuple[Any, ...]] = []
    for place, (pair, own) in enumerate(by_pair.items()):
        if not failed.keys() & set(pair):
            effects = of_links[place] if of_links else []
            verdict, reason = decide_verdict(own, effects, [*figures], least_effect)
            count = sum(one.record is not None for one in own)
            is_unknown = all(isnan(one.low) for one in effects)
            if verdict == UNDECIDED and count >= LEAST_BLOCKS and is_unknown:
                reason = "too few nodes to tell a slow link from slow nodes: sweep six or more"
            links.append(("+".join(pair), verdict, count, len(own), effects, reason))
    shared = (manifest, [*figures], least_effect)
    return [
        NodeVerdicts(*shared, list_differences(facts), make_frame_of_values(NODES, rows)),
        NodeVerdicts(*shared, (), make_frame_of_values(NODES, links), is_of_links=True),
    ]


def find_failed_nodes(failures: Mapping[tuple[str, ...], Sequence[str]]) -> dict[str, str]:
    """Return the nodes that failed in several pairs, with the reason in words, by node.

    `failures` has the problems of each pair (two nodes), empty if it did not fail. The node with
    most failed pairs is taken first, and its pairs do not count against its partners.
    """
    left = {pair for pair, problems in failures.items() if problems}
    found: dict[str, str] = {}
    while True:
        counts = Counter(node for pair in left for node in pair)
        node, count = max(sorted(counts.items()), key=lambda one: one[1], default=("", 0))
        if count < _LEAST_FAILED:
            return found
        own = sorted(pair for pair in left if node in pair)
        left.difference_update(own)
        total = sum(node in pair for pair in failures)
        partners = list_some([other for pair in own for other in pair if other != node])
        found[node] = f"{count} of {total} pairs (with {partners}) failed: {failures[own[0]][0]}"
