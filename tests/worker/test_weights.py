"""Initial weights: the same bits everywhere, by the definition's names, shapes and deviations."""

import hashlib

import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.worker.models import Parameter, bert, resnet50
from dlperf_slurm.worker.weights import (
    MOST_SUMMED,
    PIECE_SIZE,
    generate_weights,
    match_weights,
    round_as_stored,
    sum_weights,
)

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

SMALL_RESNET50 = resnet50.Definition(image_size=32, width=8, classes=10)
SMALL_BERT = bert.Definition(
    layers=1, hidden_size=32, heads=4, intermediate_size=64, vocabulary_size=200
)


class OneParameter:
    def __init__(self, shape):
        self.shape = shape

    def list_parameters(self):
        yield Parameter("weight", self.shape, 2.0, 0.5)


@pytest.mark.parametrize(
    ("definition", "digest"),
    [(SMALL_RESNET50, "710acc9006ea4c1c"), (SMALL_BERT, "1fa43d397119fb54")],
)
def test_weights_have_the_same_bits_under_every_numpy(definition, digest):
    content = b"".join(values.tobytes() for _, values in generate_weights(definition, 7))
    assert hashlib.sha256(content).hexdigest()[:16] == digest


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("precision", "unit"), [("bf16", 2.0**-8), ("fp16", 2.0**-11), ("fp32", 0), ("amp-bf16", 0)]
)
def test_weights_are_rounded_to_the_nearest_number_that_their_precision_stores(
    precision, unit, dtype
):
    # ties go to the even number
    steps = numpy.array([0.9, 1.0, 1.1, 2.0, 3.0, -1.0, -3.0])
    values = numpy.sign(steps) * (1 + numpy.abs(steps) * (unit or 0.01))
    expected = numpy.sign(steps) * (1 + numpy.array([0, 0, 2, 2, 4, 0, 4]) * unit)
    rounded = round_as_stored(values.astype(dtype), precision)
    assert rounded.dtype == dtype
    assert rounded.tolist() == (expected if unit else values.astype(dtype)).tolist()


def test_a_weight_does_not_depend_on_the_other_parameters():
    definitions = (bert.Definition(layers=layers, hidden_size=48) for layers in (1, 2))
    one, two = (dict(generate_weights(definition, 7)) for definition in definitions)
    for name, values in one.items():
        assert numpy.array_equal(values, two[name])


def test_weight_made_in_pieces_is_that_of_one_stream():
    (_, values), *_ = generate_weights(OneParameter((PIECE_SIZE * 2 + 3,)), 7)
    expected = 2.0 + 0.5 * numpy.random.RandomState([7, *b"weight"]).standard_normal(values.size)
    assert numpy.array_equal(values, expected.astype(numpy.float32))


def test_weights_are_matched_with_the_parameters_of_their_names():
    matched = match_weights({"b": "B", "a": "A"}, [("a", 1), ("b", 2)])
    assert list(matched) == [("a", "A", 1), ("b", "B", 2)]
    with pytest.raises(ValueError, match="no weights for b, c"):
        list(match_weights({"a": "A", "b": "B", "c": "C"}, [("a", 1)]))
    with pytest.raises(KeyError, match="b"):
        list(match_weights({"a": "A"}, [("a", 1), ("b", 2)]))


class TwoWeights:
    """A session with two weights."""

    def __init__(self, parameter_count=4):
        self.parameter_count = parameter_count

    def read_weights(self):
        return {"a": numpy.float32([-1, 2]), "b": numpy.float32([[3, 0.5]])}


@pytest.mark.parametrize(
    ("changes", "parameters", "expected"),
    [
        ({"nodes": 2}, 4, 6.5),
        ({"nodes": 1, "devices_per_node": 1}, 4, 0),
        ({"nodes": 2, "gradient_sync": "sharded"}, 4, 0),
        ({"nodes": 2, "gradient_sync": "parameter_server"}, 4, 0),
        ({"nodes": 2, "mode": "infer"}, 4, 0),
        ({"nodes": 2}, MOST_SUMMED + 1, 0),
    ],
)
def test_weights_that_ranks_have_in_common_are_summed(changes, parameters, expected):
    assert sum_weights(vary(attempts.CASE, **changes), TwoWeights(parameters)) == expected


def test_weights_that_cannot_be_read_lose_no_measurement(capsys):
    session = TwoWeights()
    session.read_weights = None
    assert sum_weights(vary(attempts.CASE, nodes=2), session) == 0
    assert "were not compared" in capsys.readouterr().err
