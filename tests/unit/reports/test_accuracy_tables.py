"""Outcomes of training to accuracy -> tables over the seeds: figures computed by hand."""

import dataclasses
from typing import Union

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from report_values import find_tables, list_rows, read_column, read_marks, summarize, write_rows
from support.cases import vary

from dlperf_slurm.contract.case import Training
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.published.layouts import load_layout
from dlperf_slurm.published.layouts.parts.figures import make_run_figures
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.number_formats import DurationFormat
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval


def make_case(
    top1: list[float],
    seconds: Union[float, list[float]] = 60.0,
    target: float = 0.0,
    **changes: object,
) -> CaseOutcomes:
    """Make a repeat with its own seed per value of `top1`, after 3 epochs that took `seconds`."""
    of_seeds = seconds if isinstance(seconds, list) else [seconds] * len(top1)
    planned = make_planned_case(**{"epochs": 3, "repeats": len(top1), "data": "folder", **changes})
    outcomes = make_outcomes(planned, [40.0] * len(top1))
    return CaseOutcomes(
        planned,
        tuple(
            dataclasses.replace(outcome, record=add_epochs(outcome.record, value, total, target))
            for outcome, value, total in zip(outcomes.outcomes, top1, of_seeds)
        ),
    )


def add_epochs(record, top1, seconds, target):
    epochs = tuple(
        Epoch(number, top1 * number / 3, 1.0, 1.0, 15.0, seconds * number / 3)
        for number in (1, 2, 3)
    )
    case = vary(record.case, training=Training(epochs=3, target_top1=target))
    return dataclasses.replace(record, case=case, epochs=epochs)


def make_table(*cases: CaseOutcomes) -> Table:
    (table,) = find_tables(summarize(make_manifest(), cases), "accuracy")
    return table


def test_measurements_without_epochs_have_no_such_table():
    outcomes = make_outcomes(make_planned_case(), [40.0])
    assert find_tables(summarize(make_manifest(), [outcomes]), "accuracy") == []


def test_average_deviation_and_extremes_are_over_the_seeds():
    # sqrt((0.02^2 + 0 + 0.02^2) / 2)
    (texts,) = write_rows(make_table(make_case([0.75, 0.77, 0.79])))
    assert texts[5:9] == ("77.000", "2.000", "75.000", "79.000")


def test_one_seed_has_no_deviation():
    table = make_table(make_case([0.75]))
    assert write_rows(table)[0][6] == "one seed"


def test_time_to_train_is_compared_with_the_full_precision_at_the_same_topology():
    cases = (
        make_case([0.7], 84.5),
        make_case([0.7], 24.2, precision="amp-fp16", batch_size_per_device=16),
        make_case([0.7], 6.0, precision="amp-fp16", topology="1n2g"),
    )
    speedups = [row.train_speedup for row in list_rows(*cases)]
    assert speedups == [1.0, pytest.approx(84.5 / 24.2), None]
    cells = read_column(make_table(*cases), "speedup over fp32")
    assert [cell.text for cell in cells] == ["1.00", "3.49", "no reference"]


def test_speedup_of_the_time_to_train_has_its_interval_or_the_reason_why_not():
    seconds = [60.0, 62.0, 64.0, 66.0, 68.0, 70.0]
    full = make_case([0.7] * 6, seconds)
    halves = [one / 2 for one in seconds]
    reduced = make_case([0.7] * 6, halves, precision="amp-fp16")
    reference, row = list_rows(full, reduced)
    assert reference.train_speedup_low is None
    interval = compute_ratio_interval(halves, seconds)
    ends = (row.train_speedup_low, row.train_speedup_high)
    assert ends == pytest.approx((interval.low, interval.high))
    written = write_rows(make_table(full, reduced))[1][-1]
    assert written == f"2.00 ({interval.low:.2f} to {interval.high:.2f})"
    line = read_csv(summarize(make_manifest(), [full, reduced]))[1]
    assert float(line["train_speedup_low"]) == pytest.approx(interval.low)

    summary = summarize(make_manifest(), [make_case([0.7], 60.0), reduced])
    (table,) = find_tables(summary, "accuracy")
    notes = read_marks(summary, table.rows[1])
    assert any("95 % interval" in note for note in notes)


def test_time_to_train_of_each_batch_size_is_its_own():
    rows = list_rows(
        make_case([0.7], 600.0, batch_size_per_device=32),
        make_case([0.7], 300.0, batch_size_per_device=64),
        make_case([0.7], 150.0, precision="amp-fp16", batch_size_per_device=32),
        make_case([0.7], 75.0, precision="amp-fp16", batch_size_per_device=128),
    )
    assert [row.train_seconds for row in rows] == [600.0, 300.0, 150.0, 75.0]
    # none of the two in fp32 is the last one's
    assert [row.train_speedup for row in rows] == [1.0, 1.0, 4.0, None]


def test_seeds_that_reached_the_target_are_counted():
    table = make_table(make_case([0.89, 0.9, 0.93], target=0.9))
    assert "reached 90 %" in table.header
    assert write_rows(table)[0][table.header.index("reached 90 %")] == "2 of 3"


@pytest.mark.parametrize("top1", [[0.89, 0.9, 0.93], [0.1, 0.2, 0.3]])
def test_training_that_missed_its_target_has_no_time_and_no_speedup(top1):
    full = make_case([0.9, 0.91, 0.92], 600.0, target=0.9)
    reduced = make_case(top1, 300.0, target=0.9, precision="amp-fp16")
    rows = list_rows(full, reduced)
    assert [row.train_seconds for row in rows] == [600.0, None]
    assert [row.train_speedup for row in rows] == [1.0, None]
    table = make_table(full, reduced)
    column = table.header.index("time to train")
    assert write_rows(table)[1][column] == "target not reached"
    (layout, _) = lay_out(full, reduced)
    cells = dict(zip(layout.header, write_rows(layout)[0]))
    reached = [cells[name] for name in layout.header if name.startswith("Reached - ")]
    # the reduced precision comes first
    assert reached == [f"{sum(value >= 0.9 for value in top1)} of 3", "3 of 3"]
    times = [cells[name] for name in layout.header if name.startswith("Time to train - ")]
    assert times == ["-", "10.00", "-"]


def test_failed_training_is_named_in_its_place():
    failed = make_outcomes(make_planned_case(epochs=3), problems=["out of memory: x"])
    table = make_table(make_case([0.7]), failed)
    assert len(write_rows(table)[1]) == len(table.header)
    assert write_rows(table)[1][4].startswith("OOM [")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (42.06, "42.1 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min 0 s"),
        (60.0, "1 min 0 s"),
        (723.4, "12 min 3 s"),
        (3599.4, "59 min 59 s"),
        (3600.0, "1 h 0 min"),
        (31500.0, "8 h 45 min"),
    ],
)
def test_duration_is_as_short_as_it_is_precise(seconds, text):
    assert DurationFormat().write(seconds) == text


def lay_out(*cases: CaseOutcomes):
    document = load_layout("nvidia").lay_out(make_run_figures(analyze(cases)))
    return [table for table in document.tables if "accuracy" in table.title]


def test_nvidias_layout_has_its_columns_of_accuracy_and_time_to_train():
    table, seeds = lay_out(
        make_case([0.772, 0.774], 84.5 * 3600),
        make_case([0.771, 0.775], 24.2 * 3600, precision="amp-fp16"),
    )
    assert table.header == (
        "GPUs",
        "Accuracy - mixed precision",
        "Accuracy - FP32",
        "Time to train - mixed precision",
        "Time to train - FP32",
        "Time to train - speedup",
    )
    assert write_rows(table) == (("1", "77.300", "77.300", "24.20", "84.50", "3.49"),)
    assert "times in hours" in table.caption
    assert seeds.header == (
        "# of epochs",
        "GPUs",
        "mixed precision avg top1",
        "FP32 avg top1",
        "mixed precision standard deviation",
        "FP32 standard deviation",
        "mixed precision minimum top1",
        "FP32 minimum top1",
        "mixed precision maximum top1",
        "FP32 maximum top1",
    )
    # 0.002 / sqrt(2) and 0.004 / sqrt(2)
    assert write_rows(seeds) == (
        (
            "3",
            "1",
            "77.300",
            "77.300",
            "0.00283",
            "0.00141",
            "77.100",
            "77.200",
            "77.500",
            "77.400",
        ),
    )


def test_nvidias_layout_of_one_seed_has_no_deviations():
    (table,) = lay_out(make_case([0.7], 90.0))
    assert write_rows(table) == (("1", "70.000", "1.50"),)
    assert "times in minutes" in table.caption


def test_csv_has_the_accuracies():
    cases = [make_case([0.75, 0.77, 0.79], seconds=90.0, target=0.76)]
    (line,) = read_csv(summarize(make_manifest(), cases))
    names = ("top1_average", "top1_deviation", "top1_lowest", "top1_highest")
    assert [float(line[name]) for name in names] == pytest.approx([0.77, 0.02, 0.75, 0.79])
    assert line["train_seconds"] == ""
    assert (line["epochs"], line["seeds_at_target"]) == ("3.0", "2")
