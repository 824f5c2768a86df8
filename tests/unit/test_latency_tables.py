"""Outcomes of inference -> latency tables: every expected figure is computed by hand."""

import pytest
from builders import make_manifest, make_outcomes, make_planned_case

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.reports.text import make_latency_grid
from dlperf_slurm.statistics import Latency, find_latency, find_median_latency
from dlperf_slurm.summarize import summarize
from dlperf_slurm.tables.latency import LatencyTable

# 1 ... 11 ms: the 90th percentile is the tenth of eleven
BATCHES = [index / 1000 for index in range(1, 12)]


def make_inference(
    precision: str = "fp32", batch_size: int = 8, scale: float = 1.0, **changes: object
) -> CaseOutcomes:
    """One repeat whose batches took `scale` times as long as BATCHES."""
    planned = make_planned_case(
        case_id=f"{precision}-{batch_size}",
        mode="val",
        precision=precision,
        batch_size_per_device=batch_size,
        repeats=1,
        **changes,
    )
    seconds = [scale * value for value in BATCHES]
    return make_outcomes(planned, [100.0 / scale], batch_seconds=seconds)


def make_table(*cases: CaseOutcomes) -> LatencyTable:
    (table,) = summarize(make_manifest(), cases).latency_tables
    return table


def test_percentiles_are_those_of_the_batches_in_any_order():
    # 1 + 9.5 of 10 steps is half way between 10 and 11 ms
    latency = find_latency(list(reversed(BATCHES)))
    assert latency.percentiles == pytest.approx((0.006, 0.010, 0.0105, 0.0109, 0.011))


def test_mean_of_latencies_is_that_of_times():
    assert find_latency(BATCHES).mean == pytest.approx(0.006)


@pytest.mark.parametrize("batches", [[0.5], [0.1, 0.3], [0.3, 0.1, 0.2, 0.1, 5.0]])
def test_percentiles_ascend(batches):
    percentiles = find_latency(batches).percentiles
    assert list(percentiles) == sorted(percentiles)
    assert percentiles[-1] == max(batches)


def test_latency_of_a_case_is_the_median_over_its_repeats():
    repeats = [Latency(mean, (2 * mean,)) for mean in (0.3, 0.1, 0.2)]
    assert find_median_latency(repeats) == Latency(0.2, (0.4,))


def test_throughput_times_mean_latency_is_the_batch():
    # 8 samples in 6 ms on one device
    planned = make_planned_case(mode="val", repeats=1)
    table = make_table(make_outcomes(planned, [8 / 0.006], batch_seconds=BATCHES))
    (row,) = table.rows
    assert row.median * row.latency.mean / 8 == pytest.approx(1)


def test_speedup_of_latency_is_over_the_reference_at_the_same_batch_size():
    table = make_table(
        make_inference("fp32", 8, scale=3.0),
        make_inference("fp32", 16, scale=4.0),
        make_inference("amp-fp16", 8),
        make_inference("amp-fp16", 16),
    )
    speedups = {row.case_id: (row.speedup, row.latency_speedup) for row in table.rows}
    assert table.reference_precision == "fp32"
    assert speedups["amp-fp16-8"] == (pytest.approx(3), pytest.approx((3,) * 6))
    assert speedups["amp-fp16-16"] == (pytest.approx(4), pytest.approx((4,) * 6))
    assert speedups["fp32-8"] == (1, (1,) * 6)


def test_tf32_is_the_reference_where_fp32_was_not_measured():
    cases = [make_inference("tf32"), make_inference("amp-fp16")]
    assert make_table(*cases).reference_precision == "tf32"


def test_batch_size_without_a_reference_says_so():
    table = make_table(make_inference("fp32", 8), make_inference("amp-fp16", 16))
    (row,) = (row for row in make_latency_grid(table).rows if row[0] == "amp-fp16")
    assert row[3:] == ("no reference", "6.00", "no reference", *row[6:])


def test_rows_go_by_batch_size():
    cases = [make_inference("fp32", size) for size in (16, 2, 128)]
    assert [row.batch_size for row in make_table(*cases).rows] == ["2", "16", "128"]


def test_columns_are_those_of_nvidia():
    grid = make_latency_grid(make_table(make_inference("fp32"), make_inference("amp-fp16")))
    latencies = ("avg ms", "50 % ms", "90 % ms", "95 % ms", "99 % ms", "100 % ms")
    pairs = [column for name in latencies for column in (name, "speedup")]
    assert grid.header == ("precision", "batch size", "images/s", "speedup", *pairs)
    assert {len(row) for row in grid.rows} == {len(grid.header)}


def test_one_precision_has_no_speedups():
    assert "speedup" not in make_latency_grid(make_table(make_inference())).header


def test_case_that_failed_has_its_word_in_each_column():
    planned = make_planned_case(mode="val", repeats=1, precision="amp-fp16")
    failed = make_outcomes(planned, [], ["out of memory: no room"])
    grid = make_latency_grid(make_table(make_inference("fp32"), failed))
    (row,) = (row for row in grid.rows if row[0] == "amp-fp16")
    assert len(row) == len(grid.header)
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
