"""Two runs' outcomes -> verdicts: real differences are found, chance ones rarely, others named."""

import dataclasses
import math
import random

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, make_rank, make_record
from outcome_builders import RATES, make_case_outcomes, make_telemetry, scale
from support.problems import assert_problem

from dlperf_slurm.contract.record import HOST, HostPlatform
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.compare import (
    MEAN_LATENCY,
    Comparison,
    compare_runs,
)
from dlperf_slurm.results.same_work import list_surroundings, name_changes
from dlperf_slurm.results.significance import EQUIVALENT, FASTER, NOT_COMPARABLE, SLOWER, UNDECIDED


def compare(a, b, limit=None, manifest_b=None) -> "tuple[Comparison, ...]":
    manifest = make_manifest()
    return compare_runs(manifest, a, manifest_b or manifest, b, limit).comparisons


def compare_rates(a, b, limit=None) -> Comparison:
    (comparison,) = compare([make_case_outcomes(a)], [make_case_outcomes(b)], limit)
    return comparison


def test_slower_run_is_found_with_its_ratio():
    comparison = compare_rates(RATES, scale(RATES, 0.9))
    assert (comparison.verdict, comparison.speed_ratio) == (SLOWER, pytest.approx(0.9))


def test_faster_run_is_found():
    assert compare_rates(RATES, scale(RATES, 1.1)).verdict == FASTER


def test_same_figures_are_equivalent():
    comparison = compare_rates(RATES, RATES)
    assert (comparison.verdict, comparison.speed_ratio) == (EQUIVALENT, 1.0)


def test_interval_lies_around_the_ratio():
    comparison = compare_rates(RATES, scale(RATES, 0.9))
    assert comparison.interval.low < comparison.speed_ratio < comparison.interval.high


def test_p_value_of_one_case_is_that_of_the_test():
    assert compare_rates(RATES, scale(RATES, 0.9)).p_value == pytest.approx(2 / 3432)


def test_swapped_runs_have_the_opposite_verdict():
    assert compare_rates(scale(RATES, 0.9), RATES).verdict == FASTER


def test_three_repeats_are_too_few_for_any_difference():
    comparison = compare_rates(RATES[:3], scale(RATES[:3], 0.5))
    assert (comparison.verdict, comparison.interval) == (UNDECIDED, None)
    assert_problem(comparison.reason, says=("3 and 3 repeats", "6"))


def test_more_cases_take_more_repeats():
    # 24 cases: 24 * 2 / 924 is above 0.05, so six repeats no longer do
    a = [make_case_outcomes(RATES[:5], n) for n in range(24)]
    for comparison in compare(a, a):
        assert comparison.verdict == UNDECIDED
        assert_problem(comparison.reason, says=("5 and 5 repeats", "7"))


def test_case_without_enough_repeats_takes_nothing_from_the_others():
    a = [
        make_case_outcomes(RATES[:6], n) if n else make_case_outcomes(RATES[:3]) for n in range(24)
    ]
    b = [make_case_outcomes(scale(RATES[:6], 0.5), n) if n else make_case_outcomes(RATES[:3])
         for n in range(24)]  # fmt: skip
    assert [c.verdict for c in compare(a, b)] == [UNDECIDED, *[SLOWER] * 23]


def make_noisy(generator, noise, factor=1.0):
    return [100 * factor * generator.lognormvariate(0, noise) for _ in range(7)]


@pytest.mark.integration
@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_runs_of_the_same_code_differ_as_rarely_as_the_level_says(noise):
    generator = random.Random(2020)
    verdicts = [
        compare_rates(make_noisy(generator, noise), make_noisy(generator, noise)).verdict
        for _ in range(400)
    ]
    # 4 %: 16 of 400, and 28 is three deviations above
    assert 5 <= verdicts.count(SLOWER) + verdicts.count(FASTER) <= 28


@pytest.mark.integration
def test_runs_of_many_cases_have_a_false_alarm_as_rarely_as_the_level_says():
    generator = random.Random(2021)
    alarms = 0
    for _ in range(100):
        a, b = (
            [make_case_outcomes(make_noisy(generator, 0.02), n) for n in range(10)]
            for _ in range(2)
        )
        alarms += any(c.verdict in (SLOWER, FASTER) for c in compare(a, b))
    # at most 5 %: 5 of 100; 11 is three deviations above
    assert alarms <= 11


@pytest.mark.integration
def test_slowdown_of_5_percent_is_found_in_one_percent_of_noise():
    generator = random.Random(2022)
    verdicts = [
        compare_rates(make_noisy(generator, 0.01), make_noisy(generator, 0.01, 0.95)).verdict
        for _ in range(200)
    ]
    assert verdicts.count(SLOWER) >= 198


def test_slowdown_of_one_among_ten_cases_is_found():
    generator = random.Random(2023)
    a = [make_case_outcomes(make_noisy(generator, 0.01), n) for n in range(10)]
    b = [make_case_outcomes(make_noisy(generator, 0.01, 0.95 if n == 4 else 1.0), n)
         for n in range(10)]  # fmt: skip
    assert [n for n, c in enumerate(compare(a, b)) if c.verdict == SLOWER] == [4]


@pytest.mark.parametrize(("factor", "is_beyond"), [(0.9, True), (0.98, False), (1.1, False)])
def test_limit_is_passed_by_more_than_it_alone(factor, is_beyond):
    assert compare_rates(RATES, scale(RATES, factor), 0.03).is_beyond_limit is is_beyond


@pytest.mark.integration
def test_beyond_the_limit_is_where_the_whole_interval_lies_below_it():
    generator = random.Random(2024)
    for _ in range(200):
        a, b = make_noisy(generator, 0.01), make_noisy(generator, 0.01, 0.955)
        comparison = compare_rates(a, b, 0.03)
        assert comparison.is_beyond_limit is (comparison.interval.high < 0.97)
        assert not (comparison.is_beyond_limit and comparison.is_within_limit)


@pytest.mark.integration
def test_slowdown_within_the_limit_is_rarely_beyond_it():
    generator = random.Random(2025)
    beyond = [
        compare_rates(make_noisy(generator, 0.02), make_noisy(generator, 0.02, 0.97), 0.03)
        for _ in range(400)
    ]
    # at the limit itself 2 %: 8 of 400, and 16 is three deviations above
    assert sum(c.is_beyond_limit for c in beyond) <= 16


@pytest.mark.integration
@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_slowdown_beyond_the_limit_rarely_passes(noise):
    generator = random.Random(2026)
    passed = [
        compare_rates(make_noisy(generator, noise), make_noisy(generator, noise, 0.97), 0.03)
        for _ in range(300)
    ]
    # at the limit itself 5 %: 15 of 300, and 26 is three deviations above
    assert sum(c.is_within_limit for c in passed) <= 26


@pytest.mark.integration
def test_slowdown_of_5_percent_in_noise_of_3_percent_does_not_pass_a_limit_of_3():
    generator = random.Random(2027)
    found = [
        compare_rates(make_noisy(generator, 0.03), make_noisy(generator, 0.03, 0.95), 0.03)
        for _ in range(200)
    ]
    assert sum(c.is_within_limit for c in found) <= 3
    assert any(c.deciding_repeats for c in found)


@pytest.mark.integration
def test_same_speed_passes_a_limit_that_the_noise_allows():
    generator = random.Random(2028)
    found = [
        compare_rates(make_noisy(generator, 0.01), make_noisy(generator, 0.01), 0.03)
        for _ in range(200)
    ]
    assert sum(c.is_within_limit for c in found) >= 180


@pytest.mark.integration
def test_difference_as_large_as_the_margin_is_rarely_called_equivalent():
    generator = random.Random(2029)
    found = [
        compare_rates(make_noisy(generator, 0.01), make_noisy(generator, 0.01, 0.98)).verdict
        for _ in range(300)
    ]
    assert found.count(EQUIVALENT) <= 26


def test_noise_that_hides_a_difference_leaves_it_undecided_with_what_it_takes():
    generator = random.Random(2030)
    comparison = compare_rates(make_noisy(generator, 0.05), make_noisy(generator, 0.05))
    assert (comparison.verdict, comparison.deciding_repeats > 7) == (UNDECIDED, True)
    assert f"about {comparison.deciding_repeats} " in comparison.reason


def test_difference_that_does_not_matter_is_said_to_be_small():
    comparison = compare_rates(scale(RATES, 1.0), [0.99 * 100 + 0.01 * r for r in range(7)])
    assert (comparison.verdict, comparison.is_within_margin) == (SLOWER, True)


@pytest.mark.integration
def test_run_that_varies_ten_times_as_much_raises_alarms_as_rarely():
    generator = random.Random(2031)
    verdicts = [
        compare_rates(make_noisy(generator, 0.005), make_noisy(generator, 0.05)).verdict
        for _ in range(400)
    ]
    # 5 %: 20 of 400, and 33 is three deviations above; the rank sum has 9 %, 36
    assert verdicts.count(SLOWER) + verdicts.count(FASTER) <= 33


def test_no_limit_is_never_passed():
    assert compare_rates(RATES, scale(RATES, 0.1)).is_beyond_limit is False


def test_limit_does_not_change_the_verdict():
    assert compare_rates(RATES, scale(RATES, 0.98), 0.03).verdict == SLOWER


def make_inference(latency, rate):
    planned = make_planned_case(case_id="val", mode="infer", repeats=7)
    outcomes = make_outcomes(planned, scale(RATES, rate))
    return CaseOutcomes(
        planned,
        tuple(
            dataclasses.replace(o, batch_seconds=(latency * (1 + o.repeat / 1000),) * 3)
            for o in outcomes.outcomes
        ),
    )


def test_longer_latency_is_slower_even_at_the_same_throughput():
    throughput, latency = compare([make_inference(0.1, 1.0)], [make_inference(0.2, 1.0)])
    assert (throughput.verdict, latency.quantity, latency.verdict) == (
        EQUIVALENT, MEAN_LATENCY, SLOWER,
    )  # fmt: skip


def test_speed_of_a_latency_is_its_inverse():
    _, latency = compare([make_inference(0.1, 1.0)], [make_inference(0.2, 1.0)])
    assert latency.speed_ratio == pytest.approx(0.5)
    assert latency.interval.low < 0.5 < latency.interval.high


def test_latency_beyond_the_limit_is_found():
    _, latency = compare([make_inference(0.1, 1.0)], [make_inference(0.2, 1.0)], 0.03)
    assert latency.is_beyond_limit


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("model_parameters", {"width": 16}, "model_parameters {} -> {'width': 16}"),
        ("measured_steps", 20, "measured_steps 10 -> 20"),
        ("warmup_steps", 0, "warmup_steps 3 -> 0"),
        ("batch_size_per_device", 16, "batch_size_per_device 8 -> 16"),
        ("devices_per_node", 2, "topology 1n1g -> 1n2g"),
        ("precision", "amp-bf16", "precision fp32 -> amp-bf16"),
        ("compiler", "xla", "compiler none -> xla"),
        ("mode", "infer", "mode train -> infer"),
        ("clip_global_norm", True, "clip_global_norm False -> True"),
    ],
)
def test_other_work_is_not_comparable(name, value, text):
    (comparison,) = compare([make_case_outcomes()], [make_case_outcomes(changes={name: value})])
    assert (comparison.verdict, comparison.reason) == (NOT_COMPARABLE, f"other work: {text}")


def test_other_number_of_parameters_is_other_work():
    (comparison,) = compare([make_case_outcomes()], [make_case_outcomes(parameter_count=7)])
    assert comparison.reason == "other work: parameter_count 25557032 -> 7"


def test_batch_sizes_that_differ_within_a_run_are_not_comparable():
    one, other = (make_case_outcomes(changes={"batch_size_per_device": n}) for n in (8, 16))
    mixed = CaseOutcomes(one.case, (*one.outcomes[:3], *other.outcomes[3:]))
    (comparison,) = compare([mixed], [mixed])
    assert comparison.reason == "other work: batch_size_per_device 16 and 8 -> 16 and 8"


def test_not_comparable_has_figures_but_no_ratio():
    (comparison,) = compare([make_case_outcomes()], [make_case_outcomes(parameter_count=7)])
    assert (comparison.speed_ratio, comparison.p_value) == (None, None)
    assert comparison.samples_a == pytest.approx(RATES)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"versions": {"torch": "2.14.0"}}, "torch 2.13.0 -> 2.14.0"),
        ({"versions": {}}, "torch 2.13.0 -> none"),
        ({"platform": {"python": "3.12"}}, "python 3.11 -> 3.12"),
        ({"job": {"SLURM_JOB_PARTITION": "gpu"}}, "SLURM_JOB_PARTITION none -> gpu"),
        ({"ranks": (make_rank(device_name="H200", window_seconds=0.8),)}, "devices cpu -> H200"),
        ({"changes": {"cpus_per_rank": 9}}, "case.cpus_per_rank 1 -> 9"),
        ({"changes": {"seed": 7}}, "case.seed 1 -> 7"),
        (
            {"telemetry": (make_telemetry(HOST, stolen_share=0.24), make_telemetry(0))},
            "CPU time that a hypervisor gave to others 0 % -> 24 %",
        ),
    ],
)
def test_what_else_changed_is_named_beside_the_verdict(changes, text):
    (comparison,) = compare([make_case_outcomes()], [make_case_outcomes(**changes)])
    assert (comparison.changes, comparison.verdict) == ((text,), EQUIVALENT)


def test_job_ids_and_hosts_and_a_little_steal_are_no_change():
    b = make_case_outcomes(
        job={"SLURM_JOB_ID": "7"},
        ranks=(make_rank(host="node9", window_seconds=0.8),),
        telemetry=(make_telemetry(HOST, stolen_share=0.019),),
    )
    assert compare([make_case_outcomes()], [b])[0].changes == ()


def test_other_code_that_measured_is_named():
    manifest = make_manifest(tool_git="fffffff")
    (comparison,) = compare([make_case_outcomes()], [make_case_outcomes()], None, manifest)
    assert comparison.changes == ("dlperf_slurm 0.1.0 abc1234 -> 0.1.0 fffffff",)


def test_cases_of_one_run_only_are_listed():
    a, b = make_case_outcomes(number=1), make_case_outcomes(number=2)
    assert [(c.case_id, c.verdict, c.reason) for c in compare([a], [b])] == [
        ("case1", NOT_COMPARABLE, "only in A"),
        ("case2", NOT_COMPARABLE, "only in B"),
    ]


def test_case_that_failed_in_one_run_says_how():
    failed = make_outcomes(make_planned_case(case_id="case0"), (), ["failed: x"])
    reason = compare([make_case_outcomes()], [failed])[0].reason
    assert_problem(reason, says=("B", "failed: x"))


def test_case_that_was_left_out_says_why():
    left_out = CaseOutcomes(make_planned_case(case_id="case0", reason="2n2g needs 2 nodes"), ())
    reason = compare([left_out], [make_case_outcomes()])[0].reason
    assert_problem(reason, says=("A", "2n2g needs 2 nodes"))


def test_runs_without_cases_compare_to_nothing():
    assert compare([], []) == ()


def test_facts_of_every_host_are_compared_but_those_that_only_name_machines():
    record = make_record(platform={"cpu_model": "A", "cpu_list": "0-3"})
    other = make_record(
        platform={"cpu_model": "A", "cpu_list": "4-7"},
        hosts=(HostPlatform("node2", {"cpu_model": "B"}),),
    )
    facts = [list_surroundings([one]) for one in (record, other)]
    assert name_changes(*facts) == ["cpu_model A -> A and B"]


def make_blocked(generator, blocks, repeats, offset):
    """Repeats in blocks, which all of a block's repeats share an offset of."""
    offsets = [generator.gauss(0, offset) for _ in range(blocks)]
    rates = [
        100 * math.exp(offsets[repeat % blocks] + generator.gauss(0, 0.005))
        for repeat in range(repeats)
    ]
    case = make_case_outcomes(rates)
    return CaseOutcomes(dataclasses.replace(case.case, blocks=blocks), case.outcomes)


@pytest.mark.integration
def test_offset_that_repeats_of_a_block_share_is_no_difference():
    generator = random.Random(2032)
    verdicts = [
        compare([make_blocked(generator, 7, 28, 0.03)], [make_blocked(generator, 7, 28, 0.03)])[0]
        for _ in range(200)
    ]
    # 5 %: 10 of 200, and 20 is three deviations above; with repeats as the unit half of all differ
    assert sum(c.verdict in (SLOWER, FASTER) for c in verdicts) <= 20


def test_medians_of_blocks_are_compared():
    case = make_case_outcomes([1.0, 10.0, 100.0, 2.0, 20.0, 200.0, 3.0])
    blocked = CaseOutcomes(dataclasses.replace(case.case, blocks=3), case.outcomes)
    (comparison,) = compare([blocked], [blocked])
    assert comparison.samples_a == pytest.approx((2.0, 15.0, 150.0))
    assert comparison.verdict == UNDECIDED
    assert comparison.reason.startswith("3 and 3 blocks; it takes 6 in each run")
