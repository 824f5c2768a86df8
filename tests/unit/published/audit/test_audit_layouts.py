"""Tables as others print them: headers, units, rows and baselines, and what of them matters."""

import json
from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.published.audit import Audit, audit_paths
from dlperf_slurm.published.audit.headers import read_headers
from dlperf_slurm.published.audit.printed import (
    ABOVE_DEVICES,
    LATENCY_OFF,
    OUT_OF_ORDER,
    WRONG,
)


def audit_table(header: str, *rows: str, title: str = "") -> Audit:
    return audit_text(write_table(header, *rows, title=title))


def audit_text(text: str) -> Audit:
    Path("x.md").write_text(text, encoding="utf-8")
    return audit_paths([Path("x.md")])


def write_table(header: str, *rows: str, title: str = "") -> str:
    dashes = " | ".join(["---"] * (header.count("|") + 1))
    lines = (f"| {line} |" for line in (header, dashes, *rows))
    return "\n".join([title, "", *lines, ""])


def list_kinds(found: Audit) -> list[tuple[str, str]]:
    return [(finding.published, finding.kind) for finding in found.findings]


@pytest.mark.parametrize(
    ("header", "quantity", "precision"),
    [
        ("Latency Avg", "latency_avg", ""),
        ("Latency 95%", "latency_p95", ""),
        ("Latency Avg [ms] &darr;", "latency_avg", ""),
        ("**Avg latency**", "latency_avg", ""),
        ("99% Latency", "latency_p99", ""),
        ("Latency p90 (ms)", "latency_p90", ""),
        ("Latency-90%(ms)", "latency_p90", ""),
        ("Median Latency [ms]", "latency_p50", ""),
        ("Latency tolerance interval 95% (s)", "latency_p95", ""),
        ("Latency std (s)", "", ""),
        ("TF32 Scaling", "speedup", "tf32"),
        ("Multi-GPU weak scaling with FP32", "speedup", "fp32"),
        ("Weak scaling  - mixed precision", "speedup", "amp-fp16"),
        ("Throughput - TF32", "samples_per_s", "tf32"),
        ("Throughput - BF16", "samples_per_s", "bf16"),
        ("Mixed precision img/s", "samples_per_s", "amp-fp16"),
        ("Throughput speedup (TF32 - BF16)", "precision_speedup", "bf16"),
        ("Speed-up with mixed precision", "precision_speedup", "amp-fp16"),
        ("FP16/TF32 speed up", "precision_speedup", "amp-fp16"),
        ("Time to train (hrs) speedup (TF32 to BF16)", "time_speedup", "bf16"),
        ("Number of GPUs", "devices", ""),
        ("Batch size / GPU (TF32, BF16)", "batch_size", "bf16"),
        ("Client Concurrency", "concurrency", ""),
        ("EfficientNet", "", ""),
    ],
)
def test_header_has_this_quantity_of_this_precision(header, quantity, precision):
    (column,) = read_headers([header])
    assert (column.quantity, column.precision) == (quantity, precision)


def test_bf16_is_a_precision_of_its_own():
    header = (
        "GPUs | Batch size / GPU (TF32, BF16) | Throughput - TF32 | Throughput - BF16 "
        "| Throughput speedup (TF32 - BF16) | Weak scaling - TF32 | Weak scaling - BF16"
    )
    rows = (
        "1 | 24, 40 | 48.61 | 74.59 | 1.53 | 1 | 1",
        "8 | 24, 40 | 243.03 | 390.24 | 1.61 | 3.39 | 5.23",
    )
    found = audit_table(header, *rows)
    assert found.recomputed == 6
    assert list_kinds(found) == [("3.39", WRONG)]


@pytest.mark.parametrize("precision", ["bf16", "amp-fp16"])
def test_titles_tell_the_precisions_of_two_tables(precision):
    name = {"bf16": "BF16", "amp-fp16": "FP16"}[precision]
    header = "Batch Size | Throughput-Average(seq/sec) | Latency-90%(ms) | Latency-99%(ms)"
    reduced = header.replace("|", f"| Throughput speedup (FP32 to {name}) |", 1)
    tables = (
        write_table(reduced, "8 | 2.49 | 180.0 | 9.1 | 9.2", title=f"BERTLarge {name}"),
        write_table(header, "8 | 60.0 | 20.1 | 20.2", title="BERT-Large FP32"),
        write_table(header, "8 | 90.0 | 10.1 | 10.2", title="BERT-Base FP32"),
    )
    found = audit_text("## SQuAD\n" + "\n".join(tables))
    assert [(f.published, f.follows) for f in found.findings] == [("2.49", "3.0000")]


@pytest.mark.parametrize("seconds", ["avg latency (s)", "avg latency (ms)", "Latency Avg"])
def test_throughput_is_checked_in_the_unit_of_its_latency(seconds):
    rows = ("8 | 80.0 | 100.0", "16 | 99.0 | 100.0", "32 | 320.0 | 100.0")
    if seconds != "avg latency (ms)":
        rows = tuple(row.replace("100.0", "0.1000") for row in rows)
    found = audit_table(f"batch size | images/s | {seconds}", *rows)
    assert list_kinds(found) == [("99.0", LATENCY_OFF)]


def test_units_in_cells_and_percentiles_below_the_mean_are_read():
    header = (
        "**Batch Size** | **Avg throughput** | **Avg latency** | **95% Latency** | **99% Latency**"
    )
    found = audit_table(header, "1 | 131 img/s | 7.61 ms | 11.35 ms | 9.05 ms")
    assert list_kinds(found) == [("9.05", OUT_OF_ORDER)]
    assert (found.checked.latency_rows, found.checked.throughputs_by_latency) == (1, 1)


def test_throughput_within_the_rows_own_latencies_is_no_matter():
    header = "batch size | images/s | avg latency (ms) | 50% latency (ms) | 99% latency (ms)"
    (inside,) = audit_table(header, "8 | 100.0 | 100.0 | 79.0 | 120.0").findings
    (outside,) = audit_table(header, "8 | 60.0 | 100.0 | 79.0 | 120.0").findings
    assert inside.excess == 0
    assert outside.excess == pytest.approx(0.11, abs=0.01)


def test_throughput_of_a_server_under_load_is_no_batch_over_a_latency():
    header = "Batch | Concurrency | Inferences/Second | avg latency (ms) | p99 latency (ms)"
    found = audit_table(header, "1 | 8 | 984.00 | 12.00 | 13.00", "1 | 16 | 990.00 | 24.0 | 25.0")
    assert (found.findings, found.checked.latency_rows) == ((), 0)
    assert found.checked.throughputs_by_latency == 0


def test_throughput_of_other_items_than_the_batch_is_not_checked_by_latency():
    found = audit_table(
        "batch size | tokens/s | avg latency (ms)", "8 | 5120 | 100", "16 | 9000 | 100"
    )
    assert (found.findings, found.checked.throughputs_by_latency) == ((), 0)


def test_numbers_in_links_are_read():
    found = audit_table("GPUs | img/s | speedup", "1 | [100.0](./a) | 1.0", "2 | [190.0](b) | 1.7")
    assert list_kinds(found) == [("1.7", WRONG)]


@pytest.mark.parametrize(
    "row", ["2 | 190.0 | 1.7 |", "2 | 190.0 | 1.7 | # note", "| 2 | 190.0 | 1.7"]
)
def test_bar_too_many_costs_no_row(row):
    assert list_kinds(audit_table("GPUs | img/s | speedup", "1 | 100.0 | 1.0", row)) == [
        ("1.7", WRONG)
    ]


def test_row_that_is_too_wide_costs_no_other():
    rows = ("1 | 100.0 | 1.0", "2 | 3 | 190.0 | 1.9", "4 | 380.0 | 3.3")
    found = audit_table("GPUs | img/s | speedup", *rows)
    assert list_kinds(found) == [("3.3", WRONG)]
    (gap,) = found.not_audited
    assert_problem(gap.reason, key="line 6", says=("4 cells", "3"))


@pytest.mark.parametrize("dashes", ["-|-|-", "|:-:|:-:|:-:|", "--- | --- | ---"])
def test_line_of_dashes_may_have_any_length(dashes):
    found = audit_text(f"GPUs | img/s | speedup\n{dashes}\n1 | 100.0 | 1.0\n2 | 190.0 | 1.7\n")
    assert list_kinds(found) == [("1.7", WRONG)]


def test_dashes_of_one_column_too_few_cost_no_table():
    found = audit_text("GPUs | img/s | speedup\n---|---\n1 | 100.0 | 1.0\n2 | 190.0 | 1.7\n")
    assert list_kinds(found) == [("1.7", WRONG)]


def test_headers_of_merged_cells_are_joined():
    text = (
        "|  |  | FP16 Latency (ms) |  |  | TF32 Latency (ms) |  |  | FP16/TF32 speed up |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| BS | Duration (s) | 90% | 99% | Avg | 90% | 99% | Avg | Avg |\n"
        "| 1 | 2.0 | 32.4 | 32.8 | 32.3 | 64.0 | 63.0 | 62.0 | 1.5 |\n"
    )
    assert sorted(list_kinds(audit_text(text))) == [("1.5", WRONG), ("63.0", OUT_OF_ORDER)]


@pytest.mark.parametrize(
    ("slow", "fast"),
    [("1h02min", "31min"), ("01:02:00", "00:31:00"), ("12.4 h", "6.2 h"), ("12.4 h", "6.2")],
)
def test_times_to_train_are_read_with_their_units(slow, fast):
    header = (
        "GPUs | Time to train - FP32 | Time to train - BF16 | Time to train speedup (FP32 to BF16)"
    )
    assert list_kinds(audit_table(header, f"1 | {slow} | {fast} | 2.00x")) == []
    assert list_kinds(audit_table(header, f"1 | {slow} | {fast} | 2.40x")) == [("2.40", WRONG)]


@pytest.mark.parametrize(
    "figures", ["1.25M | 2.50M", "1250k | 2.50M", "1 250 000 | 2 500 000", "1.25e+06 | 2.50e+06"]
)
def test_thousands_and_millions_are_read(figures):
    header = (
        "GPUs | Throughput - FP32 (samples/s) | Throughput - AMP (samples/s) | Throughput speedup"
    )
    assert list_kinds(audit_table(header, f"1 | {figures} | 2.00")) == []
    assert list_kinds(audit_table(header, f"1 | {figures} | 2.30")) == [("2.30", WRONG)]


def test_speedup_of_latencies_or_of_throughputs_may_be_meant():
    header = "Batch size | Precision | Avg latency (s) | Throughput (frames/sec) | "
    header += "Speed-up with mixed precision"
    rows = ("1 | FP16 | 0.50 | 1500 | {}", "1 | TF32 | 1.00 | 1000 | 1.00")
    for speedup, kinds in (("1.50", []), ("2.00", []), ("1.80", [("1.80", WRONG)])):
        found = audit_table(header, rows[0].format(speedup), rows[1])
        assert list_kinds(found) == kinds


def test_variant_and_batch_size_that_all_throughputs_name_tell_no_columns_apart():
    header = (
        "GPUs | Throughput - TF32 + XLA (BS=104) | Throughput - mixed precision + XLA (BS=200) "
        "| Throughput speedup (TF32 - mixed precision) | Weak scaling - TF32 + XLA"
    )
    found = audit_table(header, "1 | 162.0 | 397.0 | 2.45 | 1", "8 | 1266.0 | 2711.0 | 2.44 | 7.81")
    assert (list_kinds(found), found.recomputed) == ([("2.44", WRONG)], 4)


def test_precisions_that_are_bare_headers_have_rates_where_cells_say_so():
    header = "Model | Mixed Precision | TF32 | Mixed Precision Speedup"
    found = audit_table(header, "resnet50 | 2470 img/s | 777 img/s | 2.18 x")
    assert list_kinds(found) == [("2.18", WRONG)]
    assert audit_table(header, "resnet50 | 76.1 | 76.2 | 2.18 x").findings == ()


def test_base_row_of_another_batch_size_is_found():
    header = (
        "Batch size / GPU | GPUs | Grad accumulation | Throughput - TF32 | Strong scaling - TF32"
    )
    rows = (
        "128 | 1 | 2 | 141,028 | 1.00",
        "64 | 4 | 1 | 525,879 | 3.73",
        "32 | 8 | 1 | 914,350 | 6.88",
    )
    assert list_kinds(audit_table(header, *rows)) == [("6.88", WRONG)]


def test_reference_of_another_batch_size_is_taken_where_it_fits():
    header = "Batch size | Accumulation | GPUs | Throughput - FP32 | Throughput - AMP | "
    header += "Throughput speedup (FP32 to AMP)"
    rows = ("32 | 4 | 1 | 3017.57 | 6522.37 | 2.16", "64 | 2 | 1 | - | 7596.32 | {}")
    fits = audit_table(header, rows[0], rows[1].format("2.52"))
    assert (fits.findings, fits.checked.derived_cells_unchecked) == ((), 0)
    unclear = audit_table(header, rows[0], rows[1].format("2.90"))
    assert (unclear.findings, unclear.checked.derived_cells_unchecked) == ((), 1)


def test_speedup_above_the_devices_within_the_rounding_of_its_figures_is_right():
    header = "GPUs | img/s | speedup"
    assert list_kinds(audit_table(header, "1 | 107 | 1.00", "8 | 857 | 8.01")) == []
    assert list_kinds(audit_table(header, "1 | 107.00 | 1.00", "8 | 857.00 | 8.01")) == [
        ("8.01", ABOVE_DEVICES)
    ]


def test_speedup_above_the_devices_within_the_spread_of_its_repeats_is_right():
    header = "topology | img/s | speedup"
    rows = ("1n1g | 100.00 {{{}}} | 1.00", "1n8g | 808.00 {{800.00 to 812.00}} | 8.08")
    for spread, kinds in (("99.00 to 101.00", []), ("100.00 to 100.00", [])):
        found = audit_table(header, rows[0].format(spread), rows[1].format())
        assert list_kinds(found) == kinds
    narrow = rows[1].format().replace("800.00", "806.00")
    found = audit_table(header, rows[0].format("99.99 to 100.01"), narrow)
    assert list_kinds(found) == [("8.08", ABOVE_DEVICES)]


def test_findings_are_measured_beyond_what_rounding_explains():
    (finding,) = audit_table(
        "GPUs | img/s | speedup", "1 | 100.0 | 1.0", "4 | 380.0 | 3.9"
    ).findings
    # 3.85 over 380.05 / 99.95
    assert finding.excess == pytest.approx(3.85 / (380.05 / 99.95) - 1, abs=1e-4)


SMALL_AND_LARGE = (
    "1 | 100.000 | 1.000",
    "2 | 190.000 | 1.908",
    "4 | 380.0 | 4.0",
    "8 | 700.0 | 5.0",
)


def test_command_lists_the_worst_first_and_counts_those_below_the_threshold(capsys):
    Path("x.md").write_text(
        write_table("GPUs | img/s | speedup", *SMALL_AND_LARGE), encoding="utf-8"
    )
    assert main(["audit", "--json", "x.md"]) == 5
    printed = json.loads(capsys.readouterr().out)
    assert [finding["published"] for finding in printed["findings"]] == ["5.0", "4.0"]
    assert printed["kinds"] == [
        {
            "kind": WRONG,
            "findings": 2,
            "largest": pytest.approx(0.386, abs=0.01),
            "below_threshold": 1,
        }
    ]


def test_command_passes_what_is_below_the_threshold(capsys):
    Path("x.md").write_text(
        write_table("GPUs | img/s | speedup", *SMALL_AND_LARGE[:2]), encoding="utf-8"
    )
    assert main(["audit", "x.md"]) == 0
    assert "2 speedups recomputed, 0 findings, 1 below 1 %" in capsys.readouterr().out
    assert main(["audit", "--threshold", "0.1%", "x.md"]) == 5
    assert main(["audit", "--threshold", "1", "x.md"]) == 2


def test_command_that_could_check_nothing_exits_with_2_and_says_what_there_was(capsys):
    Path("x.md").write_text(write_table("GPUs | speedup", "1 | 1.0", "2 | 1.9"), encoding="utf-8")
    assert main(["audit", "x.md"]) == 2
    printed = capsys.readouterr()
    assert "2 speedups" in printed.out
    assert "nothing" in printed.err


def test_speedups_of_figures_that_are_not_there_are_compared_and_counted():
    header = "batch size | Throughput (img/sec) - AMP | Throughput - speedup | "
    header += "Avg latency (ms) - AMP | Avg latency - speedup"
    found = audit_table(header, "1 | 100.0 | 1.50 | 10.0 | 1.51")
    assert (found.checked.derived_cells, found.checked.speedups_compared) == (0, 2)
    assert found.checked.derived_cells_unchecked == 0


def test_base_row_of_the_best_batch_size_is_found():
    header = "Batch size | GPUs | Throughput | Strong scaling"
    rows = ("32 | 1 | 6522.37 | 1.00", "64 | 1 | 7596.32 | 1.00", "32 | 4 | 23660.14 | {}")
    for scaling, kinds in (("3.11", []), ("3.63", []), ("3.30", [("3.30", WRONG)])):
        assert list_kinds(audit_table(header, *rows[:2], rows[2].format(scaling))) == kinds


def test_speedup_that_is_printed_as_its_inverse_is_said_to_be_so():
    header = "GPUs | Throughput - FP32 | Throughput - AMP | Throughput speedup (FP32 to AMP)"
    (finding,) = audit_table(header, "1 | 10.42M | 21.84M | 0.48").findings
    assert (finding.kind, finding.follows) == (WRONG, "2.0960")
    assert_problem(finding.reason, says=("21.84 / 10.42", "inverse"))


def test_speedup_over_another_batch_size_has_no_device_count_above_it():
    header = "Batch size | GPUs | Throughput | Strong scaling"
    rows = ("128 | 1 | 148149 | 1.00", "{} | 4 | 614857 | 4.15")
    assert list_kinds(audit_table(header, rows[0], rows[1].format("64"))) == []
    assert list_kinds(audit_table(header, rows[0], rows[1].format("128"))) == [
        ("4.15", ABOVE_DEVICES)
    ]


def test_latency_of_something_else_is_one_finding_of_its_table():
    rows = ("1 | 23 | 34.91", "2 | 26 | 59.31", "4 | 29 | 104.11", "8 | 30 | 201.13")
    (finding,) = audit_table("batch size | images/s | avg latency (ms)", *rows).findings
    assert (finding.published, finding.kind) == ("30", LATENCY_OFF)
    assert finding.reason.endswith("4 of the table's 4 rows are off")


def test_one_baseline_of_all_batch_sizes_is_found_for_its_own_device_count():
    header = "GPUs | Batch size | Throughput | Speedup"
    rows = ("1 | 4 | 8.839 | 1", "2 | 4 | 16.405 | 1.86", "1 | 6 | 9.180 | {}")
    for speedup, kinds in (("1.04", []), ("1.00", []), ("1.10", [("1.10", WRONG)])):
        assert list_kinds(audit_table(header, *rows[:2], rows[2].format(speedup))) == kinds


@pytest.mark.parametrize("devices", ["8", "**8**", "`8`"])
@pytest.mark.parametrize("speedup", ["7.0x", "**7.0**", "7.0 \u00d7", "7.0\u00d7", "`7.0`"])
def test_marks_and_signs_beside_numbers_hide_none(devices, speedup):
    found = audit_table("GPUs | img/s | speedup", "1 | 100 | 1.0", f"{devices} | 760 | {speedup}")
    assert list_kinds(found) == [("7.0", WRONG)]


def test_speedups_over_other_software_are_relative_to_the_row_that_says_1():
    header = "Framework | Batch size | Precision | Throughput (samples/s) | Speed-up"
    rows = (
        *("PyT | 1 | FP16 | 681,773 | 1", "PyT+TRT | 1 | FP16 | 1,398,343 | 2.05"),
        *("PyT | 4 | FP16 | 1,244,466 | 1", "PyT+TRT | 4 | FP16 | 1,599,005 | 1.28"),
    )
    found = audit_table(header, *rows)
    assert found.recomputed == 4
    assert not found.findings
    assert not found.checked.derived_cells_unchecked


def test_one_of_several_that_does_not_follow_from_the_row_that_says_1_is_found():
    header = "Batch size | Throughput - TF32 | Weak scaling - TF32"
    rows = ("1 | 158.83 | 100%", "2 | 308.31 | 194%", "4 | 481.69 | 330%", "8 | 597.72 | 376%")
    found = audit_table(header, *rows)
    assert [(f.published, f.follows, f.kind) for f in found.findings] == [("3.30", "3.0327", WRONG)]


def test_speedup_that_fits_no_throughput_may_be_of_times():
    header = "Generator | Training time | Throughput (img/s) | Speedup"
    rows = ("TF | 11:30:45 | 128.08 | 1x (base)", "DALI | 6:23:43 | 208.38 | 1.8x")
    found = audit_table(header, *rows)
    assert found.recomputed == 2
    assert not found.findings


def test_row_that_says_1_is_no_base_where_most_others_do_not_follow_from_it():
    header = "Framework | Throughput (samples/s) | Speedup"
    found = audit_table(header, "A | 100 | 1", "B | 200 | 1.31", "C | 300 | 1.42")
    assert not found.findings
    assert found.checked.derived_cells_unchecked == 3
