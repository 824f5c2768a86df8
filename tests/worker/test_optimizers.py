"""The update rules in NumPy, against numbers worked out by hand."""

import math

import pytest

from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.optimizers import clip_gradients, make_optimizer, measure_norm

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

RESNET50 = resnet50.Definition()
BERT = bert.Definition()


def make_arrays(matrix, vector):
    return {"matrix": numpy.array([[matrix]]), "vector": numpy.array([vector])}


def take_steps(optimizer, weights, gradients, steps):
    for _ in range(steps):
        optimizer.update(weights, gradients)
    return {name: values.item() for name, values in weights.items()}


def test_momentum_remembers_the_last_gradients_and_decays_matrices():
    optimizer = make_optimizer(RESNET50, 256, is_clipped=False)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.5, 0.5), 2)
    rate, momentum, decay = 0.256, 0.875, 3.0517578125e-05
    assert weights["vector"] == pytest.approx(2.0 - rate * 0.5 * (2 + momentum))
    first = 0.5 + decay * 2.0
    second = momentum * first + 0.5 + decay * (2.0 - rate * first)
    assert weights["matrix"] == pytest.approx(2.0 - rate * (first + second), rel=1e-12)


def test_adam_moves_by_its_learning_rate_whatever_the_gradients_size():
    optimizer = make_optimizer(BERT, 8, is_clipped=False)
    weights = take_steps(optimizer, make_arrays(0.0, 0.0), make_arrays(1e-3, -10.0), 1)
    assert weights["matrix"] == pytest.approx(-1e-4 * 1e-3 / (1e-3 + 1e-6), rel=1e-9)
    assert weights["vector"] == pytest.approx(1e-4, rel=1e-6)


def test_adam_corrects_the_bias_of_both_moments_in_every_step():
    optimizer = make_optimizer(BERT, 8, is_clipped=False)
    weights = take_steps(optimizer, make_arrays(0.0, 0.0), make_arrays(0.0, 1.0), 3)
    assert weights["vector"] == pytest.approx(-3e-4, rel=1e-5)


def test_adams_decay_is_decoupled_from_the_gradient_and_spares_vectors():
    optimizer = make_optimizer(BERT, 8, is_clipped=False)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.0, 0.0), 1)
    assert weights == {"matrix": 2.0 * (1 - 1e-4 * 0.01), "vector": 2.0}


def test_gradients_are_clipped_together():
    clipped = dict(clip_gradients(make_arrays(3.0, 4.0), 1.0))
    assert {name: values.item() for name, values in clipped.items()} == pytest.approx(
        {"matrix": 0.6, "vector": 0.8}
    )


def test_gradients_below_the_largest_norm_stay():
    clipped = dict(clip_gradients(make_arrays(0.3, 0.4), 1.0))
    assert {name: values.item() for name, values in clipped.items()} == {
        "matrix": 0.3,
        "vector": 0.4,
    }


def test_norm_of_float32_arrays_does_not_overflow():
    arrays = [numpy.full(4, 1e30, numpy.float32), numpy.zeros((2, 2), numpy.float32)]
    assert measure_norm(arrays) == pytest.approx(2e30)
    assert math.isnan(measure_norm([numpy.array([math.nan])]))
