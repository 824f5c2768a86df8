"""The sentences of a report: each figure in them is one of the run."""

import dataclasses
import re

import pytest
from report_values import make_measured, rename, summarize_cases
from support.problems import assert_problem

from dlperf_slurm.reports.headline import list_findings

STEADY = [0.1, 0.1001, 0.1002, 0.1003, 0.1004, 0.1005]


def list_texts(*cases):
    return [finding.text for finding in summarize_cases(cases).findings]


def list_doubts(*cases):
    return [finding.text for finding in summarize_cases(cases).findings if finding.is_warning]


def test_best_throughput_is_named_with_its_case_and_topology():
    texts = list_texts(make_measured("jax", "1n1g", STEADY), make_measured("jax", "2n2g", STEADY))
    assert texts[0].startswith("ResNet-50 trains at 31")
    assert texts[0].endswith("jax, fp32, batch size 8 on 2n2g (4 ranks on cpu, 2 nodes).")


def test_best_throughput_has_the_digits_of_its_table():
    uneven = [0.1, 0.11, 0.105, 0.107, 0.103, 0.101]
    summary = summarize_cases([make_measured("jax", "1n1g", uneven)])
    (table,) = [t for t in summary.tables if t.title.startswith("ResNet-50: fp32")]
    figure = table.rows[0][2].text
    assert summary.findings[0].text.startswith(f"ResNet-50 trains at {figure} images/s")


def test_variant_that_all_cases_share_is_left_to_the_title():
    cases = [make_measured("jax", topology, STEADY) for topology in ("1n1g", "1n2g")]
    assert "jax, fp32" in list_texts(*[rename(case, compiler="xla") for case in cases])[0]
    assert "jax xla, fp32" in list_texts(rename(cases[1], compiler="xla"), cases[0])[0]


def test_efficiency_is_that_of_the_largest_topology_best_and_worst():
    slow, slower = ([factor * s for s in STEADY] for factor in (1.25, 2))
    texts = list_texts(
        make_measured("jax", "1n1g", STEADY),
        make_measured("jax", "1n2g", STEADY),
        make_measured("jax", "1n4g", slow),
        make_measured("pytorch", "1n1g", STEADY),
        make_measured("pytorch", "1n4g", slower),
    )
    # joint intervals of a curve with two points take more repeats than these
    parts = (r"relative to 1n1g is 79\.8 %: jax", r"49\.9 % \(49\.7 to 50\.0\) at worst: pytorch")
    assert all(re.search(part, texts[1]) for part in parts), texts[1]


def test_strong_scaling_has_a_sentence_of_its_own():
    cases = [make_measured("jax", topology, STEADY) for topology in ("1n1g", "1n2g")]
    texts = list_texts(*(rename(case, global_batch_size=16) for case in cases))
    assert texts[1].startswith("On 1n2g the strong-scaling efficiency relative to 1n1g is ")
    assert not any("weak-scaling" in text for text in texts)


def test_case_whose_interval_overlaps_with_the_fastest_is_named_beside_it():
    wide = [0.1, 0.11, 0.105, 0.107, 0.103, 0.101]
    best = make_measured("jax", "1n1g", wide)
    for factor, is_named in ((1.01, True), (2, False)):
        other = make_measured("pytorch", "1n1g", [factor * s for s in wide])
        assert ("pytorch" in list_texts(best, other)[0].partition(";")[2]) == is_named


@pytest.mark.parametrize(("seconds", "is_doubted"), [(1e-6, True), (0.1, False)])
def test_case_beyond_the_peak_of_its_device_is_doubted(seconds, is_doubted):
    summary = summarize_cases([make_measured("jax", "1n1g", [seconds] * 6)])
    cases = summary.results.cases.assign(measured_peak_share=0.01 / seconds)
    found = list_findings(dataclasses.replace(summary.results, cases=cases))
    assert any("peak" in one.text for one in found if one.is_warning) == is_doubted
    assert found[0].text.startswith("Doubtful") == is_doubted


def test_efficiency_beyond_the_devices_is_a_doubt_and_no_finding():
    cases = [make_measured("jax", "1n1g", [s * 10 for s in STEADY])]
    cases += [make_measured("jax", "1n2g", STEADY)]
    assert not any("efficiency" in text for text in list_texts(*cases))
    (doubt,) = list_doubts(*cases)
    says = ("1 case of 2", "jax-resnet50-1n2g-bs8-fp32", "9.99 times", "1n1g")
    assert_problem(doubt, key="Warning", says=says)


def test_precision_that_gains_and_one_that_loses_are_told_apart():
    faster, slower = ([factor * s for s in STEADY] for factor in (0.5, 2))
    texts = list_texts(
        make_measured("jax", "1n1g", STEADY),
        rename(make_measured("jax", "1n1g", faster), precision="amp-bf16"),
        rename(make_measured("jax", "1n1g", slower), precision="amp-fp16"),
    )
    assert "amp-bf16 gains most speed" in texts[1]
    assert ": 2.00 (" in texts[1]
    assert "amp-fp16 loses most speed" in texts[2]
    assert ": 0.5" in texts[2]


def test_precision_whose_interval_holds_one_is_not_said_to_gain_or_lose():
    same = rename(make_measured("jax", "1n1g", STEADY), precision="amp-bf16")
    texts = list_texts(make_measured("jax", "1n1g", STEADY), same)
    assert not any("times as fast" in text for text in texts)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [([0.1, 0.2, 0.1, 0.2, 0.15, 0.12], ("repeats", "jax-resnet50-")), (STEADY[:3], ("too few",))],
)
def test_repeats_that_vary_or_are_too_few_are_doubtful(seconds, says):
    steady = make_measured("pytorch", "1n1g", STEADY)
    (doubt,) = list_doubts(make_measured("jax", "1n1g", seconds), steady)
    assert_problem(doubt, key="Warning", says=("1 of 2 cases", *says))
