"""Tables of training: accuracy over seeds, precisions and tokens, computed by hand."""

from typing import Union

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from outcome_builders import change_outcomes
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

    def list_changes(outcome):
        value, total = top1[outcome.repeat - 1], of_seeds[outcome.repeat - 1]
        epochs = tuple(
            Epoch(number, value * number / 3, 1.0, 1.0, 15.0, total * number / 3)
            for number in (1, 2, 3)
        )
        case = vary(outcome.record.case, training=Training(epochs=3, target_top1=target))
        return {"record": {"case": case, "epochs": epochs}}

    return change_outcomes(make_outcomes(planned, [40.0] * len(top1)), list_changes)


def make_table(*cases: CaseOutcomes) -> Table:
    (table,) = find_tables(summarize(make_manifest(), cases), "accuracy")
    return table


def test_average_deviation_and_extremes_are_over_the_seeds():
    # sqrt((0.02^2 + 0 + 0.02^2) / 2)
    (texts,) = write_rows(make_table(make_case([0.75, 0.77, 0.79])))
    assert texts[5:9] == ("77.000", "2.000", "75.000", "79.000")
    assert write_rows(make_table(make_case([0.75])))[0][6] == "one seed"


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

    summary = summarize(make_manifest(), [make_case([0.7], 60.0), reduced])
    (table,) = find_tables(summary, "accuracy")
    notes = read_marks(summary, table.rows[1])
    assert any("95 % interval" in note for note in notes)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.94, "59.9 s"), (59.97, "1 min 0 s"), (3600.0, "1 h 0 min"), (31500.0, "8 h 45 min")],
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
    pair = ("mixed precision", "FP32")
    assert table.header == (
        *("GPUs", *(f"Accuracy - {name}" for name in pair)),
        *(*(f"Time to train - {name}" for name in pair), "Time to train - speedup"),
    )
    assert write_rows(table) == (("1", "77.300", "77.300", "24.20", "84.50", "3.49"),)
    assert "times in hours" in table.caption
    figures = ("avg top1", "standard deviation", "minimum top1", "maximum top1")
    assert seeds.header == (
        *("# of epochs", "GPUs", *(f"{name} {figure}" for figure in figures for name in pair)),
    )
    # 0.002 / sqrt(2) and 0.004 / sqrt(2)
    (row,) = write_rows(seeds)
    assert row[2:6] == ("77.300", "77.300", "0.00283", "0.00141")
    assert row[6:] == ("77.100", "77.200", "77.500", "77.400")


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


# NVIDIA's ResNet-50 in MXNet on a DGX-1: mixed precision at 192, fp32 at 96
DGX1 = {
    ("amp-fp16", 192): {"1n1g": 1376.0, "1n2g": 2768.0, "1n4g": 5357.0, "1n8g": 10723.0},
    ("fp32", 96): {"1n1g": 384.0, "1n2g": 763.0, "1n4g": 1513.0, "1n8g": 3005.0},
}


def make_training(
    topology: str, precision: str, batch_size: int, rate: float, **changes: object
) -> CaseOutcomes:
    planned = make_planned_case(
        topology, precision=precision, batch_size_per_device=batch_size, repeats=6, **changes
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


def test_published_throughputs_give_the_published_speedups():
    table = make_dgx1_table()
    assert table.header == (
        *("topology", "images/s amp-fp16 bs 192", "images/s fp32 bs 96"),
        *("speedup amp-fp16 / fp32", "weak scaling amp-fp16", "weak scaling fp32"),
    )
    assert write_rows(table) == (
        ("1n1g", "1376.00", "384.00", "3.58 (3.58 to 3.58)", "1.00", "1.00"),
        ("1n2g", "2768.00", "763.00", "3.63 (3.63 to 3.63)", "2.01", "1.99"),
        ("1n4g", "5357.00", "1513.00", "3.54 (3.54 to 3.54)", "3.89", "3.94"),
        ("1n8g", "10723.00", "3005.00", "3.57 (3.57 to 3.57)", "7.79", "7.83"),
    )


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


def test_what_a_framework_cannot_do_at_all_takes_no_place():
    measured = [make_training("1n1g", "fp32", 8, 10.0), make_training("1n1g", "amp-bf16", 8, 20.0)]
    left_out = [
        make_outcomes(make_planned_case(name, precision=precision, compiler=compiler, reason="no"))
        for name, precision, compiler in (
            ("1n1g", "bf16", "none"), ("1n1g", "fp32", "xla"), ("2n1g", "fp32", "none"),
        )
    ]  # fmt: skip
    (table,) = list_tables(*measured, *left_out)
    assert table.header[1:3] == ("images/s fp32 bs 8", "images/s amp-bf16 bs 8")
    assert " / " not in table.caption
    # a topology that only this precision was not run on keeps its row
    assert [cell.text for cell in read_column(table, "topology")] == ["1n1g", "2n1g"]


LENGTH = 128


def make_token_case(
    model="llama", rates=(100.0, 101.0, 102.0), log_format=None, mode="train", **own
):
    """Repeats of a model with sequences of 128 where it has such."""
    planned = make_planned_case(model=model, mode=mode, unit="texts")
    outcomes = make_outcomes(planned, rates, batch_seconds=[0.1])
    own["model_parameters"] = {"sequence_length": LENGTH} if model in ("bert", "llama") else {}
    case = vary(outcomes.records[0].case, model=model, log_format=log_format, **own)
    return change_outcomes(outcomes, lambda _: {"record": {"case": case}})


def find_table(case):
    (table, *_) = summarize(make_manifest(), [case]).tables
    return table


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_table_of_a_decoder_has_tokens_beside_sequences(mode):
    table = find_table(make_token_case(mode=mode))
    (line,) = read_csv(summarize(make_manifest(), [make_token_case(mode=mode)]))
    assert (float(line["tokens_per_s"]), line["unit"]) == (101.0 * LENGTH, "sequences/s")
    place = table.header.index("tokens/s")
    assert table.header[place + 1] == "sequences/s"
    (row,) = table.rows
    # 101 x 128 = 12928, of which repeats between 100 and 102 know four digits
    assert row[place].text == "12930"
    assert row[place + 1].text.startswith("101")


@pytest.mark.parametrize("model", ["bert", "vit"])
def test_table_of_another_model_has_none(model):
    assert "tokens/s" not in find_table(make_token_case(model)).header


def test_tokens_of_somebody_elses_log_are_not_known():
    (line,) = read_csv(summarize(make_manifest(), [make_token_case(log_format="pytorch_examples")]))
    assert (line["tokens_per_s"], line["samples_per_s"]) == ("", "101.0")


def test_model_of_a_script_has_the_work_that_the_matrix_states():
    own = {"tokens_per_sample": 512, "flops_per_sample": 1e11}
    case = make_token_case("gpt2", log_format="nanogpt", **own)
    (line,) = read_csv(summarize(make_manifest(), [case]))
    assert (line["tokens_per_s"], line["unit"]) == (str(101.0 * 512), "texts/s")
    # training counts the forward pass three times
    assert float(line["tflops_per_device"]) == pytest.approx(101.0 * 3 * 1e11 / 1e12)
