"""Machines, versions and settings that differ within a run become footnotes; like ones do not."""

import dataclasses

import pytest
from builders import make_outcomes, make_planned_case
from outcome_builders import change_outcomes
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.provenance import (
    MAX_VALUE_CHARACTERS,
    NOT_COMPARED,
    describe_isolation,
)
from dlperf_slurm.results.stability import describe_stability

RATES = (100.0, 101.0, 99.0)


def make_case(topology="1n1g", changes=(), hosts=(), **planned) -> CaseOutcomes:
    """Make a case of repeats with these platforms and versions; `hosts` rename them in turn."""

    def list_changes(outcome):
        index, ranks = outcome.repeat - 1, outcome.record.ranks
        if index < len(hosts):
            ranks = tuple(dataclasses.replace(rank, host=hosts[index]) for rank in ranks)
        own = changes[index] if index < len(changes) else {}
        case = vary(outcome.record.case, repeat=outcome.repeat)
        return {"record": {"case": case, "ranks": ranks, **own}}

    facts = {"platform": {"cpu_model": "A", "env.NCCL_ALGO": "Ring"}, "versions": {"torch": "2.1"}}
    outcomes = make_outcomes(make_planned_case(topology, **planned), RATES, **facts)
    return change_outcomes(outcomes, list_changes)


def describe(*cases):
    """Return the differences of each case that has any."""
    found = {}
    notes = analyze(cases).notes
    for case_id, text in zip(notes.case_id, notes.note):
        if str(text).startswith(("hosts differ", "repeats differ", "differs from most")):
            found.setdefault(case_id, []).append(text)
    return found


def on_cpu(model, **more):
    return {"platform": {"cpu_model": model, **more}}


def make_odd(**changes):
    """Make a case with these changes in its three records."""
    topology = changes.pop("topology", "2n1g")
    planned = {name: changes.pop(name) for name in ("framework", "precision") if name in changes}
    return make_case(topology, [changes] * 3, case_id="odd", **planned)


@pytest.mark.parametrize(
    "cases",
    [
        [make_case("1n1g"), make_case("2n2g")],
        [make_outcomes(make_planned_case(), (), ["failed: x"])],
        # logs of other scripts tell nothing to compare
        [make_odd(platform={}, versions={})],
        # what only tells machines apart, or has no part in what is measured
        [make_case(changes=[on_cpu("A", **dict.fromkeys(NOT_COMPARED, id)) for id in "abc"])],
        # what follows from the topology
        [
            make_case("1n8g", [on_cpu("A", cgroup_cpus="16", gpu_count="8")] * 3),
            make_case("1n1g", [on_cpu("A", cgroup_cpus="2", gpu_count="1")] * 3),
        ],
        # an adapter sets one for a single node, a library is loaded for several ranks
        [make_case("1n1g"), make_odd(platform={"cpu_model": "A"})],
        # versions and settings are compared within a framework and a precision
        *(
            [
                make_case("1n1g"), make_case("2n1g"),
                make_odd(platform={"env.NCCL_ALGO": "Tree"}, versions={"torch": "2.2"}, **axis),
            ]
            for axis in ({"framework": "jax"}, {"precision": "tf32"})
        ),
    ],
)  # fmt: skip
def test_what_is_alike_or_cannot_be_alike_is_no_difference(cases):
    assert describe(*cases) == {}


def test_repeats_on_other_hosts_are_named_by_host():
    case = make_case(changes=[on_cpu("A"), on_cpu("B"), on_cpu("A")], hosts=["n1", "n2", "n3"])
    (texts,) = describe(case).values()
    assert texts == ["hosts differ: cpu_model 'A' (n1 and n3), 'B' (n2)"]


def test_host_that_changed_between_repeats_is_named_with_them():
    drivers = [on_cpu("A", gpu_driver=version) for version in ("550", "550", "560")]
    (texts,) = describe(make_case(changes=drivers, hosts=["n1", "n1", "n1"])).values()
    assert texts == [
        "repeats differ: gpu_driver '550' (n1 in repeat 1 and n1 in repeat 2), "
        "'560' (n1 in repeat 3)"
    ]


def test_hosts_of_one_repeat_that_differ_are_named():
    hosts = (HostPlatform("node2", {"cpu_model": "B", "env.NCCL_ALGO": ""}),)
    (texts,) = describe(make_case("2n1g", changes=[{"hosts": hosts}] * 3)).values()
    assert texts == [
        "hosts differ: cpu_model 'A' (node1), 'B' (node2); "
        "env.NCCL_ALGO 'Ring' (node1), none (node2)"
    ]


def test_case_on_another_machine_than_the_others_is_the_one_that_is_named():
    odd = make_odd(topology="4n1g", **on_cpu("B", **{"env.NCCL_ALGO": "Tree"}))
    ((case_id, (text,)),) = describe(make_case("1n1g"), make_case("2n1g"), odd).items()
    assert case_id == "odd"
    places = "(node1, node2 and 2 more)"
    says = (f"cpu_model 'B' {places}, else 'A'", f"env.NCCL_ALGO 'Tree' {places}, else 'Ring'")
    assert_problem(text, says=says)


@pytest.mark.parametrize(("affinity", "is_far"), [("near", False), ("near; far", True)])
def test_host_is_named_whose_cores_are_far_from_a_gpu(affinity, is_far):
    far = make_case("1n2g", changes=[on_cpu("A", gpu_affinity=affinity)], hosts=["n1"])
    texts = [str(note) for note in describe_stability(far) if "NUMA node" in str(note)]
    assert [text.startswith("ranks on n1 ") for text in texts] == [True] * is_far


@pytest.mark.parametrize(
    ("topology", "device", "job", "told"),
    [
        ("1n2g", "cuda", {"SLURM_GPUS_PER_TASK": "1"}, "SLURM_GPUS_PER_TASK=1"),
        ("1n2g", "cuda", {"SLURM_GPU_BIND": "single:1"}, "SLURM_GPU_BIND=single:1"),
        ("1n2g", "cuda", {"SLURM_GPU_BIND": "none"}, None),
        ("1n2g", "cuda", {"SLURM_CPU_BIND": "cores"}, None),
        # one rank of a node goes to no neighbour
        ("2n1g", "cuda", {"SLURM_GPUS_PER_TASK": "1"}, None),
        ("1n2g", "cpu", {"SLURM_GPUS_PER_TASK": "1"}, None),
    ],
)
def test_ranks_that_see_but_their_own_gpu_are_told(topology, device, job, told):
    outcomes = make_outcomes(make_planned_case(topology), RATES, job=job)
    records = [
        dataclasses.replace(record, case=vary(record.case, device=device))
        for record in outcomes.records
    ]
    texts = list(describe_isolation(records))
    assert [f"({told})" in text for text in texts] == [True] * (told is not None)


def test_long_values_are_cut():
    changes = [on_cpu("A" * 500), on_cpu("A" * 499 + "B"), on_cpu("A" * 500)]
    ((text,),) = describe(make_case(changes=changes, hosts=["n1", "n2", "n1"])).values()
    assert "A" * (MAX_VALUE_CHARACTERS + 1) not in text
    assert f"'{'A' * MAX_VALUE_CHARACTERS}...' (n1)" in text
