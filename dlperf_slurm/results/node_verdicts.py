"""The outcomes of a sweep -> a verdict on each node, such as good, slow or failed."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.manifest import Manifest, get_node
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import LISTS, NUMBER, TEXT, make_frame_of_values
from dlperf_slurm.results.history.nodes import group_comparable_nodes
from dlperf_slurm.results.loss_bits import BitVerdicts, compare_bits
from dlperf_slurm.results.node_differences import (
    NodeDifference,
    list_differences,
    name_kinds,
    read_node_facts,
)
from dlperf_slurm.stats.slow_nodes import NodeEffect, compute_node_effects
from dlperf_slurm.stats.stragglers import Machine, find_slow_machines

if TYPE_CHECKING:
    from pandas import DataFrame

GOOD = "good"
WRONG = "computes differently"
SLOW = "slow"
FAILED = "failed"
UNDECIDED = "undecided"
NOT_MEASURED = "not measured"
ABSENT = "not available"

# how much slower than the others a node must be, to be named
LEAST_EFFECT = 0.02
ALL_REDUCE = "all-reduce"
THROUGHPUT = "throughput"
PRODUCTS = "matrix products"
COPIES = "memory copies"
FIGURES = (THROUGHPUT, PRODUCTS, COPIES, ALL_REDUCE)

# A row per node: `effects` has a NodeEffect for each of `NodeVerdicts.figures`.
NODES: dict[str, str] = {
    "node": TEXT,
    "verdict": TEXT,
    "measured": NUMBER,
    "planned": NUMBER,
    "effects": LISTS,
    "reason": TEXT,
}


@dataclass(frozen=True)
class NodeVerdicts:
    """The verdicts on the nodes of a sweep, or on the links between them ("n1+n2").

    `figures` names what was compared, such as "throughput"; `nodes` has a row per node with the
    columns NODES; `least_effect` is the slowdown from which a node is slow, such as 0.02;
    `bit_notes` says what a deterministic sweep compared of losses and weights.
    """

    manifest: Manifest
    figures: Sequence[str]
    least_effect: float
    differences: Sequence[NodeDifference]
    nodes: "DataFrame" = field(compare=False, repr=False)
    bit_notes: Sequence[str] = ()
    is_of_links: bool = False

    def list_nodes(self, *verdicts: str) -> list[str]:
        """Return the names of the nodes with one of these verdicts."""
        chosen = self.nodes.node[self.nodes.verdict.isin(verdicts)]
        return [str(node) for node in chosen]


def judge_nodes(
    manifest: Manifest, cases: Sequence[CaseOutcomes], least_effect: float = LEAST_EFFECT
) -> NodeVerdicts:
    """Decide for each node of a sweep whether it is good, slow, failed or undecided.

    Nodes of a kind (models of GPU and CPU) are compared by the throughput of each case and the
    measured peaks of the devices, those of a deterministic sweep also by their losses, bit by bit.
    `least_effect` is the slowdown from which a node is slow. The verdicts are those of
    docs/statistics.md, slow nodes; a slow node with a failed repeat is failed.
    """
    facts = read_node_facts([(manifest, cases)])
    kinds = name_kinds(facts)
    measured = [case for case in cases if not case.case.reason]
    figures = list_figures(manifest, measured)
    alike: dict[str, list[int]] = {}
    for index, node in enumerate(manifest.nodes):
        alike.setdefault(kinds.get(node, ""), []).append(index)
    parts = [[rows[index] for index in own] for rows in figures.values() for own in alike.values()]
    # by node and figure
    effects: list[list[NodeEffect]] = [[] for _ in manifest.nodes]
    of_parts = compute_node_effects(parts, least_effect)
    for own, found in zip([*alike.values()] * len(figures), of_parts):
        for index, effect in zip(own, found):
            effects[index].append(effect)
    rows: list[tuple[Any, ...]] = []
    apart = _find_apart(manifest, measured)
    by_node: dict[str, list[Outcome]] = {node: [] for node in manifest.nodes}
    bits = BitVerdicts()
    for case in measured:
        of_case: dict[str, list[Record]] = {}
        for outcome in case.outcomes:
            node = get_node(outcome.repeat, manifest.nodes)
            by_node[node].append(outcome)
            if outcome.record:
                of_case.setdefault(node, []).append(outcome.record)
        compare_bits(of_case, kinds, bits)
    for index, (node, outcomes) in enumerate(by_node.items()):
        verdict, reason = decide_verdict(outcomes, effects[index], [*figures], least_effect)
        kind = kinds.get(node, "")
        if verdict == UNDECIDED and len(alike[kind]) == 1:
            described = (
                kind
                if node in kinds
                else "as far as is known: the hardware of this node is not recorded"
            )
            reason = ", ".join(filter(None, ("no other node has the same hardware", described)))
        elif verdict in (SLOW, UNDECIDED) and node in apart:
            reason += (
                "; measured at another time than most other nodes, so a change over time may be "
                "the cause"
            )
        if node in bits.different and verdict != FAILED:
            also = f"; also slow: {reason}" if verdict == SLOW else ""
            verdict, reason = WRONG, bits.different[node] + also
        elif node in bits.unsure and verdict in (GOOD, UNDECIDED):
            verdict, reason = UNDECIDED, "; ".join(filter(None, (bits.unsure[node], reason)))
        count = sum(outcome.record is not None for outcome in outcomes)
        rows.append((node, verdict, count, len(outcomes), effects[index], reason))
    for text in manifest.absent_nodes:
        node, _, state = text.partition(": ")
        rows.append((node, ABSENT, 0, 0, [], f"{state} when the sweep was submitted"))
    return NodeVerdicts(
        *(manifest, [*figures], least_effect, list_differences(facts)),
        make_frame_of_values(NODES, rows),
        tuple(dict.fromkeys(bits.notes)),
    )


def _find_apart(manifest: Manifest, cases: Sequence[CaseOutcomes]) -> set[str]:
    """Return the nodes that were measured at another time than most of the other nodes.

    That is, fewer than half of the others were measured at the same time.
    """
    times: dict[str, list[str]] = {}
    for outcome in (outcome for case in cases for outcome in case.outcomes):
        if outcome.record:
            node = get_node(outcome.repeat, manifest.nodes)
            times.setdefault(node, []).extend((outcome.record.started_at, outcome.record.ended_at))
    spans = {node: (min(own), max(own)) for node, own in times.items()}
    starts, ends = sorted(a for a, _ in spans.values()), sorted(b for _, b in spans.values())
    return {
        node
        for node, (start, end) in spans.items()
        # nodes that began by this one's end, less those that ended before its start, less itself
        if 2 * (bisect_right(starts, end) - bisect_left(ends, start) - 1) < len(spans) - 1
    }


def list_figures(
    manifest: Manifest, cases: Sequence[CaseOutcomes], names: Sequence[str] = FIGURES
) -> dict[str, list[list[float]]]:
    """Return the values [nodes, blocks] of each figure by name; nan for a missing repeat.

    The figures are those of `names` (of FIGURES) that any repeat has, with the case id before
    the name if there are several cases.
    """
    found: dict[str, list[list[float]]] = {}
    for case in cases:
        known = {outcome.repeat: _find_figures(outcome) for outcome in case.outcomes}
        prefix = f"{case.case.case_id}: " if len(cases) > 1 else ""
        count = len(manifest.nodes)
        blocks = range(-(-case.case.repeats // count))
        for name in names:
            values = [
                [known.get(block * count + node + 1, {}).get(name, nan) for block in blocks]
                for node in range(count)
            ]
            if any(value == value for row in values for value in row):
                found[prefix + name] = values
    return found


def _find_figures(outcome: Outcome) -> dict[str, float]:
    """Return the known FIGURES of a repeat by name; a larger one is faster."""
    record, peaks = outcome.record, outcome.sidecars.peaks
    rates = {THROUGHPUT: [record.samples_per_s] if record else []}
    if record and peaks:
        rates[PRODUCTS] = [device.flops_per_s for device in peaks.devices]
        rates[COPIES] = [device.copied_bytes_per_s for device in peaks.devices]
        # the first all-reduce has the size of the gradients
        rates[ALL_REDUCE] = [one.byte_count / one.seconds for one in peaks.all_reduce[:1]]
    known = {name: [rate for rate in own if rate > 0] for name, own in rates.items()}
    return {name: min(own) for name, own in known.items() if own}


def decide_verdict(
    outcomes: Sequence[Outcome],
    effects: Sequence[NodeEffect],
    figures: Sequence[str],
    least_effect: float,
    unit: str = "blocks",
) -> tuple[str, str]:
    """Return the verdict on a node, such as SLOW, and the reason in words ("" for GOOD).

    `outcomes` are its repeats. `effects` has the comparison of each of `figures` with the other
    nodes, over several `unit` ("blocks" or "rounds"); a node is slow from `least_effect` on.
    """
    problems = [outcome.problem for outcome in outcomes if outcome.record is None]
    failed = [one.problem for one in outcomes if one.record is None and not one.is_open]
    if failed:
        return FAILED, f"{len(failed)} of {len(outcomes)} repeats failed: {failed[0]}"
    slow = [name for name, one in zip(figures, effects) if one.is_slow(least_effect)]
    if slow:
        return SLOW, ", ".join(slow)
    if len(problems) == len(outcomes):
        return NOT_MEASURED, problems[0] if problems else "no case of the matrix ran"
    unsure = {
        name: one.more_blocks for name, one in zip(figures, effects) if one.more_blocks is not None
    }
    if unsure:
        count = max(unsure.values())
        why = f"{', '.join(unsure)}: about {count} more {unit} are needed to tell slow from good"
        return UNDECIDED, f"{why}; {problems[0]}" if problems else why
    return GOOD, ""


def find_bad_nodes(
    sweeps: Sequence[NodeVerdicts], others: Sequence[Sequence[CaseOutcomes]]
) -> dict[str, str]:
    """Return the verdicts on bad nodes: slow, failed and wrong ones of sweeps, slow ones of others.

    `others` are the cases of other runs, in which a node is slow if it was the slowest of a repeat
    more often than by chance. The keys are nodes.
    """
    contests = [
        {Machine(node): seconds for node, seconds in contest.items()}
        for cases in others
        for case in cases
        for contest in group_comparable_nodes(case.records)
    ]
    bad = {slow.machine.host: SLOW for slow in find_slow_machines(contests)}
    for verdicts in sweeps:
        for kind in (SLOW, WRONG, FAILED):
            bad.update(dict.fromkeys(verdicts.list_nodes(kind), kind))
    return bad
