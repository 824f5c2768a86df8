"""Independent values of a quantity: medians of blocks, their median, interval and range."""

import random

import pandas
import pytest
from builders import make_outcomes, make_planned_case

from dlperf_slurm.results.case_summary import make_run_frames, summarize_case
from dlperf_slurm.results.samples import make_samples, summarize_samples
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, compute_median, compute_median_interval


def list_samples(outcomes, quantity="samples_per_s"):
    frames, case = make_run_frames([summarize_case(outcomes)]), outcomes.case
    blocks = pandas.Series({case.case_id: case.blocks})
    names = [f"latency_p{percent}_seconds" for percent in LATENCY_PERCENTILES]
    samples = make_samples(
        frames.repeats, frames.pooled, blocks, ["samples_per_s", "train_seconds", *names]
    )
    return samples[quantity].get(case.case_id, [])


def test_sample_of_a_block_is_the_median_of_its_repeats():
    # neighbours are in different blocks: 1, 3, 9 and 2, 8, 8
    rates = [1.0, 2.0, 3.0, 8.0, 9.0, 8.0]
    outcomes = make_outcomes(make_planned_case(repeats=6, blocks=2), rates)
    assert list_samples(outcomes) == pytest.approx([3.0, 8.0])


def test_failed_repeat_is_no_sample():
    outcomes = make_outcomes(make_planned_case(repeats=2), [1.0], ["failed: x"])
    assert list_samples(outcomes) == pytest.approx([1.0])


def test_percentile_of_too_few_batches_has_one_sample_of_all_repeats_or_none():
    # 2 repeats of 60 batches: the 90th percentile takes 100, the 99th 1000
    planned = make_planned_case(mode="infer", repeats=2)
    outcomes = make_outcomes(planned, [8.0, 8.0], batch_seconds=[0.1] * 60)
    assert list_samples(outcomes, "latency_p90_seconds") == pytest.approx([0.1])
    assert list_samples(outcomes, "latency_p50_seconds") == pytest.approx([0.1, 0.1])
    assert list_samples(outcomes, "latency_p99_seconds") == []


@pytest.mark.parametrize(("batches", "samples"), [(99, 1), (100, 2)])
def test_percentile_of_enough_batches_has_a_sample_of_each_repeat(batches, samples):
    planned = make_planned_case(mode="infer", repeats=2)
    outcomes = make_outcomes(planned, [8.0, 8.0], batch_seconds=[0.1] * batches)
    assert len(list_samples(outcomes, "latency_p90_seconds")) == samples


@pytest.mark.parametrize("count", range(1, 16))
def test_summary_has_the_median_and_the_interval_of_the_values(count):
    generator = random.Random(count)
    values = [generator.random() for _ in range(count)]
    (row,) = summarize_samples({"a": values}, pandas.Index(["a"])).itertuples()
    interval = compute_median_interval(values)
    assert row.median == compute_median(values)
    if interval is None:
        assert pandas.isna([row.low, row.high]).all()
    else:
        assert (row.low, row.high) == (interval.low, interval.high)
    assert pandas.isna(row.min) == (count == 1)
