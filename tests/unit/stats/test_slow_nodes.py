"""Which nodes are slow: drift, several slow nodes, missing repeats, and how often it is wrong."""

import math
import tracemalloc

import numpy
import pytest

from dlperf_slurm.stats.slow_nodes import LEAST_BLOCKS, compute_node_effects

LEAST_EFFECT = 0.02


def measure(nodes, blocks, slow=(), by=0.05, noise=0.01, seed=1):
    """Return throughputs [nodes, blocks] of a machine that drifts by 10 % from block to block."""
    random = numpy.random.default_rng(seed)
    logs = noise * random.standard_normal((nodes, blocks)) + 0.1 * random.standard_normal(blocks)
    logs[list(slow)] += math.log(1 - by)
    return 100 * numpy.exp(logs)


def name_slow(values, **options):
    (effects,) = compute_node_effects([values], LEAST_EFFECT, **options)
    return [node for node, one in enumerate(effects) if one.is_slow(LEAST_EFFECT)]


@pytest.mark.parametrize(
    ("nodes", "blocks", "slow"),
    [(2, 5, [1]), (4, 5, [0]), (4, 5, [1, 2]), (16, 3, [3, 4]), (64, 5, list(range(6)))],
)
def test_slow_nodes_are_named_and_no_other_in_spite_of_drift(nodes, blocks, slow):
    assert name_slow(measure(nodes, blocks, slow)) == slow


def test_effect_of_a_slow_node_is_relative_to_the_nodes_that_are_not_slow():
    (effects,) = compute_node_effects([measure(4, 9, [1, 2], by=0.1)], LEAST_EFFECT)
    for node in (1, 2):
        assert effects[node].low < 0.9 < effects[node].high
        assert effects[node].high < 0.98
        # a draw may always be as slow
        assert effects[node].p_value > 0


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "blocks"), [(4, 3), (16, 5)])
def test_of_equal_nodes_one_is_named_in_at_most_one_table_of_twenty(nodes, blocks):
    tables = 100
    # noise so large that the least effect alone prevents nothing
    wrong = sum(
        bool(name_slow(measure(nodes, blocks, noise=0.05, seed=seed))) for seed in range(tables)
    )
    # more than 10 of 100 would happen once in 90 times at 5 %
    assert wrong <= 10


def test_many_blocks_take_little_memory_and_narrow_the_interval():
    tracemalloc.start()
    widths = []
    for blocks in (51, 816):
        (effects,) = compute_node_effects([measure(3, blocks, [1])], LEAST_EFFECT)
        assert effects[1].is_slow(LEAST_EFFECT)
        widths.append(math.log(effects[1].high / effects[1].low))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250e6
    # sixteen times as many blocks
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.4)


def test_difference_below_the_least_effect_is_not_named_however_certain():
    assert name_slow(measure(8, 9, [0], by=0.01, noise=0.0005)) == []


def test_one_bad_repeat_makes_no_node_slow():
    values = measure(8, 5, noise=0.002)
    values[3, 2] *= 0.5
    assert name_slow(values) == []


def test_node_with_missing_repeats_is_judged_by_those_it_has():
    values = measure(8, 6, [2])
    values[2, :3] = math.nan
    values[5, 1:] = math.nan
    (effects,) = compute_node_effects([values], LEAST_EFFECT)
    assert effects[2].is_slow(LEAST_EFFECT)
    assert math.isnan(effects[5].ratio)
    assert effects[5].more_blocks == LEAST_BLOCKS - 1


def test_node_that_seems_slow_says_about_how_many_blocks_would_decide():
    more = []
    for by in (0.05, 0.10):
        values = measure(8, 3, noise=0.12)
        # slow in the median block, and as noisy as the others
        values[1] = numpy.median(values, axis=0) * (1 - by) * numpy.array([1.0, 0.94, 1.05])
        (effects,) = compute_node_effects([values], LEAST_EFFECT)
        assert effects[1].seems_slow(LEAST_EFFECT)
        more.append(effects[1].more_blocks)
    assert more[0] > more[1] >= 1


def test_p_values_hold_for_all_figures_together():
    values = measure(8, 4, [1], by=0.06, noise=0.02)
    (alone,) = compute_node_effects([values], LEAST_EFFECT)
    together = compute_node_effects([values, *[measure(8, 4, seed=n) for n in range(9)]], 0.02)
    assert together[0][1].p_value > alone[1].p_value


@pytest.mark.parametrize(
    "values", [numpy.full((3, 4), math.nan), numpy.full((1, 4), 1.0), numpy.ones((3, 5))]
)
def test_nothing_is_named_without_anything_to_compare(values):
    assert name_slow(values) == []
