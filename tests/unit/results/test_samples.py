"""Independent values of a quantity: medians of blocks, their median, interval and range."""

import random

import pandas
import pytest
from builders import make_outcomes, make_planned_case

from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.samples import INDEX, summarize_samples
from dlperf_slurm.stats.median import compute_median, compute_median_interval


def list_samples(outcomes, quantity="samples_per_s"):
    return analyze([outcomes]).samples.xs(quantity, level="quantity").tolist()


def test_sample_of_a_block_is_the_median_of_its_repeats():
    # neighbours are in different blocks: 1, 3, 9 and 2, 8, 8
    rates = [1.0, 2.0, 3.0, 8.0, 9.0, 8.0]
    outcomes = make_outcomes(make_planned_case(repeats=6, blocks=2), rates)
    assert list_samples(outcomes) == pytest.approx([3.0, 8.0])


def test_failed_repeat_is_no_sample():
    outcomes = make_outcomes(make_planned_case(repeats=2), [1.0], ["failed: x"])
    assert list_samples(outcomes) == pytest.approx([1.0])


@pytest.mark.parametrize(("batches", "samples"), [(99, 1), (100, 2)])
def test_percentile_of_enough_batches_has_a_sample_of_each_repeat(batches, samples):
    planned = make_planned_case(mode="infer", repeats=2)
    outcomes = make_outcomes(planned, [8.0, 8.0], batch_seconds=[0.1] * batches)
    assert len(list_samples(outcomes, "latency_p90_seconds")) == samples


@pytest.mark.parametrize("count", range(1, 16))
def test_summary_has_the_median_and_the_interval_of_the_values(count):
    generator = random.Random(count)
    values = [generator.random() for _ in range(count)]
    index = pandas.MultiIndex.from_tuples([("a", "b", n) for n in range(count)], names=INDEX)
    found = summarize_samples(pandas.Series(values, index=index), pandas.Index(["a"]), ["b"])
    (row,) = found["b"].itertuples()
    interval = compute_median_interval(values)
    assert row.median == compute_median(values)
    if interval is None:
        assert pandas.isna([row.low, row.high]).all()
    else:
        assert (row.low, row.high) == (interval.low, interval.high)
    assert pandas.isna(row.min) == (count == 1)
