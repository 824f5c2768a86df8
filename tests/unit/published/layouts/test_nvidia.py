"""NVIDIA's layout: its published tables cell by cell, and what a run gives in it."""

import dataclasses

import numpy
import pytest
from builders import make_outcomes, make_planned_case
from published_documents import lay_out_published, lay_out_run, make_training, read_pipe_tables
from report_values import write_rows
from support.problems import assert_problem

DOCUMENT = "nvidia_mxnet_resnet50"
MIXED = "mixed precision"

# (title of the table, GPUs, column): what NVIDIA published beside throughputs that give another
# value; almost all of these were cut where they should have been rounded
CONTRADICTIONS = {
    ("DGX A100", "1", "Throughput speedup (TF32 - mixed precision)"): ("2.18", "3.23"),
    ("DGX A100", "4", "Throughput speedup (TF32 - mixed precision)"): ("3.24", "3.21"),
    ("DGX A100", "4", "Weak scaling - mixed precision"): ("3.97", "3.94"),
    ("DGX-1", "2", "Throughput speedup (FP32 - mixed precision)"): ("3.62", "3.63"),
    ("DGX-1", "2", "Weak scaling - FP32"): ("1.98", "1.99"),
    ("DGX-1", "8", "Throughput speedup (FP32 - mixed precision)"): ("3.56", "3.57"),
    ("DGX-1", "8", "Weak scaling - FP32"): ("7.82", "7.83"),
    ("DGX-2", "1", "Throughput speedup (FP32 - mixed precision)"): ("3.57", "3.58"),
    ("DGX-2", "2", "Weak scaling - mixed precision"): ("1.96", "1.97"),
    ("DGX-2", "2", "Weak scaling - FP32"): ("1.96", "1.97"),
    ("DGX-2", "4", "Throughput speedup (FP32 - mixed precision)"): ("3.52", "3.53"),
    ("DGX-2", "4", "Weak scaling - mixed precision"): ("3.83", "3.84"),
    ("DGX-2", "4", "Weak scaling - FP32"): ("3.92", "3.89"),
    ("DGX-2", "8", "Throughput speedup (FP32 - mixed precision)"): ("3.52", "3.53"),
    ("DGX-2", "8", "Weak scaling - mixed precision"): ("7.61", "7.62"),
    ("DGX-2", "8", "Weak scaling - FP32"): ("7.72", "7.73"),
    ("DGX-2", "16", "Throughput speedup (FP32 - mixed precision)"): ("3.38", "3.39"),
    ("DGX-2", "16", "Weak scaling - mixed precision"): ("14.39", "14.40"),
    ("DGX-2", "16", "Weak scaling - FP32"): ("15.19", "15.20"),
}


def read_training_tables():
    tables = read_pipe_tables(DOCUMENT)
    return [table for table in tables if table[0][1] == f"Throughput - {MIXED}"]


def read_inference_tables():
    return [table for table in read_pipe_tables(DOCUMENT) if table[0][0] == "Batch size"]


def make_inference(precision: str, milliseconds: list[float], batch_size: int = 4):
    """One repeat on 1n1g whose batches took so long."""
    planned = make_planned_case(
        case_id=f"{precision}-{batch_size}",
        mode="infer",
        precision=precision,
        batch_size_per_device=batch_size,
        repeats=1,
    )
    seconds = [value / 1000 for value in milliseconds]
    rate = batch_size * len(seconds) / sum(seconds) if seconds else 0.0
    if not seconds:
        return make_outcomes(planned, [], ["out of memory: rank 0: x"])
    return make_outcomes(planned, [rate], batch_seconds=seconds)


def test_training_cells_are_as_published_but_where_these_contradict_their_throughputs():
    tables = lay_out_published("nvidia", "nvidia_mxnet_resnet50_training").tables
    differing = {}
    for name, (header, rows), table in zip(
        ("DGX A100", "DGX-1", "DGX-2"), read_training_tables(), tables
    ):
        assert f" {name} (" in table.title
        assert table.header == header
        assert len(rows) == len(write_rows(table))
        for row, own in zip(rows, write_rows(table)):
            for column, cell, own_cell in zip(header, row, own):
                if cell != own_cell:
                    differing[name, row[0], column] = (cell, own_cell)
    assert differing == CONTRADICTIONS


def test_inference_figures_are_as_published():
    """But for digits that Python's repr left out: 0.7 ms; speedups need figures of FP32."""
    document = lay_out_published("nvidia", "nvidia_mxnet_resnet50_inference")
    missing = "MXNet resnet50 inference: no figures in TF32 or FP32, so no speedup over them"
    assert missing in document.notes
    for (header, rows), table in zip(read_inference_tables(), document.tables):
        kept = [index for index, name in enumerate(header) if "speedup" not in name]
        assert table.header == tuple(header[index] for index in kept)
        assert [[float(cell) for cell in row] for row in write_rows(table)] == [
            [float(row[index]) for index in kept] for row in rows
        ]


def test_inference_of_a_run_has_the_published_columns_and_the_slowest_batch():
    (table,) = lay_out_run(
        "nvidia", make_inference("amp-fp16", [1.0, 2.0, 3.0]), make_inference("fp32", [2.0, 4.0])
    ).tables
    (header, _), *_ = read_inference_tables()
    assert table.header == (*header, f"100% latency (ms) - {MIXED}", "100% latency - speedup")
    (row,) = write_rows(table)
    # 4 samples in 2 ms against 3 ms, on average and in the median; 3 against 4 ms at worst
    assert row[:7] == ("4", "2000.00", "1.50", "2.00", "1.50", "2.00", "1.50")
    assert row[-2:] == ("3.00", "1.33")


def test_all_figures_of_a_run_are_means_over_its_repeats():
    planned = make_planned_case(mode="infer", batch_size_per_device=4, repeats=3)
    outcomes = make_outcomes(planned, [1000.0, 2000.0, 6000.0], batch_seconds=[0.001, 0.003])
    slow = dataclasses.replace(
        outcomes.outcomes[2], rank_step_seconds=numpy.array([[0.005, 0.013]])
    )
    outcomes = dataclasses.replace(outcomes, outcomes=(*outcomes.outcomes[:2], slow))
    (table,) = lay_out_run("nvidia", outcomes).tables
    # 1, 3; 1, 3; 5, 13 ms
    (row,) = write_rows(table)
    assert (row[1].split()[0], *row[2:4], row[-1]) == ("3000.00", "4.33", "4.33", "6.33")
    assert_problem(table.caption, says=("means over repeats", "2 or more", "90% and 95% and 99%"))


def test_inference_whose_reference_failed_names_its_problem():
    sizes = [make_inference(name, [1.0], 4) for name in ("amp-fp16", "fp32")]
    failed = make_inference("fp32", [], 8)
    document = lay_out_run("nvidia", *sizes, make_inference("amp-fp16", [1.0], 8), failed)
    assert write_rows(document.tables[0])[1][:3] == ("8", "8000.00", "OOM [1]")
    assert "out of memory" in document.footnotes[0]


OF_16 = {"batch_size_per_device": 16}
MIXED_16, MIXED_8 = (
    {"precision": "amp-fp16", "rate": 2.0 * size, "batch_size_per_device": size} for size in (16, 8)
)


@pytest.mark.parametrize(
    ("cases", "rows", "says"),
    [
        # each precision may have a batch size of its own
        (
            [{"precision": "amp-fp16", "rate": 30.0, **OF_16}, {"rate": 10.0}],
            *(
                [[("1", "30.00", "10.00", "3.00", "1.00", "1.00")]],
                "16 (mixed precision), 8 (FP32)",
            ),
        ),
        # batch sizes that precisions share have tables of their own
        (
            [MIXED_16, MIXED_8, {"rate": 16.0, **OF_16}, {"rate": 8.0}],
            [
                [("1", "16.00", "8.00", "2.00", "1.00", "1.00")],
                [("1", "32.00", "16.00", "2.00", "1.00", "1.00")],
            ],
            "",
        ),
        # weak scaling is over the smallest topology that was measured
        (
            [{"topology": "1n8g", "rate": 60.0}, {}, {"topology": "1n2g", "rate": 20.0}],
            [[("1", "OOM [1]", "-"), ("2", "20.00", "1.00"), ("8", "60.00", "3.00")]],
            "weak scaling against 2 GPUs",
        ),
        # a precision that failed keeps its columns
        (
            [{"precision": "amp-fp16"}, {"rate": 10.0}],
            *([[("1", "OOM [1]", "10.00", "-", "-", "1.00")]], ""),
        ),
        # topologies of as many GPUs are told apart
        (
            [{"topology": "2n4g", "rate": 10.0}, {"topology": "1n8g", "rate": 11.0}],
            *([[("8 (1n8g)", "11.00", "1.00"), ("8 (2n4g)", "10.00", "0.91")]], ""),
        ),
    ],
)
def test_training_of_a_run(cases, rows, says):
    tables = lay_out_run("nvidia", *(make_training(**case) for case in cases)).tables
    assert [[*write_rows(table)] for table in tables] == rows
    assert says in tables[0].caption


def test_reference_is_a_full_precision_that_was_measured():
    rates = {"fp32": 0.0, "tf32": 10.0, "amp-fp16": 20.0}
    tables = lay_out_run("nvidia", *(make_training("1n1g", *case) for case in rates.items())).tables
    assert {table.header[3]: write_rows(table)[0][3] for table in tables} == {
        "Throughput speedup (TF32 - FP32)": "-",
        "Throughput speedup (TF32 - mixed precision)": "2.00",
    }


@pytest.mark.parametrize(
    ("precision", "what"), [("fp32", "only in FP32"), ("amp-bf16", "no figures in TF32 or FP")]
)
def test_run_of_one_precision_gives_its_columns_and_says_what_is_missing(precision, what):
    document = lay_out_run("nvidia", make_training("1n1g", precision, 10.0))
    assert write_rows(document.tables[0]) == (("1", "10.00", "1.00"),)
    assert what in document.notes[0]
    assert_problem(document.notes[-1], says=("inference",))


def test_frameworks_and_compilers_have_tables_of_their_own():
    variants = ({}, {"compiler": "torch.compile"}, {"framework": "jax"})
    tables = lay_out_run("nvidia", *(make_training(rate=10.0, **one) for one in variants)).tables
    assert [table.title.partition(", ")[0].partition(": ")[2] for table in tables] == [
        *("pytorch", "pytorch torch.compile", "jax")
    ]


def test_batch_sizes_that_the_job_chose_are_footnotes_where_they_differ():
    search = {"batch_size_per_device": "max"}
    document = lay_out_run(
        "nvidia",
        make_training("1n1g", rate=10.0, found_batch_size=16, **search),
        make_training("1n2g", rate=15.0, found_batch_size=8, **search),
    )
    (table,) = document.tables
    assert [row[1] for row in write_rows(table)] == ["10.00 [1]", "15.00 [2]"]
    assert document.footnotes == [
        "pytorch resnet50 1n1g fp32 bsz=max: batch size 16",
        "pytorch resnet50 1n2g fp32 bsz=max: batch size 8",
    ]
    assert "batch size per GPU max: 16 and 8 (FP32)" in table.caption
