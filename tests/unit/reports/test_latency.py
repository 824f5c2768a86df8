"""Outcomes of inference -> latency tables: every expected figure is computed by hand."""

from dataclasses import replace

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from report_values import write_rows
from support.problems import assert_problem

from dlperf_slurm.reports.summarize import summarize
from dlperf_slurm.reports.tables import ShownCase
from dlperf_slurm.reports.tables.latency import LatencyTable, tabulate_latency
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import compute_latency, count_needed_batches
from dlperf_slurm.stats.placements import compute_ratio_interval

# 1 ... 11 ms: the 90th percentile is the tenth of eleven
BATCHES = [index / 1000 for index in range(1, 12)]
# as many as the 99th percentile takes
MANY_BATCHES = 100 * BATCHES


def make_inference(
    precision: str = "fp32", batch_size: int = 8, scale: float = 1.0, **changes: object
) -> CaseOutcomes:
    """One repeat whose batches took `scale` times as long as MANY_BATCHES."""
    planned = make_planned_case(
        case_id=f"{precision}-{batch_size}",
        mode="infer",
        precision=precision,
        batch_size_per_device=batch_size,
        repeats=1,
        **changes,
    )
    seconds = [scale * value for value in MANY_BATCHES]
    return make_outcomes(planned, [100.0 / scale], batch_seconds=seconds)


def make_table(*cases: CaseOutcomes) -> LatencyTable:
    (table,) = summarize(make_manifest(), cases).latency_tables
    return table


def test_percentiles_are_those_of_the_batches_in_any_order():
    # 1 + 9.5 of 10 steps is half way between 10 and 11 ms
    latency = compute_latency(list(reversed(BATCHES)))
    assert latency.percentiles == pytest.approx((0.006, 0.010, 0.0105, 0.0109, 0.011))


def test_mean_of_latencies_is_that_of_times():
    assert compute_latency(BATCHES).mean == pytest.approx(0.006)


@pytest.mark.parametrize("batches", [[0.5], [0.1, 0.3], [0.3, 0.1, 0.2, 0.1, 5.0]])
def test_percentiles_ascend(batches):
    percentiles = compute_latency(batches).percentiles
    assert list(percentiles) == sorted(percentiles)
    assert percentiles[-1] == max(batches)


def test_latency_of_a_case_is_the_median_over_its_repeats():
    # of two batches, one of which takes a millisecond
    row = find_row(make_table(make_repeats("fp32", [5, 1, 3])), "fp32")
    mean, median, *_, slowest = row.latency.values
    assert (mean, median, slowest) == pytest.approx((0.002, 0.002, 0.003))


def make_timed(batches: list[list[float]], **changes: object) -> CaseOutcomes:
    """A case whose repeats had these batches, in seconds."""
    planned = make_planned_case(mode="infer", repeats=len(batches), **changes)
    outcomes = make_outcomes(planned, [1000.0] * len(batches)).outcomes
    timed = (replace(one, batch_seconds=tuple(own)) for one, own in zip(outcomes, batches))
    return CaseOutcomes(planned, tuple(timed))


@pytest.mark.parametrize(
    ("percent", "count"), [(50, 1), (90, 100), (95, 200), (99, 1000), (100, 1)]
)
def test_percentile_takes_as_many_batches_as_leave_ten_above_it(percent, count):
    assert count_needed_batches(percent) == count


def test_percentile_of_too_few_batches_is_of_all_repeats_together_or_not_there():
    # 10 repeats of 99 batches of 1 ... 99 ms: one takes 100 for the 90th percentile, ten 1000
    # for the 99th
    case = make_timed([[index / 1000 for index in range(1, 100)]] * 10)
    summary = summarize(make_manifest(), [case])
    (row,) = summary.latency_tables[0].rows
    assert [len(units) for units in row.latency.units] == [10, 10, 1, 1, 0, 1]
    assert row.latency.values[2] == pytest.approx(0.09)
    assert row.latency.intervals[2] is None
    table = tabulate_latency(summary.latency_tables[0])
    cells = dict(zip(table.header, table.rows[0]))
    assert (cells["99 % ms"].text, cells["90 % ms"].text) == ("too few", "90.00")
    notes = [summary.footnotes[number - 1] for number in row.footnotes]
    pooled, missing = (note for note in notes if note.startswith("latencies at"))
    says = ("90, 95 and 100 %", "990 batches", "90 % latency takes 100", "99")
    assert_problem(pooled, says=says)
    assert_problem(missing, says=("99 %", "left out", "1000 batches", "990"))
    (line,) = read_csv(summary)
    assert (line["latency_p99_ms"], line["latency_p90_ms_low"]) == ("", "")
    assert missing in line["notes"]


def test_percentile_of_enough_batches_has_no_note():
    assert make_table(make_inference()).rows[0].latency.notes == ()


def test_blocks_are_what_latencies_are_medians_of():
    # neighbours are in different blocks: 1, 1, 1, 2, 1, 9 and 2, 2, 2, 3, 2, 30 ms
    milliseconds = [1, 2, 1, 2, 1, 2, 2, 3, 1, 2, 9, 30]
    case = make_timed([[value / 1000] for value in milliseconds], blocks=2)
    (row,) = make_table(case).rows
    assert row.latency.units[0] == pytest.approx((0.001, 0.002))


def test_throughput_times_mean_latency_is_the_batch():
    # 8 samples in 6 ms on one device
    planned = make_planned_case(mode="infer", repeats=1)
    table = make_table(make_outcomes(planned, [8 / 0.006], batch_seconds=BATCHES))
    (row,) = table.rows
    assert row.samples_per_s * row.latency.values[0] / 8 == pytest.approx(1)


def test_speedup_of_latency_is_over_the_reference_at_the_same_batch_size():
    table = make_table(
        make_inference("fp32", 8, scale=3.0),
        make_inference("fp32", 16, scale=4.0),
        make_inference("amp-fp16", 8),
        make_inference("amp-fp16", 16),
    )
    speedups = {
        row.case_id: (row.precision_speedup.value, list_speedups(row)) for row in table.rows
    }
    assert table.reference_precision == "fp32"
    assert speedups["amp-fp16-8"] == (pytest.approx(3), pytest.approx((3,) * 6))
    assert speedups["amp-fp16-16"] == (pytest.approx(4), pytest.approx((4,) * 6))
    assert speedups["fp32-8"] == (1, (1,) * 6)


def make_repeats(precision: str, milliseconds: list[float]) -> CaseOutcomes:
    """Each repeat had these batches of 8: one of a millisecond, and one of what it is given."""
    planned = make_planned_case(
        case_id=precision,
        mode="infer",
        precision=precision,
        batch_size_per_device=8,
        repeats=len(milliseconds),
    )
    outcomes = make_outcomes(planned, [8000 / value for value in milliseconds])
    seconds = [(0.001, value / 1000) for value in milliseconds]
    return CaseOutcomes(
        planned,
        tuple(replace(one, batch_seconds=s) for one, s in zip(outcomes.outcomes, seconds)),
    )


def list_speedups(row: ShownCase) -> tuple:
    return tuple(ratio.value for ratio in row.latency_speedups)


def find_row(table: LatencyTable, precision: str) -> ShownCase:
    (row,) = (row for row in table.rows if row.precision == precision)
    return row


def test_latencies_have_the_interval_of_their_median():
    # 6 repeats: their extremes cover the median with 1 - 2 / 2**6 = 96.9 %
    row = find_row(make_table(make_repeats("fp32", [3, 5, 7, 9, 11, 13])), "fp32")
    mean, *_, slowest = row.latency.intervals
    assert (mean.low, mean.high) == pytest.approx((0.002, 0.007))
    assert (slowest.low, slowest.high) == pytest.approx((0.003, 0.013))
    assert row.latency.values[-1] == pytest.approx(0.008)


def test_latencies_of_too_few_repeats_have_a_range_and_a_footnote():
    cases = [make_repeats("fp32", [3, 5, 7])]
    summary = summarize(make_manifest(), cases)
    (row,) = summary.latency_tables[0].rows
    assert row.latency.intervals == (None,) * 6
    table = tabulate_latency(summary.latency_tables[0])
    assert write_rows(table)[0][3] == "3.0 {2.0 to 4.0}"
    assert any("a 95 % interval takes 6 repeats" in text for text in summary.footnotes)


def test_speedups_of_latencies_have_the_interval_of_a_ratio():
    full, reduced = [30, 31, 32, 33, 34, 35], [10, 11, 12, 13, 14, 15]
    table = make_table(make_repeats("fp32", full), make_repeats("amp-fp16", reduced))
    row = find_row(table, "amp-fp16")
    slowest, interval = row.latency_speedups[-1].interval, compute_ratio_interval(reduced, full)
    assert (slowest.low, slowest.high) == pytest.approx((interval.low, interval.high))
    # medians of rates, of an even number, are not the inverse of those of times
    assert row.precision_speedup.interval.low == pytest.approx(interval.low, rel=0.01)
    assert row.latency_speedups[-1].value == pytest.approx(32.5 / 12.5)


def test_reference_itself_has_speedups_of_one_without_an_interval():
    table = make_table(make_repeats("fp32", [3] * 6), make_repeats("amp-fp16", [2] * 6))
    row = find_row(table, "fp32")
    assert row.precision_speedup == Ratio(1, None, is_of_itself=True)
    mean, median, *_, slowest = row.latency_speedups
    assert {mean, median, slowest} == {row.precision_speedup}


def test_speedups_of_too_few_repeats_say_how_many_it_takes():
    cases = [make_repeats("fp32", [3, 3, 3]), make_repeats("amp-fp16", [2, 2, 2])]
    summary = summarize(make_manifest(), cases)
    row = find_row(summary.latency_tables[0], "amp-fp16")
    assert (row.precision_speedup.value, row.precision_speedup.interval) == (
        pytest.approx(1.5),
        None,
    )
    (text,) = (
        summary.footnotes[n - 1] for n in row.footnotes if "speedup" in summary.footnotes[n - 1]
    )
    assert "it takes 6 " in text


def test_narrow_table_leaves_spreads_of_latencies_to_the_files():
    table = make_table(make_repeats("fp32", [3, 5, 7, 9, 11, 13]))
    assert write_rows(tabulate_latency(table, is_wide=True))[0][3] == "4.5 (2.0 to 7.0)"
    assert write_rows(tabulate_latency(table, is_wide=False))[0][3] == "4.5"


def test_csv_has_all_intervals_of_latencies():
    cases = [
        make_repeats("fp32", [30, 31, 32, 33, 34, 35]),
        make_repeats("amp-fp16", [10, 11, 12, 13, 14, 15]),
    ]
    first, second = read_csv(summarize(make_manifest(), cases))
    assert float(first["latency_p100_ms"]) == pytest.approx(32.5)
    assert float(first["latency_p100_ms_low"]) == pytest.approx(30)
    assert float(first["latency_p100_ms_high"]) == pytest.approx(35)
    assert (first["latency_p100_speedup"], first["latency_p100_speedup_low"]) == ("1.0", "")
    assert float(second["latency_p100_speedup"]) == pytest.approx(32.5 / 12.5)
    low, high = (float(second[f"latency_p100_speedup_{end}"]) for end in ("low", "high"))
    assert 30 / 15 < low < 32.5 / 12.5 < high < 35 / 10


def test_tf32_is_the_reference_where_fp32_was_not_measured():
    cases = [make_inference("tf32"), make_inference("amp-fp16")]
    assert make_table(*cases).reference_precision == "tf32"


def test_batch_size_without_a_reference_says_so():
    table = make_table(make_inference("fp32", 8), make_inference("amp-fp16", 16))
    (row,) = (row for row in write_rows(tabulate_latency(table)) if row[0] == "amp-fp16")
    assert row[3:] == ("no reference", "6.00", "no reference", *row[6:])


def test_rows_go_by_batch_size():
    cases = [make_inference("fp32", size) for size in (16, 2, 128)]
    assert [row.batch_size_text for row in make_table(*cases).rows] == ["2", "16", "128"]


def test_columns_are_those_of_nvidia():
    table = tabulate_latency(make_table(make_inference("fp32"), make_inference("amp-fp16")))
    latencies = ("avg ms", "50 % ms", "90 % ms", "95 % ms", "99 % ms", "100 % ms")
    pairs = [column for name in latencies for column in (name, "speedup")]
    assert table.header == ("precision", "batch size", "images/s", "speedup", *pairs)
    assert {len(row) for row in write_rows(table)} == {len(table.header)}


def test_one_precision_has_no_speedups():
    assert "speedup" not in tabulate_latency(make_table(make_inference())).header


def test_case_that_failed_has_its_word_in_each_column():
    planned = make_planned_case(mode="infer", repeats=1, precision="amp-fp16")
    failed = make_outcomes(planned, [], ["out of memory: no room"])
    table = tabulate_latency(make_table(make_inference("fp32"), failed))
    (row,) = (row for row in write_rows(table) if row[0] == "amp-fp16")
    assert len(row) == len(table.header)
    assert row[2].startswith("OOM [")
    assert set(row[3:]) == {"OOM"}


def test_topologies_and_variants_have_tables_of_their_own():
    cases = [
        make_inference(),
        make_inference(topology="1n2g"),
        make_inference(compiler="torch.compile"),
    ]
    tables = summarize(make_manifest(), cases).latency_tables
    assert [(table.label, table.topology) for table in tables] == [
        ("pytorch", "1n1g"),
        ("pytorch", "1n2g"),
        ("pytorch torch.compile", "1n1g"),
    ]


def test_inference_is_in_no_table_of_training():
    summary = summarize(make_manifest(), [make_inference()])
    assert (summary.throughput_tables, summary.precision_tables) == ((), ())


def test_latencies_that_nobody_kept_have_no_speedup():
    # as logs that tell the throughput alone
    without = make_planned_case(case_id="b", mode="infer", precision="amp-fp16", repeats=1)
    table = make_table(make_inference("fp32"), make_outcomes(without, [200.0]))
    row = find_row(table, "amp-fp16")
    assert row.precision_speedup.value == pytest.approx(2.0)
    assert set(list_speedups(row)) == {None}
    shown = tabulate_latency(table)
    (cells,) = (cells for cells in write_rows(shown) if cells[0] == "amp-fp16")
    assert set(cells[5::2]) == {"no reference"}
