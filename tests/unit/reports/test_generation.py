"""Outcomes of generations -> tables of their phases: every expected figure is computed by hand."""

from dataclasses import replace

import numpy
import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from report_values import find_tables, summarize, write_rows

from dlperf_slurm.contract.peaks import DevicePeak, Peaks
from dlperf_slurm.jobs.sidecars import Sidecars
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.operation_counts import count_decoded_bytes

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
    return CaseOutcomes(planned, tuple(add_tokens(one, tokens) for one in outcomes.outcomes))


def add_tokens(outcome, tokens):
    """With these times, those of a small decoder, and the memory of its device."""
    record = replace(
        outcome.record, case=replace(outcome.record.case, model="llama", model_parameters=SMALL)
    )
    peaks = Peaks("run", "case", 1, 1, "fp32", (DevicePeak("node1", 1e12, 64, 4e6),), ())
    return replace(outcome, record=record, beside=Sidecars(peaks=peaks, token_seconds=tokens))


def read_cells(*cases: CaseOutcomes) -> list[dict[str, str]]:
    (table,) = find_tables(summarize(make_manifest(), cases), "generation")
    return [dict(zip(table.header, row)) for row in write_rows(table)]


def test_phases_are_told_apart():
    (cells,) = read_cells(make_generation())
    assert cells["TTFT 50 % ms"] == "20.00"
    # means of the two generations: 2 and 4 ms
    assert cells["TPOT 50 % ms"] == "3.00"
    # a batch's prompts over 20 ms, its following tokens over 3 ms
    assert cells["prefill tokens/s"] == "40000"
    assert cells["decode tokens/s"] == "2667"


def test_percentile_of_too_few_generations_is_not_there():
    (cells,) = read_cells(make_generation())
    assert {cells[f"TTFT {percent} % ms"] for percent in (95, 99)} == {"too few"}


def test_percentiles_of_many_generations_are_theirs():
    first = numpy.arange(1, 1002) / 1000
    tokens = numpy.stack([first, first / 10, first / 10], axis=1)[None]
    (cells,) = read_cells(make_generation(tokens=tokens))
    assert [cells[f"TTFT {p} % ms"] for p in (50, 95, 99)] == ["501.00", "951.00", "991.00"]
    assert cells["TPOT 99 % ms"] == cells["ITL 99 % ms"] == "99.10"


def test_one_token_has_no_following_ones():
    (cells,) = read_cells(make_generation(tokens=TOKENS[:, :, :1], output_tokens=1))
    assert (cells["TTFT 50 % ms"], cells["TPOT 50 % ms"]) == ("20.00", "")


def test_frameworks_stand_side_by_side_and_other_lengths_in_other_tables():
    cases = [make_generation(), make_generation("jax"), make_generation(prompt_length=50)]
    tables = find_tables(summarize(make_manifest(), cases), "generation")
    names = [[row[1].text for row in table.rows] for table in tables]
    assert names == [
        ["pytorch", "jax"],
        ["pytorch"],
    ]
    assert tables[0].title == "llama generation: prompts of 100 tokens, 3 generated, 1n1g"


def test_csv_has_both_phases_and_the_generated_tokens():
    (line,) = read_csv(summarize(make_manifest(), [make_generation()]))
    assert float(line["ttft_p50_ms"]) == pytest.approx(20)
    assert float(line["tpot_avg_ms"]) == pytest.approx(3)
    assert float(line["itl_p100_ms"]) == pytest.approx(6)
    assert float(line["prefill_tokens_per_s"]) == pytest.approx(BATCH * PROMPT / 0.020)
    assert float(line["decode_tokens_per_s"]) == pytest.approx(BATCH / 0.003)
    assert float(line["tokens_per_s"]) == pytest.approx(100.0 * OUTPUT)


def test_inference_without_generation_has_no_such_table():
    planned = make_planned_case(mode="infer", repeats=1)
    case = make_outcomes(planned, [100.0], batch_seconds=[0.01])
    assert find_tables(summarize(make_manifest(), [case]), "generation") == []


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
