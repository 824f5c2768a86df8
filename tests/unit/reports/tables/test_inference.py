"""Tables of latencies and of generation: every expected figure is computed by hand."""

from dataclasses import replace

import numpy
import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from outcome_builders import change_outcomes
from report_values import find_tables, list_rows, read_marks, summarize, write_rows
from support.problems import assert_problem

from dlperf_slurm.contract.peaks import DevicePeak, Peaks
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.operation_counts import count_decoded_bytes
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval
from dlperf_slurm.stats.median import LATENCY_NAMES, compute_latency, count_needed_batches

PROMPT, OUTPUT, BATCH = 100, 3, 8
# one layer of 4 x 4 matrices, and a vocabulary of 10
SMALL = {
    "sequence_length": 128,
    "layers": 1,
    "hidden_size": 4,
    "heads": 2,
    "kv_heads": 1,
    "intermediate_size": 4,
    "vocabulary_size": 10,
}
# of two generations: 10 and 30 ms to the first token, then 1 and 3 ms, 2 and 6 ms
TOKENS = numpy.array([[[0.010, 0.001, 0.003], [0.030, 0.002, 0.006]]])


def make_generation(framework="pytorch", tokens=TOKENS, repeats=1, **changes) -> CaseOutcomes:
    axes = {"output_tokens": OUTPUT, "prompt_length": PROMPT, **changes}
    planned = make_planned_case(
        case_id=f"{framework}-{changes}",
        framework=framework,
        mode="infer",
        batch_size_per_device=BATCH,
        repeats=repeats,
        **axes,
    )
    planned = replace(planned, model="llama")
    outcomes = make_outcomes(planned, [100.0] * repeats, batch_seconds=[0.014, 0.038])
    case = replace(outcomes.records[0].case, model="llama", model_parameters=SMALL)
    peaks = Peaks("run", "case", 1, 1, "fp32", (DevicePeak("node1", 1e12, 64, 4e6),), ())
    sidecars = Sidecars(peaks=peaks, token_seconds=tokens)
    return change_outcomes(outcomes, lambda _: {"sidecars": sidecars, "record": {"case": case}})


def read_cells(*cases: CaseOutcomes) -> list[dict[str, str]]:
    (table,) = find_tables(summarize(make_manifest(), cases), "generation")
    return [dict(zip(table.header, row)) for row in write_rows(table)]


def test_percentiles_of_many_generations_are_theirs():
    first = numpy.arange(1, 1002) / 1000
    tokens = numpy.stack([first, first / 10, first / 10], axis=1)[None]
    (cells,) = read_cells(make_generation(tokens=tokens))
    assert [cells[f"TTFT p{p} ms"] for p in (50, 95, 99)] == ["501.00", "951.00", "991.00"]
    assert cells["TPOT p99 ms"] == cells["ITL p99 ms"] == "99.10"


def test_percentile_of_too_few_generations_is_not_there():
    (cells,) = read_cells(make_generation())
    assert {cells[f"TTFT p{percent} ms"] for percent in (95, 99)} == {"too few values"}


def test_one_token_has_no_following_ones():
    (cells,) = read_cells(make_generation(tokens=TOKENS[:, :, :1], output_tokens=1))
    assert (cells["TTFT p50 ms"], cells["TPOT p50 ms"]) == ("20.00", "")


def test_frameworks_stand_side_by_side_and_other_lengths_in_other_tables():
    cases = [make_generation(), make_generation("jax"), make_generation(prompt_length=50)]
    tables = find_tables(summarize(make_manifest(), cases), "generation")
    names = [[row[1].text for row in table.rows] for table in tables]
    assert names == [["pytorch", "jax"], ["pytorch"]]
    assert tables[0].title.startswith("LLaMA (")
    assert tables[0].title.endswith(" generation: prompts of 100 tokens, 3 generated, 1n1g")


def test_csv_has_both_phases_and_the_generated_tokens():
    (line,) = read_csv(summarize(make_manifest(), [make_generation()]))
    assert float(line["ttft_p50_ms"]) == pytest.approx(20)
    assert float(line["tpot_avg_ms"]) == pytest.approx(3)
    assert float(line["itl_p100_ms"]) == pytest.approx(6)
    assert float(line["prefill_tokens_per_s"]) == pytest.approx(BATCH * PROMPT / 0.020)
    assert float(line["decode_tokens_per_s"]) == pytest.approx(BATCH / 0.003)
    assert float(line["tokens_per_s"]) == pytest.approx(100.0 * OUTPUT)


def test_decoding_is_set_beside_the_bandwidth_of_memory():
    (line,) = read_csv(summarize(make_manifest(), [make_generation()]))
    # query and output 4 x 4, key and value 2 x 4, gate, up and down 4 x 4, three scales, head
    weights = 2 * 16 + 2 * 8 + 3 * 16 + 3 * 4 + 40
    # a key and a value of 2 at 101.5 positions of 8 texts
    cached = 2 * 2 * 101.5 * BATCH
    rate = 4 * (weights + cached) / 0.003
    assert float(line["decode_gb_per_s"]) == pytest.approx(rate / 1e9)
    assert float(line["decode_bandwidth_share"]) == pytest.approx(rate / 4e6)


@pytest.mark.parametrize(
    ("precision", "weight_bytes", "cache_bytes"),
    [("fp32", 4, 4), ("tf32", 4, 4), ("amp-bf16", 4, 2), ("bf16", 2, 2), ("fp16", 2, 2)],
)
def test_bytes_of_a_decoding_are_those_of_its_precision(precision, weight_bytes, cache_bytes):
    case = make_generation(precision=precision).records[0].case
    assert count_decoded_bytes(case) == weight_bytes * 148 + cache_bytes * 3248


# 1 ... 11 ms: the 90th percentile is the tenth of eleven
BATCHES = [index / 1000 for index in range(1, 12)]
# as many as the 99th percentile takes
MANY_BATCHES = 100 * BATCHES


def make_inference(
    precision: str = "fp32", batch_size: int = 8, scale: float = 1.0, **changes: object
) -> CaseOutcomes:
    """One repeat whose batches took `scale` times as long as MANY_BATCHES."""
    seconds = [scale * value for value in MANY_BATCHES]
    axes = {"precision": precision, "batch_size_per_device": batch_size, **changes}
    return make_timed([seconds], [100.0 / scale], **axes)


def make_table(*cases: CaseOutcomes) -> Table:
    tables = summarize(make_manifest(), cases).tables
    (table,) = (table for table in tables if table.kind == "latency")
    return table


def test_percentiles_are_those_of_the_batches_in_any_order():
    # 1 + 9.5 of 10 steps is half way between 10 and 11 ms
    latency = compute_latency(list(reversed(BATCHES)))
    assert latency.mean == pytest.approx(0.006)
    assert latency.percentiles == pytest.approx((0.006, 0.010, 0.0105, 0.0109, 0.011))


def make_timed(batches, rates=(), **changes: object) -> CaseOutcomes:
    """Make a case whose repeats had these batch times in seconds, and throughputs."""
    planned = make_planned_case(mode="infer", repeats=len(batches), **changes)
    outcomes = make_outcomes(planned, rates or [1000.0] * len(batches))
    return change_outcomes(
        outcomes, lambda one: {"rank_step_seconds": numpy.array([batches[one.repeat - 1]])}
    )


def test_percentile_takes_as_many_batches_as_leave_ten_above_it():
    assert [*map(count_needed_batches, (50, 90, 99, 100))] == [1, 100, 1000, 1]


def test_percentile_of_too_few_batches_is_of_all_repeats_together_or_not_there():
    # 10 repeats of 99 batches of 1 ... 99 ms: one takes 100 for the 90th percentile, ten 1000
    # for the 99th
    case = make_timed([[index / 1000 for index in range(1, 100)]] * 10)
    summary = summarize(make_manifest(), [case])
    (row,) = list_rows(case)
    assert (row.latency_p90_ms, row.latency_p90_ms_low) == (pytest.approx(90), None)
    assert (row.latency_p50_ms_low is None, row.latency_p99_ms) == (False, None)
    (table,) = find_tables(summary, "latency")
    cells = dict(zip(table.header, table.rows[0]))
    assert (cells["p99 ms"].text, cells["p90 ms"].text) == ("too few values", "90.00")
    notes = read_marks(summary, table.rows[0])
    pooled, missing = (note for note in notes if note.startswith("latency percentiles"))
    says = ("percentiles 90, 95 and 100", "990 batches", "90th percentile needs 100", "99")
    assert_problem(pooled, says=says)
    assert_problem(missing, says=("percentiles 99", "left out", "1000 batches", "990"))
    (line,) = read_csv(summary)
    assert (line["latency_p99_ms"], line["latency_p90_ms_low"]) == ("", "")
    assert missing in line["notes"]


def test_blocks_are_what_latencies_are_medians_of():
    # neighbours are in different blocks: 1, 1, 1, 2, 1, 9 and 2, 2, 2, 3, 2, 30 ms
    milliseconds = [1, 2, 1, 2, 1, 2, 2, 3, 1, 2, 9, 30]
    case = make_timed([[value / 1000] for value in milliseconds], blocks=2)
    (row,) = list_rows(case)
    assert (row.latency_avg_ms_min, row.latency_avg_ms_max) == pytest.approx((1, 2))


def test_speedup_of_latency_is_over_the_reference_at_the_same_batch_size():
    rows = list_rows(
        make_inference("fp32", 8, scale=3.0),
        make_inference("fp32", 16, scale=4.0),
        make_inference("amp-fp16", 8),
        make_inference("amp-fp16", 16),
    )
    assert {row.reference_precision for row in rows} == {"fp32"}
    assert [row.precision_speedup for row in rows] == pytest.approx([1, 1, 3, 4])
    assert [list_speedups(row) for row in rows] == [
        pytest.approx([speedup] * 6) for speedup in (1, 1, 3, 4)
    ]


def make_repeats(precision: str, milliseconds: list[float]) -> CaseOutcomes:
    """Each repeat had these batches of 8: one of a millisecond, and one of what it is given."""
    seconds = [[0.001, value / 1000] for value in milliseconds]
    rates = [8000 / value for value in milliseconds]
    axes = {"precision": precision, "batch_size_per_device": 8}
    return make_timed(seconds, rates, case_id=precision, **axes)


def list_speedups(row) -> list:
    return [getattr(row, f"latency_{part}_speedup") for part in LATENCY_NAMES]


def test_latencies_have_the_interval_of_their_median():
    # 6 repeats: their extremes cover the median with 1 - 2 / 2**6 = 96.9 %
    (row,) = list_rows(make_repeats("fp32", [3, 5, 7, 9, 11, 13]))
    assert (row.latency_avg_ms_low, row.latency_avg_ms_high) == pytest.approx((2, 7))
    assert (row.latency_p100_ms_low, row.latency_p100_ms_high) == pytest.approx((3, 13))
    assert row.latency_p100_ms == pytest.approx(8)


def test_speedups_of_latencies_have_the_interval_of_a_ratio():
    full, reduced = [30, 31, 32, 33, 34, 35], [10, 11, 12, 13, 14, 15]
    reference, row = list_rows(make_repeats("fp32", full), make_repeats("amp-fp16", reduced))
    assert (reference.latency_avg_speedup, reference.latency_p100_speedup_low) == (1, None)
    interval = compute_ratio_interval(reduced, full)
    ends = (row.latency_p100_speedup_low, row.latency_p100_speedup_high)
    assert ends == pytest.approx((interval.low, interval.high))
    # medians of rates, of an even number, are not the inverse of those of times
    assert row.precision_speedup_low == pytest.approx(interval.low, rel=0.01)
    assert row.latency_p100_speedup == pytest.approx(32.5 / 12.5)


def test_batch_size_without_a_reference_says_so():
    table = make_table(make_inference("fp32", 8), make_inference("amp-fp16", 16))
    (row,) = (row for row in write_rows(table) if row[0] == "amp-fp16")
    assert row[3:] == ("no reference", "6.00", "no reference", *row[6:])


def test_columns_are_those_of_nvidia_with_speedups_where_there_are_precisions():
    assert "speedup" not in make_table(make_inference()).header
    summary = summarize(make_manifest(), [make_inference()])
    assert not any("latencies at" in text for text in summary.footnotes)
    assert find_tables(summary, "throughput") == find_tables(summary, "precision") == []
    table = make_table(make_inference("fp32"), make_inference("amp-fp16"))
    latencies = ("avg ms", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "p100 ms")
    pairs = [column for name in latencies for column in (name, "speedup")]
    assert table.header == ("precision", "batch size", "images/s", "speedup", *pairs)
    assert {len(row) for row in write_rows(table)} == {len(table.header)}


def test_case_that_failed_has_its_word_in_each_column():
    planned = make_planned_case(mode="infer", repeats=1, precision="amp-fp16")
    failed = make_outcomes(planned, [], ["out of memory: no room"])
    table = make_table(make_inference("fp32"), failed)
    (row,) = (row for row in write_rows(table) if row[0] == "amp-fp16")
    assert len(row) == len(table.header)
    assert row[2].startswith("OOM [")
    assert set(row[3:]) == {"OOM"}
