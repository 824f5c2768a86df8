"""One table per rule: what is right to the printed digit, and what is found."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.published.audit import Audit, audit_paths
from dlperf_slurm.published.audit.printed import (
    ABOVE_DEVICES,
    CONTRADICTION,
    DUPLICATE,
    LATENCY_OFF,
    OUT_OF_ORDER,
    STALE,
    SWAPPED,
    TRUNCATED,
    WRONG,
    make_cell,
)

SCALING = "GPUs | img/s | speedup"
BOTH = (
    "GPUs | Throughput - mixed precision | Throughput - FP32 | Throughput speedup "
    "| Weak scaling - mixed precision | Weak scaling - FP32"
)
LATENCY = "batch size | images/s | avg latency (ms) | 50% latency (ms) | 90% latency (ms)"

PUBLISHED = (
    "source,framework,software,model,precision,compiler,nodes,devices_per_node,"
    "batch_size_per_device,repeat,samples_per_s,published_speedup,hardware,table,where"
)


def audit_tables(*tables: tuple[str, ...]) -> Audit:
    """Each table is a header and rows, written as Markdown."""
    texts = []
    for header, *rows in tables:
        dashes = " | ".join(["---"] * (header.count("|") + 1))
        texts.append("\n".join(f"| {line} |" for line in (header, dashes, *rows)))
    Path("tables.md").write_text("\n\n".join(texts), encoding="utf-8")
    return audit_paths([Path("tables.md")])


def audit_published(*lines: str, name: str = "published.csv") -> Path:
    Path(name).write_text("\n".join([PUBLISHED, *lines]) + "\n", encoding="utf-8")
    return Path(name)


def make_line(devices: int, samples: str, speedup: str = "", repeat: str = "", **changes) -> str:
    values = {"software": "MXNet", "table": "t", "where": "README.md:1", **changes}
    return (
        f"x,mxnet,{values['software']},resnet50,fp32,none,1,{devices},128,{repeat},{samples},"
        f"{speedup},V100,{values['table']},{values['where']}"
    )


def list_kinds(found: Audit) -> list[tuple[str, str]]:
    return [(finding.published, finding.kind) for finding in found.findings]


@pytest.mark.parametrize("speedup", ["2", "2.0", "1.97", "1.969", "1.9688"])
def test_rounded_speedup_is_right_at_any_number_of_digits(speedup):
    assert list_kinds(audit_tables((SCALING, "1 | 417 | 1", f"2 | 821.0 | {speedup}"))) == []


def test_rounding_of_the_inputs_is_allowed_for():
    # 763 / 384 is 1.987, but 762.5 / 384.5 is 1.983
    assert list_kinds(audit_tables((SCALING, "1 | 384 | 1.00", "2 | 763 | 1.98"))) == []


def test_same_digits_of_more_precise_inputs_are_cut():
    found = audit_tables((SCALING, "1 | 384.00 | 1.00", "2 | 763.00 | 1.98"))
    assert list_kinds(found) == [("1.98", TRUNCATED)]
    assert found.findings[0].follows == "1.9870"


def test_speedup_more_than_a_digit_below_is_wrong_not_cut():
    found = audit_tables((SCALING, "1 | 100.000 | 1.00", "2 | 190.000 | 1.88"))
    assert list_kinds(found) == [("1.88", WRONG)]


def test_wrong_speedup_names_cell_line_and_inputs():
    (finding,) = audit_tables((SCALING, "1 | 100.0 | 1.0", "4 | 380.0 | 3.9")).findings
    assert (finding.file, finding.line) == ("tables.md", 4)
    assert finding.cell == "speedup: 4 devices"
    assert finding.reason == "380.0 / 100.0; off by +2.63%"


def test_speedup_of_one_device_is_one():
    found = audit_tables((SCALING, "1 | 100.0 | 1.10", "2 | 190.0 | 1.90"))
    assert list_kinds(found) == [("1.10", WRONG)]


def test_speedup_over_devices_that_the_table_has_not_is_named():
    found = audit_tables((SCALING, "8 | 100.0 | 7.10", "16 | 190.0 | 13.5"))
    assert found.findings == ()
    (gap,) = found.not_audited
    assert_problem(gap.reason, says=("throughput", "fewer devices"))


def test_speedup_above_the_device_count_is_found_though_it_follows():
    found = audit_tables((SCALING, "1 | 100.0 | 1.00", "2 | 203.0 | 2.03"))
    assert list_kinds(found) == [("2.03", ABOVE_DEVICES)]


def test_speedup_that_rounds_to_the_device_count_is_right():
    assert list_kinds(audit_tables((SCALING, "1 | 100.0 | 1.0", "2 | 200.4 | 2.0"))) == []


def test_device_count_is_relative_to_the_smallest_topology():
    header = "nodes | gpus per node | img/s | speedup"
    found = audit_tables((header, "2 | 8 | 1600.0 | 1.00", "4 | 8 | 3300.0 | 2.06"))
    assert list_kinds(found) == [("2.06", ABOVE_DEVICES)]


def test_weak_scaling_in_the_other_precisions_column_is_swapped():
    found = audit_tables(
        (
            BOTH,
            "1 | 300.00 | 100.00 | 3.00 | 1.00 | 1.00",
            "4 | 900.00 | 380.00 | 2.37 | 3.80 | 3.00",
        )
    )
    assert list_kinds(found) == [("3.80", SWAPPED), ("3.00", SWAPPED)]


def test_precision_speedup_is_recomputed():
    found = audit_tables((BOTH, "1 | 300.00 | 100.00 | 2.90 | 1.00 | 1.00"))
    assert list_kinds(found) == [("2.90", WRONG)]


def test_speedup_of_another_figure_of_the_configuration_is_stale():
    path = audit_published(
        make_line(1, "100.00", "1.00"),
        make_line(2, "190.00", "1.95"),
        make_line(2, "195.00", table="older", where="README.md:9"),
    )
    (finding,) = audit_paths([path]).findings
    assert (finding.published, finding.kind) == ("1.95", STALE)
    assert "195.00 at README.md:9" in finding.reason


def test_percentiles_have_an_order():
    found = audit_tables((LATENCY, "1 | 100.00 | 10.00 | 9.90 | 9.80"))
    assert list_kinds(found) == [("9.80", OUT_OF_ORDER)]


def test_percentiles_of_the_reference_have_one_too():
    header = (
        "batch size | 50% latency (ms) - mixed precision | 50% latency - speedup "
        "| 90% latency (ms) - mixed precision | 90% latency - speedup"
    )
    found = audit_tables((header, "1 | 10.00 | 3.00 | 11.00 | 2.00"))
    assert list_kinds(found) == [("10.00", OUT_OF_ORDER)]
    assert "30.00, above the 22.00" in found.findings[0].reason


@pytest.mark.parametrize(
    ("samples", "latency", "kinds"),
    [
        ("100", "80.00", []),
        ("100", "80.3", []),
        ("99", "80.10", [("99", TRUNCATED)]),
        ("110", "80.00", [("110", LATENCY_OFF)]),
        ("90.00", "80.00", [("90.00", LATENCY_OFF)]),
    ],
)
def test_throughput_times_latency_is_the_batch(samples, latency, kinds):
    header = "batch size | images/s | avg latency (ms)"
    assert list_kinds(audit_tables((header, f"8 | {samples} | {latency}"))) == kinds


def test_median_throughput_over_repeats_need_not_be_of_the_median_latency():
    header = "GPUs | batch size | images/s | avg ms"
    assert list_kinds(audit_tables((header, "1 | 8 | 110.00 {80.00 to 140.00} | 80.00"))) == []
    assert list_kinds(audit_tables((header, "1 | 8 | 110.00 {108.00 to 112.00} | 80.00"))) == [
        ("110.00", LATENCY_OFF)
    ]


def test_throughput_of_a_latency_table_whose_heading_has_the_devices_is_not_audited():
    # of 1n2g, as our report prints it
    found = audit_tables(("batch size | images/s | avg ms", "8 | 2666.67 | 6.00"))
    assert found.findings == ()
    assert [(gap.what, gap.reason) for gap in found.not_audited] == [
        (
            "table at line 1: 1 cells of images/s",
            "no column has the device count, for throughput x latency",
        )
    ]


def test_speedups_of_throughput_and_latency_agree():
    header = (
        "batch size | Throughput (img/sec) - mixed precision | Throughput - speedup "
        "| Avg latency (ms) - mixed precision | Avg latency - speedup"
    )
    right = audit_tables((header, "1 | 100.0 | 1.50 | 10.0 | 1.51"))
    off = audit_tables((header, "1 | 100.0 | 1.50 | 10.0 | 1.52"))
    assert (list_kinds(right), list_kinds(off)) == ([], [("1.50", CONTRADICTION)])


def test_configuration_twice_in_a_table_with_other_values_is_a_duplicate():
    path = audit_published(make_line(1, "100.0"), make_line(1, "101.0"), make_line(1, "100"))
    assert list_kinds(audit_paths([path])) == [("101.0", DUPLICATE)]


def test_of_two_files_that_differ_the_later_is_named_of_three_the_one_alone():
    one = audit_published(make_line(1, "100.0"), name="one.csv")
    two = audit_published(make_line(1, "101.0", software="MXNet 1.6"), name="two.csv")
    three = audit_published(make_line(1, "101.0", software="MXNet 1.6 (x)"), name="three.csv")
    assert list_kinds(audit_paths([one, two])) == [("101.0", DUPLICATE)]
    assert list_kinds(audit_paths([one, two, three])) == [("100.0", DUPLICATE)]


def test_figure_of_one_of_two_versions_is_no_duplicate_of_the_other():
    versions = [make_line(1, f"{10 + n}0.0", software=f"MXNet 1.{n}", table=str(n)) for n in (5, 6)]
    one = audit_published(make_line(1, "150.0"), name="one.csv")
    two = audit_published(*versions, name="two.csv")
    assert list_kinds(audit_paths([one, two])) == []


@pytest.mark.parametrize(
    ("column", "text", "kinds"),
    [
        ("topology", "2n4g", []),
        ("topology", "1n8g", [("720.0", DUPLICATE)]),
        ("gpus", "8", [("720.0", DUPLICATE)]),
    ],
)
def test_other_topology_of_as_many_devices_is_no_duplicate_in_another_file(column, text, kinds):
    one, two = Path("one.csv"), Path("two.csv")
    one.write_text("model,topology,img/s,speedup\nresnet50,1n8g,760.0,1.0\n", encoding="utf-8")
    two.write_text(f"model,{column},img/s,speedup\nresnet50,{text},720.0,1.0\n", encoding="utf-8")
    assert list_kinds(audit_paths([one, two])) == kinds


def test_other_software_is_no_duplicate():
    one = audit_published(make_line(1, "100.0", software="NGC MXNet"), name="one.csv")
    two = audit_published(make_line(1, "101.0", software="MXNet"), name="two.csv")
    assert list_kinds(audit_paths([one, two])) == []


def test_figure_that_is_not_the_median_of_its_documents_repeats_is_stale():
    repeats = [
        make_line(1, value, repeat=str(n))
        for n, value in enumerate(("90.0", "80.0", "70.0"), start=1)
    ]
    right = audit_published(make_line(1, "80.0"), *repeats)
    assert list_kinds(audit_paths([right])) == []
    wrong = audit_published(make_line(1, "90.0"), *repeats)
    assert list_kinds(audit_paths([wrong])) == [("90.0", STALE)]


def test_of_several_baselines_the_one_that_fits_is_taken():
    header = "GPUs | Sequence Length | batch size | img/s | weak scaling"
    rows = ("1 | 128 | 8 | 50.0 | 1.0", "1 | 512 | 4 | 10.0 | 1.0")
    assert list_kinds(audit_tables((header, *rows, "4 | 512 | 2 | 38.0 | 3.8"))) == []
    unclear = audit_tables((header, *rows, "4 | 256 | 2 | 20.0 | 3.9"))
    assert (unclear.findings, len(unclear.not_audited)) == ((), 2)


def test_two_tables_without_a_model_are_not_compared():
    found = audit_tables(
        (SCALING, "1 | 100.0 | 1.0", "2 | 190.0 | 1.9"),
        (SCALING, "1 | 50.0 | 1.0", "2 | 95.0 | 1.9"),
    )
    assert list_kinds(found) == []


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "²", "1" * 31, "", "-", "0", "0.0", "-1.5", "1.2.3", "nan", "inf", "1e999", "x"],
)
def test_text_that_is_no_positive_number_is_no_cell(text):
    assert make_cell(text, "c") is None


def test_thousands_and_exponents_are_numbers():
    assert make_cell("12,411.97", "c").text == "12411.97"
    assert float(make_cell("1.5e-05", "c").value) == 1.5e-05
