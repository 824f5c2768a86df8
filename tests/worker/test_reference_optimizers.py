"""The update rules in NumPy, against numbers worked out by hand."""

import math

import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.contract.case import Training
from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.reference_optimizers import clip_gradients, make_optimizer, measure_norm

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

RESNET50 = resnet50.Definition()
BERT = bert.Definition()


def make_case(model, batch_size_per_device, **changes):
    """Of two ranks."""
    return vary(attempts.CASE, model=model, batch_size_per_device=batch_size_per_device, **changes)


def make_arrays(matrix, vector):
    return {"matrix": numpy.array([[matrix]]), "vector": numpy.array([vector])}


def take_steps(optimizer, weights, gradients, steps):
    for _ in range(steps):
        optimizer.update(weights, gradients)
    return {name: values.item() for name, values in weights.items()}


def test_momentum_remembers_the_last_gradients_and_decays_matrices():
    optimizer = make_optimizer(make_case("resnet50", 128), RESNET50)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.5, 0.5), 2)
    rate, momentum, decay = 0.256, 0.875, 3.0517578125e-05
    assert weights["vector"] == pytest.approx(2.0 - rate * 0.5 * (2 + momentum))
    first = 0.5 + decay * 2.0
    second = momentum * first + 0.5 + decay * (2.0 - rate * first)
    assert weights["matrix"] == pytest.approx(2.0 - rate * (first + second), rel=1e-12)


def test_adam_moves_by_its_learning_rate_whatever_the_gradients_size():
    optimizer = make_optimizer(make_case("bert", 4), BERT)
    weights = take_steps(optimizer, make_arrays(0.0, 0.0), make_arrays(1e-3, -10.0), 1)
    assert weights["matrix"] == pytest.approx(-1e-4 * 1e-3 / (1e-3 + 1e-6), rel=1e-9)
    assert weights["vector"] == pytest.approx(1e-4, rel=1e-6)
    # the bias of both moments is corrected in every step
    optimizer = make_optimizer(make_case("bert", 4), BERT)
    weights = take_steps(optimizer, make_arrays(0.0, 0.0), make_arrays(0.0, 1.0), 3)
    assert weights["vector"] == pytest.approx(-3e-4, rel=1e-5)
    # the decay is decoupled from the gradient and spares vectors
    optimizer = make_optimizer(make_case("bert", 4), BERT)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.0, 0.0), 1)
    assert weights == {"matrix": 2.0 * (1 - 1e-4 * 0.01), "vector": 2.0}


@pytest.mark.parametrize(
    ("precision", "optimizer", "start", "expected"),
    [
        # a hundredth of the gradient is less than half the spacing, and more
        ("bf16", "sgd", 1.0, 1.0 - 2**-7),
        ("bf16", "sgd", 4.0, 4.0),
        ("fp16", "sgd", 1.0, 1.0 - 20 * 2**-11),
        ("fp16", "sgd", 16.0, 16.0 - 2**-6),
        # the first step has half the momentum of the second
        ("bf16", "momentum", 1.0, 1.0 - 3 * 2**-8),
        ("bf16", "adamw", 1.0, 1.0),
    ],
)
def test_weights_of_16_bits_are_rounded_after_each_step(precision, optimizer, start, expected):
    case = make_case("bert", 4, optimizer=optimizer, precision=precision)
    weights = take_steps(
        make_optimizer(case, BERT), make_arrays(0.0, start), make_arrays(0, 0.5), 2
    )
    assert weights["vector"] == expected


def test_another_models_optimizer_has_its_constants_and_the_models_decay():
    optimizer = make_optimizer(make_case("bert", 4, optimizer="momentum"), BERT)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.0, 0.5), 2)
    assert weights["vector"] == pytest.approx(2.0 - 1e-2 * 0.5 * (2 + 0.875))
    optimizer = make_optimizer(make_case("resnet50", 4, optimizer="adamw"), RESNET50)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.0, 0.5), 1)
    assert weights["vector"] == pytest.approx(2.0 - 1e-3, rel=1e-5)
    assert weights["matrix"] == 2.0 * (1 - 1e-3 * RESNET50.RULE.weight_decay)


@pytest.mark.parametrize(
    ("batch_size", "changes", "rate"),
    [
        # of a training to accuracy, before the model's own
        (128, {"training": Training(epochs=1, learning_rate=0.5)}, 0.5),
        # accumulated batches count
        (32, {"gradient_accumulation": 4}, 0.256),
        # linear in the batch up to 256 images
        (32, {}, 0.064),
        (4096, {}, 0.256),
    ],
)
def test_learning_rate_is_that_of_the_case(batch_size, changes, rate):
    optimizer = make_optimizer(make_case("resnet50", batch_size, **changes), RESNET50)
    weights = take_steps(optimizer, make_arrays(2.0, 2.0), make_arrays(0.0, 1.0), 1)
    assert weights["vector"] == pytest.approx(2.0 - rate)


@pytest.mark.parametrize(
    ("gradients", "clipped"), [((3.0, 4.0), (0.6, 0.8)), ((0.3, 0.4), (0.3, 0.4))]
)
def test_gradients_are_clipped_together(gradients, clipped):
    arrays = dict(clip_gradients(make_arrays(*gradients), 1.0))
    assert tuple(values.item() for values in arrays.values()) == pytest.approx(clipped)


def test_norm_of_float32_arrays_does_not_overflow():
    arrays = [numpy.full(4, 1e30, numpy.float32), numpy.zeros((2, 2), numpy.float32)]
    assert measure_norm(arrays) == pytest.approx(2e30)
    assert math.isnan(measure_norm([numpy.array([math.nan])]))
