"""Machines, versions and settings that differ within a run become footnotes; like ones do not."""

import dataclasses

import pytest
from builders import make_outcomes, make_planned_case
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.provenance import (
    MAX_VALUE_CHARACTERS,
    NOT_COMPARED,
    describe_affinity,
    describe_isolation,
)
from dlperf_slurm.results.stability import describe_stability

RATES = (100.0, 101.0, 99.0)


def make_case(topology="1n1g", changes=(), hosts=(), **planned) -> CaseOutcomes:
    """Make a case of repeats with these platforms and versions; `hosts` rename them in turn."""
    facts = {"platform": {"cpu_model": "A", "env.NCCL_ALGO": "Ring"}, "versions": {"torch": "2.1"}}
    outcomes = make_outcomes(make_planned_case(topology, **planned), RATES, **facts)
    repeats = list(outcomes.outcomes)
    for index, record_changes in enumerate(changes):
        record = repeats[index].record
        case = vary(record.case, repeat=index + 1)
        host = hosts[index] if index < len(hosts) else "node1"
        ranks = tuple(dataclasses.replace(rank, host=host) for rank in record.ranks)
        ranks = ranks if hosts else record.ranks
        record = dataclasses.replace(record, case=case, ranks=ranks, **record_changes)
        repeats[index] = dataclasses.replace(repeats[index], record=record)
    return CaseOutcomes(outcomes.case, tuple(repeats))


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
    odd = make_case("4n1g", changes=[on_cpu("B")] * 3)
    found = describe(make_case("1n1g"), make_case("2n1g"), odd)
    assert list(found) == ["pytorch-resnet50-4n1g-bs8-fp32"]
    (text,) = found["pytorch-resnet50-4n1g-bs8-fp32"]
    places = "node1, node2 and 2 more"
    assert_problem(text, says=("cpu_model 'B'", f"({places})", "'A'"))


def test_settings_of_one_framework_and_precision_are_compared():
    odd = make_case("2n1g", changes=[{"platform": {"env.NCCL_ALGO": "Tree"}}] * 3)
    ((text,),) = describe(make_case("1n1g"), odd).values()
    assert "env.NCCL_ALGO 'Tree' (node1 and node2), else 'Ring'" in text


def test_long_values_are_cut():
    changes = [on_cpu("A" * 500), on_cpu("A" * 499 + "B"), on_cpu("A" * 500)]
    ((text,),) = describe(make_case(changes=changes, hosts=["n1", "n2", "n1"])).values()
    assert "A" * (MAX_VALUE_CHARACTERS + 1) not in text
    assert f"'{'A' * MAX_VALUE_CHARACTERS}...' (n1)" in text


@pytest.mark.parametrize(
    ("affinity", "hosts"), [("near", []), ("far", ["n1"]), ("near; far", ["n1"])]
)
def test_host_is_named_whose_cores_are_far_from_a_gpu(affinity, hosts):
    far = make_case("1n2g", changes=[on_cpu("A", gpu_affinity=affinity)], hosts=["n1"])
    texts = list(describe_affinity(far.records))
    assert len(texts) == len(hosts)
    assert all(text.startswith(f"ranks on {hosts[0]} ") for text in texts)


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


def test_far_cores_are_among_the_doubts_of_a_case():
    far = make_case("1n1g", changes=[on_cpu("A", gpu_affinity="far")])
    assert any("another NUMA node" in str(note) for note in describe_stability(far))
    assert not any("NUMA" in str(note) for note in describe_stability(make_case("1n1g")))
