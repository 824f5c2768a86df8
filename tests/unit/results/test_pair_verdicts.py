"""Verdicts on nodes and links, from pairs that were measured, failed or did not run."""

from dataclasses import replace
from itertools import combinations

import pytest
from builders import make_manifest, make_outcomes, make_planned_case

from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.errors import BadNodesError
from dlperf_slurm.jobs.grouping import choose_pairs
from dlperf_slurm.reports.node_verdicts_text import guard_nodes, serialize_nodes, tabulate_nodes
from dlperf_slurm.results.collect import NO_RECORD_YET, CaseOutcomes, Outcome
from dlperf_slurm.results.pair_verdicts import find_failed_nodes, judge_pairs

NODES = tuple(f"n{number}" for number in range(1, 9))
BLOCKS = 3


def judge(slow=(), failed=(), problem="no record: TIMEOUT", old=()):
    """Judge eight nodes in seven rounds; `slow` and `failed` have nodes and links ("n1+n2").

    The `old` nodes are of another kind, half as fast; the slower node of a pair sets its speed.
    """
    pairs = choose_pairs(NODES, 7, 0)
    planned = make_planned_case("2n1g", repeats=BLOCKS * len(pairs), blocks=7)
    names = [{*pair.split(","), pair.replace(",", "+")} for pair in pairs * BLOCKS]
    speeds = {name: (0.9 if name in slow else 1) * (0.5 if name in old else 1) for name in NODES}
    rates = [
        100
        * min(speeds.get(name, 1) for name in own)
        * 0.9 ** any("+" in name for name in own & {*slow})
        * (1 + 0.001 * ((7 * index) % 5))
        for index, own in enumerate(names)
    ]
    outcomes = [
        Outcome(one.case_id, one.repeat, None, problem)
        if own & {*failed}
        else replace(one, record=name_hosts(one.record, pair, old))
        for one, own, pair in zip(make_outcomes(planned, rates).outcomes, names, pairs * BLOCKS)
    ]
    manifest = make_manifest(nodes=pairs, cases=(planned,), absent_nodes=["n9: down"])
    return judge_pairs(manifest, [CaseOutcomes(planned, tuple(outcomes))])


def name_hosts(record, pair, old):
    hosts = [
        HostPlatform(node, {"gpu_models": "V100" if node in old else "H100"})
        for node in pair.split(",")
    ]
    ranks = [replace(rank, host=host.host) for rank, host in zip(record.ranks, hosts)]
    return replace(record, ranks=tuple(ranks), hosts=tuple(hosts))


def list_verdicts(judged):
    return {
        row.node: row.verdict
        for one in judged
        for row in one.nodes.itertuples()
        if row.verdict != "good"
    }


@pytest.mark.parametrize(
    ("slow", "failed", "verdicts"),
    [
        ((), (), {}),
        (["n2"], (), {"n2": "slow"}),
        (["n2+n5"], (), {"n2+n5": "slow"}),
        (["n2"], ["n4", "n7+n8"], {"n2": "slow", "n4": "failed", "n7+n8": "failed"}),
        ((), ["n4", "n6"], {"n4": "failed", "n6": "failed"}),
    ],
)
def test_bad_nodes_and_links_are_named_and_no_others(slow, failed, verdicts):
    judged = judge(slow, failed)
    assert list_verdicts(judged) == {**verdicts, "n9": "not available"}
    if verdicts:
        with pytest.raises(BadNodesError, match=r"\b" + [*verdicts][-1].replace("+", r"\+")):
            guard_nodes(judged)
    else:
        guard_nodes(judged)


@pytest.mark.parametrize("slow", [(), ["n2"], ["n7"], ["n5+n6"]])
@pytest.mark.parametrize("old", [NODES[:4], NODES[1::2]])
def test_nodes_of_two_kinds_are_compared_with_those_of_their_own(slow, old):
    found = list_verdicts(judge(slow, old=old))
    assert found == {**dict.fromkeys(slow, "slow"), "n9": "not available"}


def test_node_with_few_others_of_its_kind_is_undecided():
    nodes, links = judge(old=["n3"])
    assert list_verdicts([nodes, links]) == {"n3": "undecided", "n9": "not available"}
    (reason,) = nodes.nodes.reason[nodes.nodes.node == "n3"]
    assert reason.endswith("(V100); this sweep has 0")


def test_pairs_that_did_not_run_are_no_failure():
    assert list_verdicts(judge(failed=["n3+n4"], problem=NO_RECORD_YET)) == {
        "n3+n4": "not measured", "n9": "not available",
    }  # fmt: skip


def test_partner_of_two_failed_nodes_is_not_named():
    failures = {pair: ["x"] * bool({"n2", "n3"} & {*pair}) for pair in combinations(NODES, 2)}
    found = find_failed_nodes(failures)
    assert [*found] == ["n2", "n3"]
    assert "7 of 7" in found["n2"]


def test_table_of_links_has_the_bad_ones_first_and_few_good_ones():
    _, links = judge(["n2+n5"])
    table, _ = tabulate_nodes(links)
    assert len(table.rows) < 10
    assert table.rows[0][0].text == "n2+n5"
    assert len(serialize_nodes([links], [], {})["nodes"]) == 28


def test_slow_link_of_four_nodes_is_undecided_as_more_nodes_would_tell():
    pairs = choose_pairs(NODES[:4], 3, 0)
    planned = make_planned_case("2n1g", repeats=BLOCKS * len(pairs), blocks=3)
    rates = [(100 + index % 4) * (0.8 if index % 6 == 0 else 1) for index in range(18)]
    manifest = make_manifest(nodes=pairs, cases=(planned,))
    _, links = judge_pairs(manifest, [make_outcomes(planned, rates)])
    (slow,) = links.nodes[links.nodes.verdict != "good"].itertuples()
    assert (slow.node, slow.verdict) == (pairs[0].replace(",", "+"), "undecided")
    assert "six or more" in slow.reason
    table, _ = tabulate_nodes(links)
    # without an interval
    assert "to" not in table.rows[0][2].text


def test_node_that_seems_slow_is_undecided_with_the_rounds_that_would_decide():
    pairs = choose_pairs(NODES, 3, 0)
    planned = make_planned_case("2n1g", repeats=BLOCKS * len(pairs), blocks=3)
    rates = [100 * (0.9 if index % 12 in (0, 5, 7) else 1) for index in range(BLOCKS * len(pairs))]
    manifest = make_manifest(nodes=pairs, cases=(planned,))
    nodes, links = judge_pairs(manifest, [make_outcomes(planned, rates)])
    undecided = [one.nodes[one.nodes.verdict == "undecided"].reason for one in (nodes, links)]
    assert undecided[0].str.contains(r"about \d+ more rounds").all()
    assert undecided[1].str.contains(r"about \d+ more blocks").all()
    assert sum(map(len, undecided))
