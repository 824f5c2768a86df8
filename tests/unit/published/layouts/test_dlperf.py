"""DLPerf's layout: its published tables cell by cell, and what a run gives in it."""

import pandas
import pytest
from published_documents import lay_out_published, lay_out_run, make_training
from report_values import write_rows

from dlperf_slurm.published.figures import read_source
from dlperf_slurm.published.layouts import load_layout
from dlperf_slurm.published.layouts.parts.document import Document
from dlperf_slurm.published.layouts.parts.figures import make_published_figures
from dlperf_slurm.reports.cells import Table

# DLPerf's README: FP32 throughput and speedup at 128, AMP throughput and speedup at 256
RESNET50 = {
    "OneFlow": ("12411.97", "31.21", "33141.02", "22.50"),
    "NGC TensorFlow 1.x": ("9514.64", "26.25", "29171.69 w/XLA\n24734.22", "24.34 w/XLA\n26.17"),
    "NGC PyTorch": ("10917.09", "29.72", "22551.16", "28.09"),
    "NGC MXNet": ("11233.92", "28.67", "30713.68", "22.03"),
    "PyTorch": ("10021.29", "28.75", "-", "-"),
    "PaddlePaddle": ("9348.17", "26.50", "10633.22\n11617.57 w/DALI", "10.2\n13.1 w/DALI"),
    "TensorFlow 2.x": ("9418.44", "29.27", "19314.31", "17.96"),
}
# ... that do not follow from the report that the README sums up: MXNet has another throughput
# there (and 11233.92 over its 392.24 would be 28.64), a speedup was cut instead of rounded; 13.1
# has a digit less
RESNET50_CONTRADICTIONS = {
    ("NGC MXNet", "FP32 throughput"): ("11233.92", "11331.93"),
    ("NGC MXNet", "FP32 speedup"): ("28.67", "28.89"),
    ("PaddlePaddle", "AMP speedup"): ("10.2\n13.1 w/DALI", "10.28\n13.10 w/DALI"),
}
# FP32 throughput at the largest batch size and at 32, AMP at the largest and at 64
BERT = {
    "OneFlow": ("4664.10\nbsz=96", "3689.80", "15724.70\nbsz=160", "9911.78"),
    "NGC TensorFlow 1.x": (
        "3089.74\nbsz=48",
        "2727.90",
        "11650.00 w/XLA\nbsz=96",
        "5189.07\n9409.20 w/XLA",
    ),
    "NGC PyTorch": ("3039.30\nbsz=48", "2885.81", "10349.12\nbsz=96", "9331.72"),
    "PaddlePaddle": ("3167.68\nbsz=96", "2073.60", "5452.35\nbsz=160", "3406.36"),
    "OneFlow W/O clip": ("4799.64\nbsz=96", "4019.45", "17210.63\nbsz=160", "11195.72"),
    "MXNet W/O clip": ("4340.89\nbsz=64", "3671.45", "14822.31\nbsz=128", "11269.14"),
}


@pytest.fixture(scope="module")
def published() -> Document:
    """DLPerf's report, with the figures of PaddlePaddle without DALI, which it leaves out."""
    report = read_source("dlperf_report_v1")
    with_dali = report[report.note == "w/DALI"].iloc[0]
    left_out = {"framework": "paddle", "model": "resnet50", "precision": "amp-fp16",
        "batch_size_per_device": 224, "note": ""}  # fmt: skip
    own = read_source("dlperf")
    without = own[(own[[*left_out]] == [*left_out.values()]).all(axis=1)]
    without = without.assign(software=with_dali.software, table=with_dali.table)
    both = pandas.concat([without, report], ignore_index=True)
    return load_layout("dlperf").lay_out(make_published_figures(both))


def find_table(document: Document, title: str) -> Table:
    (table,) = (table for table in document.tables if table.title == title)
    return table


def read_cells(table: Table) -> dict[str, tuple[str, ...]]:
    """Return the figures of each framework's row, without footnote marks."""
    return {
        row[0]: tuple(cell.rpartition("] ")[2] for cell in row[table.text_columns :])
        for row in write_rows(table)
    }


def test_summary_of_resnet50_has_the_published_columns(published):
    assert find_table(published, "ResNet-50: summary").header == (
        "Framework",
        "Source",
        "FP32 throughput\n(img/s)\nbsz=128",
        "FP32 speedup\nbsz=128",
        "AMP throughput\n(img/s)\nbsz=256",
        "AMP speedup\nbsz=256",
    )


def test_summary_of_resnet50_is_as_published_but_where_this_contradicts_the_report(published):
    table = find_table(published, "ResNet-50: summary")
    own = read_cells(table)
    differing = {
        (framework, column.partition("\n")[0]): (cell, own_cell)
        for framework, row in RESNET50.items()
        for column, cell, own_cell in zip(table.header[2:], row, own[framework])
        if cell != own_cell
    }
    assert differing == RESNET50_CONTRADICTIONS


def test_summary_of_bert_is_as_published(published):
    sources = write_rows(
        find_table(lay_out_published("dlperf", "dlperf_summary"), "BERT-base: summary")
    )
    assert ("PaddlePaddle", "PaddleNLP") in [row[:2] for row in sources]
    assert read_cells(find_table(published, "BERT-base: summary")) == BERT


def test_other_batch_sizes_than_the_column_has_are_footnotes(published):
    (row,) = (
        r for r in write_rows(find_table(published, "ResNet-50: summary")) if "TensorFlow 1" in r[0]
    )
    assert row[4].startswith("[3][4] 29171.69 w/XLA")
    assert published.footnotes == [
        "AMP of PaddlePaddle: bsz=224 in place of 256",
        "AMP of PaddlePaddle w/DALI: bsz=196 in place of 256",
        "AMP of NGC TensorFlow 1.x w/XLA: bsz=224 in place of 256",
        "AMP of NGC TensorFlow 1.x: bsz=224 in place of 256",
    ]


def test_configuration_table_has_a_row_per_topology_and_a_column_per_framework(published):
    table = find_table(published, "BERT-base: FP32, batch size 32")
    assert table.header[:3] == ("node num", "device num", "OneFlow throughput\n(sequences/s)")
    assert [row[:3] for row in write_rows(table)] == [
        ("1", "1", "152.89"),
        ("1", "8", "1105.55"),
        ("2", "16", "2015.78"),
        ("4", "32", "3689.80"),
    ]


def test_configuration_tables_have_each_figure_of_the_report_once(published):
    shown = [
        cell.rpartition("] ")[2].partition("\n")[0]
        for table in lay_out_published("dlperf", "dlperf_report_v1").tables
        if "summary" not in table.title
        for row in write_rows(table)
        for cell in row[2:]
    ]
    figures = [f"{rate:.2f}" for rate in read_source("dlperf_report_v1").samples_per_s]
    assert sorted(set(shown) - {"-"}) == sorted(set(figures))
    assert len([text for text in shown if text != "-"]) == len(figures)


def test_speedup_of_a_run_is_of_the_largest_topology_over_1n1g():
    document = lay_out_run(
        "dlperf",
        make_training("1n1g", rate=10.0),
        make_training("2n8g", rate=120.0),
        make_training("1n8g", rate=70.0),
    )
    table = find_table(document, "ResNet-50: summary")
    assert write_rows(table) == (("pytorch", "dlperf_slurm", "120.00", "12.00"),)
    assert table.caption.startswith("throughput on 2n8g, speedup over 1n1g")


def test_largest_batch_sizes_are_named_in_their_cells_and_have_no_speedup():
    largest = {"batch_size_per_device": "max"}
    document = lay_out_run(
        "dlperf",
        make_training("1n1g", rate=10.0, **largest),
        make_training("1n2g", rate=20.0, **largest),
    )
    table = find_table(document, "ResNet-50: summary")
    assert table.header[2:] == ("FP32 throughput\n(img/s)\nbsz=max",)
    assert write_rows(table)[0][2:] == ("20.00\nbsz=8",)


def test_batch_size_of_a_ladder_stands_in_the_column_of_its_first_with_a_footnote():
    ladder = {"batch_size_per_device": "16 -> 8"}
    document = lay_out_run("dlperf", make_training("1n1g", rate=10.0, **ladder))
    table = find_table(document, "ResNet-50: summary")
    assert table.header[2] == "FP32 throughput\n(img/s)\nbsz=16"
    assert write_rows(table)[0][2] == "[1] 10.00"
    assert document.footnotes == ["FP32 of pytorch: bsz=8 in place of 16"]


def test_failed_case_has_its_word_and_a_numbered_footnote():
    document = lay_out_run(
        "dlperf",
        make_training("1n1g", rate=10.0),
        make_training("1n2g", rate=20.0),
        make_training("1n1g", "amp-fp16"),
        make_training("1n2g", "amp-fp16"),
    )
    table = find_table(document, "ResNet-50: summary")
    assert write_rows(table)[0][2:] == ("20.00", "2.00", "[1] OOM", "-")
    assert document.footnotes[0].startswith("1n2g-8-7-amp-fp16 repeat 1, 2, 3, 4, 5, 6, 7; 1n1g-")


@pytest.mark.parametrize(
    ("cases", "note"),
    [
        ([make_training("1n1g", rate=1.0)], "resnet50: one topology, so no speedup"),
        (
            [make_training("1n1g", rate=1.0)],
            "resnet50: no results in mixed precision, so no columns for it",
        ),
        ([make_training("1n1g", rate=1.0, mode="infer")], "no training cases, so no table"),
        (
            [make_training("1n1g", rate=1.0), make_training("1n2g", rate=1.0, framework="jax")],
            "resnet50: the summary table is for 1n2g, on which these frameworks were not "
            "measured: pytorch",
        ),
    ],
)
def test_run_that_lacks_something_says_what(cases, note):
    assert note in lay_out_run("dlperf", *cases).notes


def test_ways_to_distribute_have_rows_and_columns_of_their_own():
    document = lay_out_run(
        "dlperf",
        make_training("1n2g", rate=20.0),
        make_training("1n2g", rate=18.0, gradient_sync="horovod"),
    )
    summary, configuration = document.tables
    assert [row[0] for row in write_rows(summary)] == ["pytorch", "pytorch horovod"]
    assert write_rows(configuration) == (("1", "2", "20.00", "18.00"),)
    assert not any("is shown" in note for note in document.notes)


def test_speedup_between_different_batch_sizes_is_marked():
    # the ladder ended at 8 on two devices and at 16 on one
    ladder = {"batch_size_per_device": "16 -> 8"}
    on_one = make_training("1n1g", rate=10.0, found_batch_size=16, **ladder)
    on_two = make_training("1n2g", rate=15.0, found_batch_size=8, **ladder)
    document = lay_out_run("dlperf", on_one, on_two)
    assert write_rows(find_table(document, "ResNet-50: summary"))[0][2:] == (
        "[1] 15.00",
        "[2] 1.50",
    )
    assert document.footnotes[1] == "FP32 of pytorch: speedup over the throughput at bsz=16"
