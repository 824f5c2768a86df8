"""Outcomes -> precision tables: NVIDIA's columns, and its published figures as the example."""

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from report_values import find_tables, read_column, summarize, write_rows
from support.problems import assert_problem

from dlperf_slurm.reports.cells import Table
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval

# NVIDIA's ResNet-50 in MXNet on a DGX-1: mixed precision at 192, fp32 at 96
DGX1 = {
    ("amp-fp16", 192): {"1n1g": 1376.0, "1n2g": 2768.0, "1n4g": 5357.0, "1n8g": 10723.0},
    ("fp32", 96): {"1n1g": 384.0, "1n2g": 763.0, "1n4g": 1513.0, "1n8g": 3005.0},
}


def make_training(
    topology: str, precision: str, batch_size: int, rate: float, **changes: object
) -> CaseOutcomes:
    planned = make_planned_case(
        topology,
        precision=precision,
        batch_size_per_device=batch_size,
        repeats=6,
        **changes,
    )
    return make_outcomes(planned, [rate] * 6 if rate else [], ["failed: x"] * (0 if rate else 6))


def list_tables(*cases: CaseOutcomes) -> list[Table]:
    return find_tables(summarize(make_manifest(), cases), "precision")


def make_dgx1_table() -> Table:
    (table,) = list_tables(
        *(
            make_training(topology, precision, size, rate)
            for (precision, size), rates in DGX1.items()
            for topology, rate in rates.items()
        )
    )
    return table


def test_columns_are_those_of_nvidia():
    assert make_dgx1_table().header == (
        "topology",
        "images/s amp-fp16 bs 192",
        "images/s fp32 bs 96",
        "speedup amp-fp16 / fp32",
        "weak scaling amp-fp16",
        "weak scaling fp32",
    )


def test_published_throughputs_give_the_published_speedups():
    assert write_rows(make_dgx1_table()) == (
        ("1n1g", "1376.00", "384.00", "3.58 (3.58 to 3.58)", "1.00", "1.00"),
        ("1n2g", "2768.00", "763.00", "3.63 (3.63 to 3.63)", "2.01", "1.99"),
        ("1n4g", "5357.00", "1513.00", "3.54 (3.54 to 3.54)", "3.89", "3.94"),
        ("1n8g", "10723.00", "3005.00", "3.57 (3.57 to 3.57)", "7.79", "7.83"),
    )


def test_batch_sizes_that_precisions_share_have_tables_of_their_own():
    tables = list_tables(
        *(
            make_training("1n1g", precision, size, rate)
            for precision, size, rate in [
                ("fp32", 8, 10.0), ("fp32", 16, 11.0), ("amp-bf16", 8, 20.0), ("amp-bf16", 16, 33.0)
            ]
        )
    )  # fmt: skip
    speedups = [
        cell.value for table in tables for cell in read_column(table, "speedup amp-bf16 / fp32")
    ]
    assert speedups == [pytest.approx(2), pytest.approx(3)]


def test_values_with_and_without_the_compiler_share_a_cell():
    (table,) = list_tables(
        make_training("1n1g", "fp32", 8, 10.0),
        make_training("1n1g", "fp32", 8, 15.0, compiler="xla"),
        make_training("1n1g", "amp-bf16", 8, 20.0),
        make_training("1n1g", "amp-bf16", 8, 60.0, compiler="xla"),
    )
    speedups = "2.00 (2.00 to 2.00) / 4.00 (4.00 to 4.00)"
    assert write_rows(table) == (
        ("1n1g", "10.00 / 15.00", "20.00 / 60.00", speedups, "1.00 / 1.00", "1.00 / 1.00"),
    )
    assert "none / xla" in table.caption


def test_failed_part_of_a_cell_has_its_word():
    full = make_training("1n1g", "fp32", 8, 10.0)
    # one precision and one compiler make no table
    assert list_tables(full) == []
    (table,) = list_tables(full, make_training("1n1g", "amp-bf16", 8, 0.0))
    assert write_rows(table) == (("1n1g", "10.00", "failed [1]", "failed", "1.00", "failed"),)


def test_speedup_without_a_reference_at_that_topology_says_so():
    (table,) = list_tables(
        make_training("1n1g", "fp32", 8, 10.0),
        make_training("1n1g", "amp-bf16", 8, 20.0),
        make_training("1n2g", "amp-bf16", 8, 40.0),
    )
    rows = write_rows(table)
    assert rows[1] == ("1n2g", "not in the matrix", "40.00", "no reference", "not in the matrix",
                       "2.00")  # fmt: skip


def test_weak_scaling_of_a_compiler_is_over_its_own_smallest_topology():
    (table,) = list_tables(
        make_training("1n1g", "fp32", 8, 0.0),
        make_training("1n2g", "fp32", 8, 20.0),
        make_training("1n1g", "fp32", 8, 10.0, compiler="xla"),
        make_training("1n2g", "fp32", 8, 15.0, compiler="xla"),
    )
    assert [row[-1] for row in write_rows(table)] == [
        "failed / 1.00",
        "1.00 / 1.50",
    ]


def make_bf16_figure(fp32_rates, bf16_rates):
    """Return the speedup of amp-bf16 over fp32, and the run's footnotes."""
    planned = [make_planned_case(precision=precision) for precision in ("fp32", "amp-bf16")]
    cases = map(make_outcomes, planned, (fp32_rates, bf16_rates))
    summary = summarize(make_manifest(), list(cases))
    (table,) = find_tables(summary, "precision")
    (cell,) = read_column(table, "speedup amp-bf16 / fp32")
    return cell, summary.footnotes


def test_interval_of_a_speedup_is_that_of_the_ratio():
    rates = [10.0, 10.2, 10.4, 10.6, 10.8, 11.0], [20.0, 21.0, 22.0, 23.0, 24.0, 26.0]
    figure, _ = make_bf16_figure(*rates)
    found, interval = figure.interval, compute_ratio_interval(*rates)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_speedup_of_three_repeats_says_that_its_interval_takes_six():
    figure, footnotes = make_bf16_figure([10.0] * 3, [20.0] * 3)
    assert figure.interval is None
    (note,) = (text for text in footnotes if "speedup" in text)
    assert_problem(note, says=("95 % interval", "6 of each"))


def test_what_a_framework_cannot_do_at_all_takes_no_place():
    def leave_out(topology: str, precision: str, compiler: str) -> CaseOutcomes:
        planned = make_planned_case(
            topology,
            precision=precision,
            compiler=compiler,
            reason="not here",
        )
        return make_outcomes(planned)

    (table,) = list_tables(
        make_training("1n1g", "fp32", 8, 10.0),
        make_training("1n1g", "amp-bf16", 8, 20.0),
        leave_out("1n1g", "bf16", "none"),
        leave_out("1n1g", "fp32", "xla"),
        leave_out("2n1g", "fp32", "none"),
    )
    assert table.header[1:3] == ("images/s fp32 bs 8", "images/s amp-bf16 bs 8")
    assert " / " not in table.caption
    # a topology that only this precision was not run on keeps its row
    assert [cell.text for cell in read_column(table, "topology")] == ["1n1g", "2n1g"]
