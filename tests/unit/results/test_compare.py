"""Two runs' outcomes -> verdicts: real differences are found, chance ones rarely, others named."""

import dataclasses
import math
from random import Random
from types import SimpleNamespace

import numpy
import pytest
from builders import make_manifest, make_outcomes, make_planned_case, make_rank, make_record
from outcome_builders import RATES, change_outcomes, make_case_outcomes, make_telemetry, scale
from support.problems import assert_problem

from dlperf_slurm.contract.record import HOST, HostPlatform
from dlperf_slurm.errors import CasesFailedError
from dlperf_slurm.jobs.manifest import IMPORT_SITE
from dlperf_slurm.reports.comparison_text import describe_method
from dlperf_slurm.reports.regression_check import guard_comparison
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.comparability import describe_changes, list_provenance
from dlperf_slurm.results.compare import MEAN_LATENCY, compare_runs
from dlperf_slurm.results.significance import EQUIVALENT, FASTER, NOT_COMPARABLE, SLOWER, UNDECIDED


def compare(a, b, limit=None, manifest_b=None):
    """Return the rows of a comparison, with attributes."""
    manifest = make_manifest()
    pairs = compare_runs(manifest, a, manifest_b or manifest, b, limit).pairs
    return [SimpleNamespace(**row) for row in list_records(pairs)]


def compare_rates(a, b, limit=None):
    (pair,) = compare([make_case_outcomes(a)], [make_case_outcomes(b)], limit)
    return pair


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [(1, 0.9, SLOWER), (1, 1.1, FASTER), (1, 1, EQUIVALENT)],
)
def test_verdict_is_of_the_ratio_of_medians(a, b, verdict):
    pair = compare_rates(scale(RATES, a), scale(RATES, b))
    assert (pair.verdict, pair.speed_ratio) == (verdict, pytest.approx(b / a))
    assert pair.speed_ratio_low < pair.speed_ratio < pair.speed_ratio_high
    assert (pair.is_beyond_limit, pair.is_within_limit) == (False, False)


def test_p_value_of_one_case_is_that_of_the_test():
    assert compare_rates(RATES, scale(RATES, 0.9)).p_value == pytest.approx(2 / 3432)


def test_too_few_repeats_say_how_many_it_takes_for_so_many_cases():
    pair = compare_rates(RATES[:3], scale(RATES[:3], 0.5))
    assert (pair.verdict, pair.speed_ratio_low) == (UNDECIDED, None)
    assert_problem(pair.reason, says=("3 and 3 repeats", "6"))
    # 24 cases: 24 * 2 / 924 is above 0.05, so six repeats no longer do
    a = [make_case_outcomes(RATES[:5], n) for n in range(24)]
    for pair in compare(a, a):
        assert pair.verdict == UNDECIDED
        assert_problem(pair.reason, says=("5 and 5 repeats", "7"))


def test_case_without_enough_repeats_takes_nothing_from_the_others():
    few = make_case_outcomes(RATES[:3])
    a, b = (
        [few, *(make_case_outcomes(scale(RATES[:6], factor), n) for n in range(1, 24))]
        for factor in (1, 0.5)
    )
    assert [c.verdict for c in compare(a, b)] == [UNDECIDED, *[SLOWER] * 23]


@pytest.mark.parametrize(
    ("factor", "limit", "is_beyond"),
    [(0.9, 0.03, True), (0.98, 0.03, False), (1.1, 0.03, False), (0.1, None, False)],
)
def test_limit_is_passed_by_more_than_it_alone(factor, limit, is_beyond):
    pair = compare_rates(RATES, scale(RATES, factor), limit)
    assert (pair.is_beyond_limit, pair.verdict) == (is_beyond, FASTER if factor > 1 else SLOWER)


def test_difference_that_does_not_matter_is_said_to_be_small():
    pair = compare_rates(RATES, [0.99 * 100 + 0.01 * r for r in range(7)])
    assert (pair.verdict, pair.is_within_margin) == (SLOWER, True)


def make_inference(latency):
    planned = make_planned_case(case_id="val", mode="infer", repeats=7)
    return change_outcomes(
        make_outcomes(planned, RATES),
        lambda one: {"rank_step_seconds": numpy.full((1, 3), latency * (1 + one.repeat / 1000))},
    )


def test_longer_latency_is_slower_even_at_the_same_throughput():
    throughput, latency = compare([make_inference(0.1)], [make_inference(0.2)], 0.03)
    assert (throughput.verdict, throughput.is_beyond_limit) == (EQUIVALENT, False)
    assert (latency.quantity, latency.verdict) == (MEAN_LATENCY, SLOWER)
    assert latency.is_beyond_limit
    assert latency.speed_ratio == pytest.approx(0.5)
    assert latency.speed_ratio_low < 0.5 < latency.speed_ratio_high


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model_parameters": {"width": 16}}, "model_parameters {} -> {'width': 16}"),
        ({"measured_steps": 20}, "measured_steps 10 -> 20"),
        ({"devices_per_node": 2}, "topology 1n1g -> 1n2g"),
        ({"mode": "infer"}, "mode train -> infer"),
        (None, "parameter_count 25557032 -> 7"),
    ],
)
def test_other_work_is_not_comparable(changes, text):
    record = {"changes": changes} if changes else {"parameter_count": 7}
    (pair,) = compare([make_case_outcomes()], [make_case_outcomes(**record)])
    assert (pair.verdict, pair.reason) == (NOT_COMPARABLE, f"different workload: {text}")
    # it has figures, but no ratio
    assert (pair.speed_ratio, pair.p_value) == (None, None)
    assert pair.samples_a == pytest.approx(RATES)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"versions": {"torch": "2.14.0"}}, "torch 2.13.0 -> 2.14.0"),
        ({"versions": {}}, "torch 2.13.0 -> none"),
        ({"job": {"SLURM_JOB_PARTITION": "gpu"}}, "SLURM_JOB_PARTITION none -> gpu"),
        ({"ranks": (make_rank(device_name="H200", window_seconds=0.8),)}, "devices cpu -> H200"),
        ({"changes": {"cpus_per_rank": 9}}, "case.cpus_per_rank 1 -> 9"),
        (
            {"telemetry": (make_telemetry(HOST, stolen_share=0.24), make_telemetry(0))},
            "CPU time that a hypervisor gave to other machines (steal) 0 % -> 24 %",
        ),
        ({"telemetry": (make_telemetry(HOST, stolen_share=0.019),)}, ""),
        ({"ranks": (make_rank(host="node9", window_seconds=0.8),)}, ""),
        ({"job": {"SLURM_JOB_ID": "7"}}, ""),
    ],
)
def test_what_else_changed_is_named_beside_the_verdict(changes, text):
    (pair,) = compare([make_case_outcomes()], [make_case_outcomes(**changes)])
    assert (pair.changes, pair.verdict) == ([text] if text else [], EQUIVALENT)


def test_facts_of_every_host_are_compared_but_those_that_only_name_machines():
    record = make_record(platform={"cpu_model": "A", "cpu_list": "0-3", "compilation": "cached"})
    other = make_record(
        platform={"cpu_model": "A", "cpu_list": "4-7"},
        hosts=(HostPlatform("node2", {"cpu_model": "B"}),),
    )
    facts = [list_provenance([one]) for one in (record, other)]
    assert describe_changes(*facts) == ["cpu_model A -> A and B"]


def test_cases_of_one_run_only_are_listed():
    a, b = make_case_outcomes(number=1), make_case_outcomes(number=2)
    assert [(c.case_id, c.verdict, c.reason) for c in compare([a], [b])] == [
        ("case1", NOT_COMPARABLE, "only run A has this case"),
        ("case2", NOT_COMPARABLE, "only run B has this case"),
    ]
    assert compare([], []) == []


def test_case_without_a_figure_in_one_run_says_why():
    failed = make_outcomes(make_planned_case(case_id="case0"), (), ["failed: x"])
    left_out = CaseOutcomes(make_planned_case(case_id="case0", reason="2n2g needs 2 nodes"), ())
    reasons = [
        compare([make_case_outcomes()], [failed])[0].reason,
        compare([left_out], [make_case_outcomes()])[0].reason,
    ]
    assert_problem(reasons[0], says=("B", "failed: x"))
    assert_problem(reasons[1], says=("A", "2n2g needs 2 nodes"))


def test_medians_of_blocks_are_compared():
    case = make_case_outcomes([1.0, 10.0, 100.0, 2.0, 20.0, 200.0, 3.0])
    blocked = CaseOutcomes(dataclasses.replace(case.case, blocks=3), case.outcomes)
    (pair,) = compare([blocked], [blocked])
    assert pair.samples_a == pytest.approx((2.0, 15.0, 150.0))
    assert pair.verdict == UNDECIDED
    assert pair.reason.startswith("3 and 3 blocks; at least 6 in each run")


@pytest.mark.parametrize(
    ("started_b", "is_import", "is_in_sequence"),
    [("12:01:00", False, True), ("12:00:30", False, False), ("12:01:00", True, False)],
)
def test_runs_made_one_after_the_other_are_said_to_be(started_b, is_import, is_in_sequence):
    planned = make_planned_case(repeats=2)
    times = [(f"2024-05-01T{time}Z" for time in two)
             for two in (("12:00:00", "12:01:00"), (started_b, "12:02:00"))]  # fmt: skip
    a, b = (
        make_outcomes(planned, RATES[:2], started_at=start, ended_at=end) for start, end in times
    )
    site = {"site_name": IMPORT_SITE} if is_import else {}
    manifests = [make_manifest(run_id=name, interleaved=("a", "b"), **site) for name in "ab"]
    compared = compare_runs(manifests[0], [a], manifests[1], [b])
    assert compared.is_in_sequence == is_in_sequence
    other_way = compare_runs(manifests[1], [b], manifests[0], [a])
    assert other_way.is_in_sequence == is_in_sequence
    # a run whose turn was missed is not interleaved
    assert ("interleaved: " in describe_method(compared)) == (not is_in_sequence)
    stranger = dataclasses.replace(manifests[1], run_id="c", interleaved=())
    assert "interleaved: " not in describe_method(compare_runs(manifests[0], [a], stranger, [b]))


def keep_records(case, repeats):
    """Make all repeats of a case fail but these."""
    outcomes = [
        one if one.repeat in repeats else dataclasses.replace(one, record=None, problem="failed")
        for one in case.outcomes
    ]
    return CaseOutcomes(case.case, tuple(outcomes))


def compare_in_turns(first_run, missing=None, slowdown=0.01, interleaved=("a", "b")):
    """Compare runs on a machine that slows down by 3 %; repeat `missing` of B failed."""
    random = Random(2020)
    speeds = [(100 - 3 * turn / 13) * math.exp(random.gauss(0, 0.0005)) for turn in range(14)]
    rates = {"A": speeds[::2], "B": [(1 - slowdown) * speed for speed in speeds[1::2]]}
    if first_run == "B":
        rates = {"A": speeds[1::2], "B": [(1 - slowdown) * speed for speed in speeds[::2]]}
    planned = make_planned_case(repeats=7)
    a, b = (make_outcomes(planned, own) for own in rates.values())
    if missing:
        b = keep_records(b, {*range(1, 8)} - {missing})
    manifests = [make_manifest(run_id=name, interleaved=interleaved) for name in "ab"]
    return compare_runs(manifests[0], [a], manifests[1], [b])


@pytest.mark.parametrize(("first_run", "interleaved"), [("A", ("a", "b")), ("B", ("b", "a"))])
@pytest.mark.parametrize("missing", [None, 3])
def test_runs_in_turns_are_compared_turn_by_turn_without_the_drift(first_run, interleaved, missing):
    compared = compare_in_turns(first_run, missing, interleaved=interleaved)
    (pair,) = list_records(compared.pairs)
    assert pair["verdict"] == SLOWER
    assert pair["speed_ratio"] == pytest.approx(0.99, abs=0.001)
    assert len(pair["samples_a"]) == len(pair["samples_b"]) == (6 if missing else 7)
    assert "Wilcoxon" in describe_method(compared)
    # the drift hides it from a test of independent repeats
    (pair,) = list_records(compare_in_turns(first_run, missing, interleaved=()).pairs)
    assert pair["verdict"] in (UNDECIDED, EQUIVALENT)


@pytest.mark.parametrize("kept_b", [2, None])
def test_runs_in_turns_without_a_common_repeat_are_not_compared_and_guarded(kept_b):
    run = make_outcomes(make_planned_case(repeats=2), RATES[:2])
    a, b = (keep_records(run, {kept}) for kept in (1, kept_b))
    manifests = [make_manifest(run_id=name, interleaved=("a", "b")) for name in "ab"]
    compared = compare_runs(manifests[0], [a], manifests[1], [b], limit=0.5)
    (pair,) = list_records(compared.pairs)
    assert (pair["verdict"], pair["reason"] != "") == (NOT_COMPARABLE, True)
    # a case that run A has measured may not be missing unnoticed in run B
    assert len(pair["samples_a"]) == 1
    with pytest.raises(CasesFailedError):
        guard_comparison(compared)
