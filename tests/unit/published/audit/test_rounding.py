"""One table per rule: what is right to the printed digit, what is found, and how it is printed."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.published.audit import Audit, audit_paths, rounding
from dlperf_slurm.published.audit.headers import read_headers
from dlperf_slurm.published.audit.rounding import (
    DUPLICATE,
    IN_SPREAD,
    LATENCY_OFF,
    OUT_OF_ORDER,
    STALE,
    WRONG,
    make_cell,
)

HEADERS = {
    "scaling": "GPUs | img/s | speedup",
    "by topology": "topology | img/s | speedup",
    "by nodes": "nodes | gpus per node | img/s | speedup",
    "both": "GPUs | Throughput - mixed precision | Throughput - FP32 | Throughput speedup "
    "| Weak scaling - mixed precision | Weak scaling - FP32",
    "latency": "batch size | images/s | avg latency (ms)",
    "in seconds": "batch size | images/s | avg latency (s)",
    "no unit": "batch size | images/s | Latency Avg",
    "of repeats": "GPUs | batch size | images/s | avg ms",
    "percentiles": "batch size | images/s | avg latency (ms) | 50% latency (ms) | 90% latency (ms)",
    "agreeing": "batch size | Throughput (img/sec) - AMP | Throughput - speedup "
    "| Avg latency (ms) - AMP | Avg latency - speedup",
    "times": "GPUs | Time to train - FP32 | Time to train - BF16 "
    "| Time to train speedup (FP32 to BF16)",
    "millions": "GPUs | Throughput - FP32 (samples/s) | Throughput - AMP (samples/s) "
    "| Throughput speedup",
    "either": "Batch size | Precision | Avg latency (s) | Throughput (frames/sec) "
    "| Speed-up with mixed precision",
    "bare": "Model | Mixed Precision | TF32 | Mixed Precision Speedup",
    "strong": "Batch size | GPUs | Throughput | Strong scaling",
    "accumulated": "Batch size / GPU | GPUs | Grad accumulation | Throughput - TF32 "
    "| Strong scaling - TF32",
    "any batch": "GPUs | Batch size | Throughput | Speedup",
    "bold": "**GPUs** | **img/s** | **speedup**",
    "by batch": "Batch size | img/s | weak scaling",
    "whole nodes": "Num Nodes | img/s | weak scaling",
    "by length": "Sequence Length | Batch Size | Latency-90%(ms) | img/s",
    "by words": "GPUs | Sequence Length | batch size | img/s | weak scaling",
}
SCALING, LATENCY, AGREEING = (HEADERS[name] for name in ("scaling", "latency", "agreeing"))
AMP = "GPUs | Throughput - FP32 | Throughput - AMP | Throughput speedup (FP32 to AMP)"
# name of the header: rows parted by //, => what is found and of which kind
CASES = """
# rounded to any number of digits; 763 / 384 is 1.987, but 762.5 / 384.5 is 1.983
scaling: 1 | 417 | 1 // 2 | 821.0 | 2
scaling: 1 | 417 | 1 // 2 | 821.0 | 1.97
scaling: 1 | 417 | 1 // 2 | 821.0 | 1.9688
scaling: 1 | 384 | 1.00 // 2 | 763 | 1.98
scaling: 1 | 384.00 | 1.00 // 2 | 763.00 | 1.98 => 1.98 truncated
scaling: 1 | 100.000 | 1.00 // 2 | 190.000 | 1.88 => 1.88 wrong
scaling: 1 | 100.0 | 1.10 // 2 | 190.0 | 1.90 => 1.10 wrong
# above the devices, but within the rounding of its figures, or the spread of their repeats
scaling: 1 | 100.0 | 1.00 // 2 | 203.0 | 2.03 => 2.03 above_devices
scaling: 1 | 100.0 | 1.0 // 2 | 200.4 | 2.0
scaling: 1 | 107 | 1.00 // 8 | 857 | 8.01
scaling: 1 | 107.00 | 1.00 // 8 | 857.00 | 8.01 => 8.01 above_devices
by topology: 1n1g | 100.00 {99.00 to 101.00} | 1 // 1n8g | 808.00 {800.00 to 812.00} | 8.08
by topology: 1n1g | 100.0 {99.99 to 100.01} | 1 // 1n8g | 808.0 {806.0 to 812.0} | 8.08 \
=> 8.08 above_devices
by nodes: 2 | 8 | 1600.0 | 1.00 // 4 | 8 | 3300.0 | 2.06 => 2.06 above_devices
# over another batch size there is no such bound
strong: 128 | 1 | 148149 | 1.00 // 64 | 4 | 614857 | 4.15
strong: 128 | 1 | 148149 | 1.00 // 128 | 4 | 614857 | 4.15 => 4.15 above_devices
both: 1 | 300.00 | 100.00 | 3.00 | 1.00 | 1.00 // 4 | 900.00 | 380.00 | 2.37 | 3.80 | 3.00 \
=> 3.80 swapped; 3.00 swapped
both: 1 | 300.00 | 100.00 | 2.90 | 1.00 | 1.00 => 2.90 wrong
percentiles: 1 | 100.00 | 10.00 | 9.90 | 9.80 => 9.80 out_of_order
# throughput times latency is the batch, in the unit of the latency; not of medians over repeats
latency: 8 | 100 | 80.3
latency: 8 | 99 | 80.10 => 99 truncated
latency: 8 | 110 | 80.00 => 110 latency_off
latency: 8 | 90.00 | 80.00 => 90.00 latency_off
latency: 8 | 80.0 | 100.0 // 16 | 99.0 | 100.0 // 32 | 320.0 | 100.0 => 99.0 latency_off
in seconds: 8 | 80.0 | 0.1000 // 16 | 99.0 | 0.1000 // 32 | 320.0 | 0.1000 => 99.0 latency_off
no unit: 8 | 80.0 | 0.1000 // 16 | 99.0 | 0.1000 // 32 | 320.0 | 0.1000 => 99.0 latency_off
of repeats: 1 | 8 | 110.00 {80.00 to 140.00} | 80.00
of repeats: 1 | 8 | 110.00 {108.00 to 112.00} | 80.00 => 110.00 latency_off
agreeing: 1 | 100.0 | 1.50 | 10.0 | 1.51
agreeing: 1 | 100.0 | 1.50 | 10.0 | 1.52 => 1.50 contradiction
# numbers as they are printed: links, times, thousands and millions
scaling: 1 | [100.0](./a) | 1.0 // 2 | [190.0](b) | 1.7 => 1.7 wrong
times: 1 | 1h02min | 31min | 2.40x => 2.40 wrong
times: 1 | 01:02:00 | 00:31:00 | 2.40x => 2.40 wrong
times: 1 | 12.4 h | 6.2 | 2.00x
times: 1 | 12.4 h | 6.2 | 2.40x => 2.40 wrong
millions: 1 | 1250k | 2.50M | 2.30 => 2.30 wrong
millions: 1 | 1 250 000 | 2 500 000 | 2.30 => 2.30 wrong
millions: 1 | 1.25e+06 | 2.50e+06 | 2.30 => 2.30 wrong
scaling: 1 | 100.0w/XLA 50.0 | 1.0w/XLA 1.0 // 2 | 190.0w/XLA 80.0 | 1.9w/XLA 1.9 => 1.9 wrong
scaling: 1 | <sup>[1]</sup>100.0 | 1.0 // 2 | 200.0<sup>w/XLA</sup><br>180.0 | 1.9 => 1.9 wrong
bold: 1 | 100.0 | 1.0 // 2 | 190.0 | 1.7 => 1.7 wrong
# over batch sizes, relative to the row that says 1; over whole nodes; rows of a word of their own
by batch: 1 | 10.0 | 1 // 8 | 35.0 | 3.5
whole nodes: 1 | 10.0 | 1.0 // 4 | 41.0 | 4.1 => 4.1 above_devices
by length: 128 | 1 | 5.0 | 200.0 // 512 | 1 | 20.0 | 50.0
# of latencies or of throughputs; precisions that are bare headers have rates where cells say so
either: 1 | FP16 | 0.50 | 1500 | 1.50 // 1 | TF32 | 1.00 | 1000 | 1.00
either: 1 | FP16 | 0.50 | 1500 | 2.00 // 1 | TF32 | 1.00 | 1000 | 1.00
either: 1 | FP16 | 0.50 | 1500 | 1.80 // 1 | TF32 | 1.00 | 1000 | 1.00 => 1.80 wrong
bare: resnet50 | 2470 img/s | 777 img/s | 2.18 x => 2.18 wrong
bare: resnet50 | 76.1 | 76.2 | 2.18 x
# base rows of other batch sizes, of the best one, and one for all
accumulated: 128 | 1 | 2 | 141,028 | 1.00 // 64 | 4 | 1 | 525,879 | 3.73 \
// 32 | 8 | 1 | 914,350 | 6.88 => 6.88 wrong
strong: 32 | 1 | 6522.37 | 1.00 // 64 | 1 | 7596.32 | 1.00 // 32 | 4 | 23660.14 | 3.11
strong: 32 | 1 | 6522.37 | 1.00 // 64 | 1 | 7596.32 | 1.00 // 32 | 4 | 23660.14 | 3.63
strong: 32 | 1 | 6522.37 | 1.00 // 64 | 1 | 7596.32 | 1.00 // 32 | 4 | 23660.14 | 3.30 => 3.30 wrong
any batch: 1 | 4 | 8.839 | 1 // 2 | 4 | 16.405 | 1.86 // 1 | 6 | 9.180 | 1.04
any batch: 1 | 4 | 8.839 | 1 // 2 | 4 | 16.405 | 1.86 // 1 | 6 | 9.180 | 1.00
any batch: 1 | 4 | 8.839 | 1 // 2 | 4 | 16.405 | 1.86 // 1 | 6 | 9.180 | 1.10 => 1.10 wrong
by words: 1 | 128 | 8 | 50.0 | 1.0 // 1 | 512 | 4 | 10.0 | 1.0 // 4 | 512 | 2 | 38.0 | 3.8
"""
BY_WORDS = f"{HEADERS['by words']} // 1 | 128 | 8 | 50.0 | 1.0 // 1 | 512 | 4 | 10.0 | 1.0"
PUBLISHED = (
    "source,framework,software,model,precision,compiler,nodes,devices_per_node,"
    "batch_size_per_device,repeat,samples_per_s,published_speedup,hardware,table,where"
)


def write_table(text: str, title: str = "") -> str:
    """Markdown of a header and rows that `//` parts."""
    header, *rows = text.split(" // ")
    dashes = " | ".join(["---"] * (header.count("|") + 1))
    return "\n".join([title, "", *(f"| {line} |" for line in (header, dashes, *rows)), ""])


def audit_text(text: str, name: str = "x.md") -> Audit:
    Path(name).write_text(text, encoding="utf-8")
    return audit_paths([Path(name)])


def audit_table(*texts: str) -> Audit:
    return audit_text("\n".join(map(write_table, texts)))


def write_published(*lines: str, name: str = "published.csv") -> Path:
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


def read_cases() -> list[tuple[str, list[tuple[str, str]]]]:
    """Tables with what is found in them: what is printed, and its kind."""
    cases = []
    for line in CASES.strip().splitlines():
        if not line.startswith("#"):
            text, _, found = line.partition(" => ")
            name, _, rows = text.partition(": ")
            kinds = [part.partition(" ") for part in found.split("; ") if part]
            found_kinds = [(cell, getattr(rounding, kind.upper())) for cell, _, kind in kinds]
            cases.append((f"{HEADERS[name]} // {rows}", found_kinds))
    return cases


@pytest.mark.parametrize(("text", "kinds"), read_cases())
def test_what_does_not_follow_is_found_and_all_that_may_is_right(text, kinds):
    assert list_kinds(audit_table(text)) == kinds


@pytest.mark.parametrize("devices", ["8", "**8**", "`8`"])
@pytest.mark.parametrize("speedup", ["7.0x", "**7.0**", "7.0 \u00d7", "7.0\u00d7", "`7.0`"])
def test_marks_and_signs_beside_numbers_hide_none(devices, speedup):
    found = audit_table(f"{SCALING} // 1 | 100 | 1.0 // {devices} | 760 | {speedup}")
    assert list_kinds(found) == [("7.0", WRONG)]


@pytest.mark.parametrize(
    ("text", "recomputed", "unchecked", "kinds"),
    [
        (
            "GPUs | Batch size / GPU (TF32, BF16) | Throughput - TF32 | Throughput - BF16 "
            "| Throughput speedup (TF32 - BF16) | Weak scaling - TF32 | Weak scaling - BF16 // "
            "1 | 24, 40 | 48.61 | 74.59 | 1.53 | 1 | 1 // "
            "8 | 24, 40 | 243.03 | 390.24 | 1.61 | 3.39 | 5.23",
            *(6, 0, [("3.39", WRONG)]),
        ),
        # a variant and batch size that all throughputs name tell no columns apart
        (
            "GPUs | Throughput - TF32 + XLA (BS=104) | Throughput - mixed precision + XLA (BS=200) "
            "| Throughput speedup (TF32 - mixed precision) | Weak scaling - TF32 + XLA // "
            "1 | 162.0 | 397.0 | 2.45 | 1 // 8 | 1266.0 | 2711.0 | 2.44 | 7.81",
            *(4, 0, [("2.44", WRONG)]),
        ),
        # over other software, relative to the row that says 1
        (
            "Framework | Batch size | Precision | Throughput (samples/s) | Speed-up // "
            "PyT | 1 | FP16 | 681,773 | 1 // PyT+TRT | 1 | FP16 | 1,398,343 | 2.05 // "
            "PyT | 4 | FP16 | 1,244,466 | 1 // PyT+TRT | 4 | FP16 | 1,599,005 | 1.28",
            *(4, 0, []),
        ),
        # ... which is no base where most others do not follow from it
        (
            "Framework | Throughput (samples/s) | Speedup // A | 100 | 1 // B | 200 | 1.31 // "
            "C | 300 | 1.42",
            *(0, 3, []),
        ),
        # a speedup that fits no throughput may be of times
        (
            "Generator | Training time | Throughput (img/s) | Speedup // "
            "TF | 11:30:45 | 128.08 | 1x (base) // DALI | 6:23:43 | 208.38 | 1.8x",
            *(2, 0, []),
        ),
        # a baseline or a reference of another batch size is taken where it fits
        (
            "GPUs | Batch size | img/s | efficiency // 1 | 4 | 8.839 |  // 1 | 6 | 9.180 |  // "
            "2 | 8 | 17.0 | 0.93",
            *(1, 0, []),
        ),
        *(
            (
                "Batch size | Accumulation | GPUs | Throughput - FP32 | Throughput - AMP "
                "| Throughput speedup (FP32 to AMP) // 32 | 4 | 1 | 3017.57 | 6522.37 | 2.16 // "
                f"64 | 2 | 1 | - | 7596.32 | {speedup}",
                *(2 - unchecked, unchecked, []),
            )
            for speedup, unchecked in (("2.52", 0), ("2.90", 1))
        ),
    ],
)
def test_speedups_are_recomputed_or_counted_as_unchecked(text, recomputed, unchecked, kinds):
    found = audit_table(text)
    assert (found.checked.derived_cells, list_kinds(found)) == (recomputed, kinds)
    assert found.checked.derived_cells_unchecked == unchecked


@pytest.mark.parametrize(
    ("text", "follows", "says"),
    [
        (f"{SCALING} // 1 | 384.00 | 1.00 // 2 | 763.00 | 1.98", "1.9870", "763.00 / 384.00"),
        (f"{AMP} // 1 | 10.42M | 21.84M | 0.48", "2.0960", "inverse"),
        (
            "Batch size | Throughput - TF32 | Weak scaling - TF32 // 1 | 158.83 | 100% // "
            "2 | 308.31 | 194% // 4 | 481.69 | 330% // 8 | 597.72 | 376%",
            *("3.0327", "481.69 / 158.83"),
        ),
        (
            "batch size | 50% latency (ms) - mixed precision | 50% latency - speedup "
            "| 90% latency (ms) - mixed precision | 90% latency - speedup // "
            "1 | 10.00 | 3.00 | 11.00 | 2.00",
            *("", "is 30.00 here, but only 22.00"),
        ),
        (
            f"{LATENCY} // 1 | 23 | 34.91 // 2 | 26 | 59.31 // 4 | 29 | 104.11 // 8 | 30 | 201.13",
            *("", "4 of the table's 4 rows are inconsistent"),
        ),
    ],
)
def test_finding_says_what_follows_and_from_what(text, follows, says):
    (finding,) = audit_table(text).findings
    assert finding.follows.startswith(follows)
    assert says in finding.reason


def test_finding_names_file_line_and_cell_and_how_far_beyond_rounding_it_is():
    (finding,) = audit_table(f"{SCALING} // 1 | 100.0 | 1.0 // 4 | 380.0 | 3.9").findings
    assert (finding.file, finding.line, finding.cell) == ("x.md", 6, "speedup: 4 devices")
    assert finding.reason.endswith("380.0 / 100.0; the cell is off by +2.63%")
    # 3.85 over 380.05 / 99.95
    assert finding.excess == pytest.approx(3.85 / (380.05 / 99.95) - 1, abs=1e-4)


def test_throughput_within_the_rows_own_latencies_is_no_matter():
    header = f"{LATENCY} | 50% latency (ms) | 99% latency (ms)"
    (inside,) = audit_table(f"{header} // 8 | 100.0 | 100.0 | 79.0 | 120.0").findings
    (outside,) = audit_table(f"{header} // 8 | 60.0 | 100.0 | 79.0 | 120.0").findings
    assert inside.excess == 0
    assert outside.excess == pytest.approx(0.11, abs=0.01)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{SCALING} // 8 | 100.0 | 7.10 // 16 | 190.0 | 13.5", ("throughput", "fewer devices")),
        # of 1n2g, as our report prints it
        ("batch size | images/s | avg ms // 8 | 2666.67 | 6.00", ("device count",)),
    ],
)
def test_what_cannot_be_checked_is_named(text, says):
    found = audit_table(text)
    assert found.findings == ()
    (gap,) = found.not_audited
    assert_problem(gap.reason, says=says)


def test_of_baselines_none_of_which_fits_each_is_named():
    unclear = audit_table(f"{BY_WORDS} // 4 | 256 | 2 | 20.0 | 3.9")
    assert (unclear.findings, len(unclear.not_audited)) == ((), 2)


@pytest.mark.parametrize(
    "text",
    [
        # a server under load, and other items than the batch
        "Batch | Concurrency | Inferences/Second | avg latency (ms) | p99 latency (ms) // "
        "1 | 8 | 984.00 | 12.00 | 13.00 // 1 | 16 | 990.00 | 24.0 | 25.0",
        "Batch | Concurrency | Inferences/Second | avg latency (ms) // 1 | 2 | 110.00 | 12.00",
        "batch size | tokens/s | avg latency (ms) // 8 | 5120 | 100 // 16 | 9000 | 100",
    ],
)
def test_throughput_that_is_no_batch_over_a_latency_is_not_checked_by_it(text):
    found = audit_table(text)
    assert (found.findings, found.checked.throughputs_by_latency) == ((), 0)


def test_units_in_cells_and_percentiles_below_the_mean_are_read():
    found = audit_table(
        "**Batch Size** | **Avg throughput** | **Avg latency** | **95% Latency** | **99% Latency**"
        " // 1 | 131 img/s | 7.61 ms | 11.35 ms | 9.05 ms"
    )
    assert list_kinds(found) == [("9.05", OUT_OF_ORDER)]
    assert (found.checked.latency_rows, found.checked.throughputs_by_latency) == (1, 1)


def test_speedups_of_figures_that_are_not_there_are_compared_and_counted():
    checked = audit_table(f"{AGREEING} // 1 | 100.0 | 1.50 | 10.0 | 1.51").checked
    assert (checked.derived_cells, checked.speedups_compared) == (0, 2)
    assert checked.derived_cells_unchecked == 0


@pytest.mark.parametrize(
    ("header", "quantity", "precision"),
    [
        ("Latency 95%", "latency_p95", ""),
        ("Latency Avg [ms] &darr;", "latency_avg", ""),
        ("Latency-90%(ms)", "latency_p90", ""),
        ("Median Latency [ms]", "latency_p50", ""),
        ("Latency tolerance interval 95% (s)", "latency_p95", ""),
        ("Latency std (s)", "", ""),
        ("TF32 Scaling", "speedup", "tf32"),
        ("Multi-GPU weak scaling with FP32", "speedup", "fp32"),
        ("Mixed precision img/s", "samples_per_s", "amp-fp16"),
        ("FP16/TF32 speed up", "precision_speedup", "amp-fp16"),
        ("Time to train (hrs) speedup (TF32 to BF16)", "time_speedup", "bf16"),
        ("Batch size / GPU (TF32, BF16)", "batch_size", "bf16"),
        ("Client Concurrency", "concurrency", ""),
        ("EfficientNet", "", ""),
    ],
)
def test_header_has_this_quantity_of_this_precision(header, quantity, precision):
    (column,) = read_headers([header])
    assert (column.quantity, column.precision) == (quantity, precision)


@pytest.mark.parametrize("name", ["BF16", "FP16"])
def test_titles_tell_the_precisions_of_two_tables(name):
    header = "Batch Size | Throughput-Average(seq/sec) | Latency-90%(ms) | Latency-99%(ms)"
    reduced = header.replace("|", f"| Throughput speedup (FP32 to {name}) |", 1)
    tables = (
        write_table(f"{reduced} // 8 | 2.49 | 180.0 | 9.1 | 9.2", f"BERTLarge {name}"),
        write_table(f"{header} // 8 | 60.0 | 20.1 | 20.2", "BERT-Large FP32"),
        write_table(f"{header} // 8 | 90.0 | 10.1 | 10.2", "BERT-Base FP32"),
    )
    found = audit_text("## SQuAD\n" + "\n".join(tables))
    assert [(f.published, f.follows) for f in found.findings] == [("2.49", "3.0000")]


@pytest.mark.parametrize(
    "text",
    [
        # a bar too many costs no row, dashes may be any, of a column too few
        *(
            write_table(f"{SCALING} // 1 | 100.0 | 1.0") + row
            for row in ("2 | 190.0 | 1.7 |", "2 | 190.0 | 1.7 | # note", "| 2 | 190.0 | 1.7")
        ),
        *(
            f"{SCALING}\n{dashes}\n1 | 100.0 | 1.0\n2 | 190.0 | 1.7\n"
            for dashes in ("-|-|-", "|:-:|:-:|:-:|", "--- | --- | ---", "---|---")
        ),
    ],
)
def test_table_is_read_however_its_lines_are_drawn(text):
    assert list_kinds(audit_text(text)) == [("1.7", WRONG)]


def test_row_that_is_too_wide_costs_no_other():
    found = audit_table(f"{SCALING} // 1 | 100.0 | 1.0 // 2 | 3 | 190.0 | 1.9 // 4 | 380.0 | 3.3")
    assert list_kinds(found) == [("3.3", WRONG)]
    (gap,) = found.not_audited
    assert_problem(gap.reason, key="line 6", says=("4 cells", "3"))


def test_headers_of_merged_cells_are_joined():
    text = (
        "|  |  | FP16 Latency (ms) |  |  | TF32 Latency (ms) |  |  | FP16/TF32 speed up |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| BS | Duration (s) | 90% | 99% | Avg | 90% | 99% | Avg | Avg |\n"
        "| 1 | 2.0 | 32.4 | 32.8 | 32.3 | 64.0 | 63.0 | 62.0 | 1.5 |\n"
    )
    assert sorted(list_kinds(audit_text(text))) == [("1.5", WRONG), ("63.0", OUT_OF_ORDER)]


def test_speedup_of_another_figure_of_the_configuration_is_stale():
    path = write_published(
        make_line(1, "100.00", "1.00"),
        make_line(2, "190.00", "1.95"),
        make_line(2, "195.00", table="older", where="README.md:9"),
    )
    (finding,) = audit_paths([path]).findings
    assert (finding.published, finding.kind) == ("1.95", STALE)
    assert "195.00 at README.md:9" in finding.reason


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        # twice in a table; of two files the later one, of three the one alone
        ([[("100.0", "MXNet"), ("101.0", "MXNet"), ("100", "MXNet")]], [("101.0", DUPLICATE)]),
        ([[("100.0", "MXNet")], [("101.0", "MXNet 1.6")]], [("101.0", DUPLICATE)]),
        (
            [[("100.0", "MXNet")], [("101.0", "MXNet 1.6")], [("101.0", "MXNet 1.6 (x)")]],
            [("100.0", DUPLICATE)],
        ),
        # one of two versions, and other software
        ([[("150.0", "MXNet")], [("150.0", "MXNet 1.5"), ("160.0", "MXNet 1.6")]], []),
        ([[("100.0", "NGC MXNet")], [("101.0", "MXNet")]], []),
    ],
)
def test_configuration_that_is_there_twice_with_other_values_is_a_duplicate(files, kinds):
    paths = [
        write_published(
            *(
                make_line(1, samples, software=name, table=name if len(files) > 1 else "t")
                for samples, name in lines
            ),
            name=f"{number}.csv",
        )
        for number, lines in enumerate(files)
    ]
    assert list_kinds(audit_paths(paths)) == kinds


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


@pytest.mark.parametrize(("figure", "kinds"), [("80.0", []), ("90.0", [("90.0", STALE)])])
def test_figure_that_is_not_the_median_of_its_documents_repeats_is_stale(figure, kinds):
    repeats = [
        make_line(1, value, repeat=str(n)) for n, value in enumerate(("90.0", "80.0", "70.0"), 1)
    ]
    assert list_kinds(audit_paths([write_published(make_line(1, figure), *repeats)])) == kinds


def test_two_tables_without_a_model_are_not_compared():
    tables = (f"{SCALING} // 1 | {rate}.0 | 1.0 // 2 | {1.9 * rate} | 1.9" for rate in (100, 50))
    assert list_kinds(audit_table(*tables)) == []


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "²", "1" * 31, "", "-", "0", "0.0", "-1.5", "1.2.3", "nan", "inf", "1e999", "x"],
)
def test_text_that_is_no_positive_number_is_no_cell(text):
    assert make_cell(text, "c") is None


OF_TP = "Batch size | Latency of TP-8 (ms) | Latency of TP-64 (ms) // 1 | 90 | 50 // 2 | 91 | 51"
OF_NODES = "Nodes | GPUs | img/s | Weak scaling // 1 | 8 | 100.0 | 1.00 // 2 | 8 | 190.0 | {}"
OF_RATIO = (
    "Batch size | Seq len | Baseline latency (ms) | Ours latency (ms) | Speedup // 1 | 10 | 60 "
    "| 20 | 3.0 // 1 | 20 | 90 | 25 | 3.6 // 1 | 40 | 100 | 40 | {} // 8 | 10 | 210 | 50 | 4.2"
)
OF_TIMM = (
    "model,infer_samples_per_sec,infer_step_time,infer_batch_size\na,1000.0,64.0,64\n"
    "b,2000.0,32.0,64\nc,{},16.0,64\n"
)
OF_MEANS = (
    "Batch size | Throughput (img/s) | Latency avg (ms) | Latency 95% (ms) | Latency 99% (ms) // "
    "10 | 1000 | {} | {} | {}"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OF_TP, []),
        (OF_NODES.format("1.90"), []),
        (OF_NODES.format("1.80"), [("Weak scaling", "1.80", WRONG)]),
        # total devices on other nodes are no duplicates of each other
        ("Nodes | GPUs | img/s // 1 | 8 | 100.0 // 2 | 8 | 90.0 // 2 | 16 | 190.0", []),
        # nor are rows of other methods, whatever their header means elsewhere, or of other images
        (
            "Scaling method | tokens/s | Speedup over BF16 // no | 80.5 | - // mx | 95 | +18.0%",
            [],
        ),
        ("model,img_per_s,step_time,batch_size,img_size\na,50,20,1,224\na,20,50,1,384\n", []),
        (OF_RATIO.format("2.5"), []),
        (OF_RATIO.format("3.5"), [("Speedup", "3.5", WRONG)]),
        (OF_TIMM.format("4000.0"), []),
        (OF_TIMM.format("5000.0"), [("infer_samples_per_sec", "5000.0", LATENCY_OFF)]),
        (OF_MEANS.format(11.2, 12.5, 14.9), [("Throughput (img/s)", "1000", IN_SPREAD)]),
    ],
)
def test_tables_of_other_people_are_read_as_they_mean_it(text, found):
    if "//" in text:
        findings = audit_text(write_table(text)).findings
    else:
        findings = audit_text(text, "x.csv").findings
    assert [(f.cell.partition(":")[0], f.published, f.kind) for f in findings] == found


def test_mean_above_the_percentiles_is_off_by_all_of_it():
    (finding,) = audit_text(write_table(OF_MEANS.format(11.2, 10.5, 10.9))).findings
    assert finding.excess == pytest.approx(0.115, abs=0.005)
    assert (finding.kind, "10.9" in finding.reason) == (LATENCY_OFF, True)
