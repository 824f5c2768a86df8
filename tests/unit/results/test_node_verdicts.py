"""Verdicts on the nodes of a sweep, from repeats that were measured, failed or did not run."""

from dataclasses import replace

import pytest
from builders import (
    make_case,
    make_manifest,
    make_outcomes,
    make_planned_case,
    make_ranks,
    make_record,
)

from dlperf_slurm.errors import BadNodesError, CasesFailedError, InconclusiveError
from dlperf_slurm.reports.node_verdicts_text import guard_nodes, serialize_nodes, tabulate_nodes
from dlperf_slurm.results.collect import NO_RECORD_YET, NOT_SUBMITTED, CaseOutcomes, Outcome
from dlperf_slurm.results.loss_bits import BitVerdicts, compare_bits
from dlperf_slurm.results.node_verdicts import (
    decide_verdict,
    find_bad_nodes,
    judge_nodes,
)
from dlperf_slurm.stats.slow_nodes import NodeEffect

NODES = tuple(f"n{number}" for number in range(1, 9))
BLOCKS = 4


def judge(factors=None, problems=None, absent=(), facts=None, hours=None, losses=None):
    """Judge eight nodes; `factors` are on the throughput of a node, `problems` in its place.

    `facts` are those that the records of a node have, `hours` the hour in which it was measured,
    `losses` of each block of a node, 1 if it is not there.
    """
    factors, problems, facts, hours = factors or {}, problems or {}, facts or {}, hours or {}
    planned = make_planned_case(repeats=len(NODES) * BLOCKS)
    rates = [
        100 * factors.get(node, 1.0) * (1 + 0.001 * ((7 * block + 3 * place) % 5))
        for block in range(BLOCKS)
        for place, node in enumerate(NODES)
    ]
    measured = make_outcomes(planned, rates).outcomes
    outcomes = []
    for number, outcome in enumerate(measured):
        node = NODES[number % len(NODES)]
        times = (f"2024-05-01T{hours.get(node, 12)}:{minutes}:00Z" for minutes in ("00", "01"))
        (rank,) = outcome.record.ranks
        loss = (losses or {}).get(node, [1.0] * BLOCKS)[number // len(NODES)]
        record = replace(
            outcome.record,
            platform=facts.get(node, {}),
            ranks=(replace(rank, final_loss=loss),),
            job={"SLURM_JOB_NODELIST": node},
            **dict(zip(("started_at", "ended_at"), times)),
        )
        outcome = replace(outcome, record=record)
        lost = node in problems
        outcomes.append(replace(outcome, record=None, problem=problems[node]) if lost else outcome)
    manifest = make_manifest(nodes=NODES, absent_nodes=absent, cases=(planned,))
    return judge_nodes(manifest, [CaseOutcomes(planned, tuple(outcomes))])


def get_verdicts(judged):
    return dict(zip(judged.nodes.node, judged.nodes.verdict))


def test_each_node_has_its_verdict_and_the_bad_ones_come_first():
    judged = judge(
        {"n2": 0.9},
        {"n3": "no record: NODE_FAIL", "n4": NO_RECORD_YET},
        absent=["n9: drained"],
    )
    assert get_verdicts(judged) == {
        **dict.fromkeys(NODES, "good"),
        "n2": "slow",
        "n3": "failed",
        "n4": "not measured",
        "n9": "not available",
    }
    assert judged.list_nodes("failed", "slow") == ["n2", "n3"]
    table, notes = tabulate_nodes(judged)
    assert [row[0].text for row in table.rows] == [
        *("n3", "n2", "n4", "n9", "n1", "n5", "n6", "n7", "n8")
    ]
    assert any("NODE_FAIL" in note for note in notes)
    with pytest.raises(BadNodesError, match=r"n3.*n2"):
        guard_nodes([judged])


def test_node_that_ran_nothing_is_not_called_bad():
    judged = judge(problems={"n1": NOT_SUBMITTED})
    assert get_verdicts(judged)["n1"] == "not measured"
    with pytest.raises(CasesFailedError, match="n1"):
        guard_nodes([judged])


def test_node_with_a_failed_repeat_is_failed_unless_its_job_was_cancelled():
    cancelled = Outcome("case", 1, None, "failed: terminated: CANCELLED", is_cancelled=True)
    assert decide_verdict([cancelled], [], [], 0.02)[0] == "not measured"
    failed = Outcome("case", 1, None, "failed: the script printed: CANCELLED")
    slow = NodeEffect(0.9, 0.8, 0.95, 0.001)
    assert decide_verdict([failed], [slow], ["throughput"], 0.02)[0] == "failed"


def test_node_that_seems_slow_is_undecided_with_the_blocks_that_would_decide():
    planned = make_planned_case(repeats=4 * 3)
    noise = [1.0, 0.93, 1.02, 0.97, 1.01, 0.9, 1.05, 0.96, 0.99, 1.06, 0.95, 1.03]
    outcomes = make_outcomes(planned, [100 * one for one in noise])
    judged = judge_nodes(make_manifest(nodes=NODES[:4], cases=(planned,)), [outcomes])
    assert "undecided" in get_verdicts(judged).values()
    assert judged.nodes.reason.str.contains(r"about \d+ more blocks").any()
    with pytest.raises(InconclusiveError):
        guard_nodes([judged])


def test_json_has_each_figure():
    told = serialize_nodes([judge({"n2": 0.9})], [], {})
    (_, slow, *_) = told["nodes"]
    assert slow["run_id"] == make_manifest().run_id
    (effect,) = slow["effects"]
    assert (slow["verdict"], effect["figure"]) == ("slow", "throughput")
    assert effect["low"] < 0.9 < effect["high"] < 0.95


def test_nodes_are_compared_with_those_of_their_kind():
    models = dict.fromkeys(NODES[:4], "A100") | dict.fromkeys(NODES[4:7], "H100") | {"n8": "L4"}
    speeds = dict.fromkeys(NODES[4:7], 2.0) | {"n3": 0.9, "n8": 0.3}
    judged = judge(speeds, facts={node: {"gpu_models": model} for node, model in models.items()})
    found = get_verdicts(judged)
    assert {node for node, verdict in found.items() if verdict != "good"} == {"n3", "n8"}
    assert (found["n3"], found["n8"]) == ("slow", "undecided")
    (reason,) = judged.nodes.reason[judged.nodes.node == "n8"]
    assert "L4" in reason


def test_reason_of_a_node_without_a_recorded_kind_says_so():
    facts = {node: {"gpu_models": "A100" if node < "n5" else "H100"} for node in NODES[:7]}
    judged = judge({"n8": 0.3}, facts=facts)
    (reason,) = judged.nodes.reason[judged.nodes.node == "n8"]
    assert reason.endswith("not recorded")


@pytest.mark.parametrize("hour", [12, 13])
def test_slow_node_that_was_measured_at_another_time_may_be_a_drift(hour):
    hours = dict.fromkeys(("n4", "n6", "n8"), 13)
    judged = judge({"n2": 0.9}, hours={**hours, "n2": hour})
    (reason,) = judged.nodes.reason[judged.nodes.node == "n2"]
    assert ("a change over time" in reason) == (hour == 13)


def test_what_differs_on_a_slow_node_stands_in_its_footnote():
    facts = {node: {"kernel": "6.1" if node == "n2" else "6.8"} for node in NODES}
    _, notes = tabulate_nodes(judge({"n2": 0.9}, facts=facts))
    assert any("kernel '6.1'" in note and "'6.8'" in note for note in notes)


def test_slow_node_of_a_run_that_is_no_sweep_is_found_by_its_ranks():
    case = make_case(nodes=4, devices_per_node=1)
    planned = make_planned_case("4n1g", repeats=8)
    records = []
    for repeat in range(8):
        ranks = make_ranks(case)
        ranks = [
            replace(r, host=f"n{r.rank + 1}", window_seconds=2.0 + repeat * 0.01) for r in ranks
        ]
        ranks[2] = replace(ranks[2], window_seconds=2.3)
        records.append(make_record(case, ranks=tuple(ranks)))
    outcomes = [Outcome(planned.case_id, n, record, "") for n, record in enumerate(records, 1)]
    assert find_bad_nodes([], [[CaseOutcomes(planned, tuple(outcomes))]]) == {"n3": "slow"}


DETERMINISTIC = {node: {"env.DLPERF_SLURM_DETERMINISTIC": "1"} for node in NODES}
NEXT = 1.0000000000000002
OLD_DRIVER = {**DETERMINISTIC, "n2": {**DETERMINISTIC["n2"], "gpu_driver": "550"}}


@pytest.mark.parametrize(
    ("losses", "facts", "verdicts", "note"),
    [
        ({}, DETERMINISTIC, {}, "equal on 8 of 8"),
        # by the last bit, in each block
        ({"n2": [NEXT, 3.0, 4.0, 5.0]}, DETERMINISTIC, {"n2": "computes differently"}, "7 of 8"),
        ({"n2": [1.0, NEXT, 1.0, 1.0]}, DETERMINISTIC, {"n2": "undecided"}, "7 of 8"),
        # without deterministic kernels, a majority, or equal software nothing is said of a node
        ({"n2": [NEXT] * 4}, {}, {}, ""),
        ({node: [NEXT] * 4 for node in NODES[:4]}, DETERMINISTIC, {}, "not compared"),
        ({n: [1.0, NEXT, 1.0, 2.0] for n in NODES[:5]}, DETERMINISTIC, {}, "not deterministic"),
        ({"n2": [NEXT] * 4}, OLD_DRIVER, {}, "not compared bitwise: fewer than 3 nodes"),
    ],
)
def test_node_whose_losses_differ_in_a_bit_is_named(losses, facts, verdicts, note):
    judged = judge(losses=losses, facts=facts)
    assert get_verdicts(judged) == {**dict.fromkeys(NODES, "good"), **verdicts}
    assert note in "; ".join(judged.bit_notes)
    assert bool(note) == bool(judged.bit_notes)
    (table,) = tabulate_nodes(judged)[:1]
    assert note in table.caption
    told = serialize_nodes([judged], [], {})["bit_notes"]
    assert told == [{"run_id": judged.manifest.run_id, "note": n} for n in judged.bit_notes]
    if "computes differently" in verdicts.values():
        with pytest.raises(BadNodesError, match="n2"):
            guard_nodes([judged])
        assert "losses or weights" in " ".join(judged.nodes.reason)


def test_node_that_computes_differently_is_bad_and_may_be_slow_too():
    judged = judge({"n2": 0.9}, facts=DETERMINISTIC, losses={"n2": [NEXT] * 4})
    (reason,) = judged.nodes.reason[judged.nodes.node == "n2"]
    assert "slow: throughput" in reason
    assert find_bad_nodes([judged], []) == {"n2": "computes differently"}


def test_bits_of_other_numbers_of_steps_are_not_compared():
    records = {node: [make_record(platform=DETERMINISTIC[node])] * 2 for node in NODES[:3]}
    records["n1"] = [replace(records["n1"][0], measured_steps=200)] * 2
    verdicts = BitVerdicts()
    compare_bits(records, {}, verdicts)
    assert (verdicts.different, verdicts.unsure) == ({}, {})
    assert "steps" in verdicts.notes[0]
