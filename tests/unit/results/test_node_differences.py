"""The facts in which nodes differ from most nodes of their kind, from records."""

from dataclasses import replace

import pytest
from builders import make_case, make_failed_record, make_manifest, make_planned_case, make_record

from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.reports.node_verdicts_text import tabulate_differences
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.node_differences import list_differences, read_node_facts

CASE = make_case(nodes=1, devices_per_node=1)


def make_record_of(node, facts, time="12", case=CASE, **changes):
    return make_record(
        case,
        platform=facts,
        versions={},
        job={"SLURM_JOB_NODELIST": node},
        ended_at=f"2024-05-01T{time}:00:00Z",
        **changes,
    )


def make_run(outcomes, run_id="r1"):
    planned = make_planned_case("1n1g", repeats=len(outcomes))
    return make_manifest(run_id=run_id), [CaseOutcomes(planned, tuple(outcomes))]


def measure(by_node, run_id="r1", time="12"):
    """Make a run with a repeat on each node, whose record has these facts."""
    records = [make_record_of(node, facts, time) for node, facts in by_node.items()]
    return make_run([Outcome("c", n, one, "") for n, one in enumerate(records, 1)], run_id)


def compare(*runs):
    rows = list_differences(read_node_facts(runs))
    return [(row.fact, row.usual, row.value, row.nodes) for row in rows]


def test_values_of_few_nodes_are_listed_with_the_value_of_most():
    facts = {
        f"n{n}": {"kernel": "6.8", "gpu_pcie": "gen4 x16", "cpu_list": str(n)} for n in range(6)
    }
    facts["n2"]["kernel"] = facts["n5"]["kernel"] = "6.1"
    facts["n4"]["gpu_pcie"] = "gen4 x8"
    assert compare(measure(facts)) == [
        ("gpu_pcie", "gen4 x16", "gen4 x8", ("n4",)),
        ("kernel", "6.8", "6.1", ("n2", "n5")),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "a", "a"], []),
        # two nodes have no majority, nor have two halves
        (["a", "b"], [(None, "a", ("n0",)), (None, "b", ("n1",))]),
        (["a", "a", "b", "b"], [(None, "a", ("n0", "n1")), (None, "b", ("n2", "n3"))]),
        # such as addresses
        (["a", "b", "c"], []),
    ],
)
def test_value_without_a_majority(values, expected):
    facts = {f"n{n}": {"kernel": value} for n, value in enumerate(values)}
    assert [row[1:] for row in compare(measure(facts))] == expected


def test_models_are_compared_over_all_nodes_and_other_facts_within_a_kind():
    facts = {f"n{n}": {"gpu_models": "A100", "gpu_vbios": "92"} for n in range(5)}
    facts.update({f"n{n}": {"gpu_models": "H100", "gpu_vbios": "96"} for n in range(5, 8)})
    facts["n7"]["gpu_vbios"] = "95"
    rows = list_differences(read_node_facts([measure(facts)]))
    assert [(row.fact, row.kind, row.value, row.nodes) for row in rows] == [
        ("gpu_vbios", "H100", "95", ("n7",)),
        ("gpu_models", "", "H100", ("n5", "n6", "n7")),
    ]


def test_last_value_of_a_machine_counts_over_runs():
    old = measure({node: {"gpu_driver": "550"} for node in ("n1", "n2", "n3")}, time="11")
    new = measure({node: {"gpu_driver": "570"} for node in ("n1", "n3", "n4")}, "r2")
    assert compare(new, old) == [("gpu_driver", "570", "550", ("n2",))]


def test_settings_of_a_case_are_compared_within_its_run_alone():
    first = measure({node: {"env.NCCL_IB_HCA": "mlx5_0"} for node in ("n1", "n2")})
    second = measure({node: {"env.NCCL_IB_HCA": "mlx5_1"} for node in ("n3", "n4")}, "r2")
    assert compare(first, second) == []
    unset = measure({"n1": {"env.NCCL_IB_HCA": "mlx5_0"}, "n2": {"os": "Debian"}})
    assert ("env.NCCL_IB_HCA", None, "", ("n2",)) in compare(unset)


def test_hosts_of_a_repeat_on_several_nodes_are_compared_by_slurms_names():
    case = make_case(nodes=3, devices_per_node=1)
    record = make_record(case, versions={}, platform={"kernel": "6.8"})
    ranks = [replace(rank, host=f"n{rank.rank}.site") for rank in record.ranks]
    other = HostPlatform("n2.site", {"kernel": "6.1"})
    record = replace(record, ranks=tuple(ranks), hosts=(other,))
    assert compare(make_run([Outcome("c", 1, record, "")])) == [("kernel", "6.8", "6.1", ("n2",))]


def test_failed_attempt_tells_its_machine_but_nothing_of_the_ranks():
    _, (case,) = measure({node: {"kernel": "6.8", "python": "3.11"} for node in ("n1", "n2")})
    failed = replace(
        make_failed_record(CASE),
        platform={"kernel": "6.1", "python": "3.9"},
        versions={},
        job={"SLURM_JOB_NODELIST": "n3"},
    )
    outcomes = [*case.outcomes, Outcome("c", 3, None, "failed", failed_record=failed)]
    assert compare(make_run(outcomes)) == [("kernel", "6.8", "6.1", ("n3",))]


def test_rows_of_bad_nodes_come_first_and_name_their_verdict():
    facts = {f"n{n}": {"kernel": "6.8", "gpu_pcie": "gen4 x16"} for n in range(9)}
    facts["n1"]["kernel"] = "6.1"
    facts["n2"]["gpu_pcie"] = facts["n3"]["gpu_pcie"] = "gen4 x8"
    rows = list_differences(read_node_facts([measure(facts)]))
    table = tabulate_differences(rows, {"n3": "slow"})
    first, second = ([cell.text for cell in row] for row in table.rows)
    assert (first[0], second[0]) == ("gpu_pcie", "kernel")
    assert first[-1] == "2 of 9: n3 (slow), n2"
