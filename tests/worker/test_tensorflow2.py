"""Tests of what is particular to the TensorFlow 2 adapter, with the real TensorFlow."""

import math
from collections import Counter

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.servers import Cluster

tf = pytest.importorskip(
    "tensorflow",
    reason="needs TensorFlow 2: dlperf-slurm env create tensorflow2",
    minversion="2.0",
)
numpy = pytest.importorskip("numpy")

from dlperf_slurm.worker.frameworks.tensorflow.parameter_servers import (  # noqa: E402
    ServerGraph,
    format_server_device,
)
from dlperf_slurm.worker.frameworks.tensorflow2 import device, training  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow2.parameter_servers import make_weights  # noqa: E402

ADAPTER = load_adapter("tensorflow2")
MODELS = ADAPTER.SUPPORTED["model"]
DROPOUT = {"model_parameters": {**sessions.SMALL["bert"], "dropout": 0.5}}


def make_case(model, **changes):
    return sessions.make_case("tensorflow2", model, **changes)


@pytest.fixture(scope="module", autouse=True)
def started():
    """Start a session per model, for tests that do not change the weights.

    It must come first: threads cannot be set once the process has computed something.
    """
    return {model: sessions.start(make_case(model)) for model in MODELS}


def test_clip_scales_the_unscaled_gradient_to_norm_1():
    running = sessions.start(make_case("bert", precision="amp-fp16", clip_global_norm=True))
    assert norm_of(running.compute_gradients().values()) > 1.2
    running.step()
    moments = norm_of(running._training.optimizer._first_moments)
    assert moments / (1 - running._work.definition.RULE.betas[0]) == pytest.approx(1.0, rel=1e-3)


def norm_of(arrays):
    return math.sqrt(sum(float(numpy.square(numpy.asarray(a)).sum()) for a in arrays))


@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16"])
@pytest.mark.parametrize("model", MODELS)
def test_amp_computes_in_the_type_asked_for(model, precision):
    running = sessions.start(make_case(model, precision=precision))
    inputs = [running._batch[name] for name in load_model(model).INPUTS]
    logits = running._model(*inputs, training=False)
    last = logits[0] if model == "bert" else logits
    assert last.dtype == {"amp-bf16": tf.bfloat16, "amp-fp16": tf.float16}[precision]


def test_overflow_skips_the_step_and_halves_the_scale():
    running = sessions.start(make_case("bert", precision="amp-fp16"))
    before = running.read_weights()
    running._training.loss_scale.value.assign(2.0**40)
    running.step()
    assert float(running._training.loss_scale.value) == 2.0**39
    for name, values in running.read_weights().items():
        numpy.testing.assert_array_equal(values, before[name])


def test_compiled_update_has_no_variable_that_gpus_do_not_hold():
    running = sessions.start(make_case("bert", precision="amp-fp16", compiler="xla"))
    training = running._training
    _, gradients = training.differentiate(running._batch)
    update = training._update.get_concrete_function(gradients)
    assert training.loss_scale._finite_steps.dtype in {v.dtype for v in update.graph.variables}
    assert tf.int32 not in {v.dtype for v in update.graph.variables}


def test_scale_doubles_after_enough_finite_steps(monkeypatch):
    monkeypatch.setattr(training.LossScale, "GROWTH_STEPS", 2)
    running = sessions.start(make_case("bert", precision="amp-fp16", compiler="xla"))
    initial = running._training.loss_scale.value.numpy()
    scales = []
    for _ in range(4):
        running.step()
        scales.append(float(running._training.loss_scale.value) / initial)
    assert scales == [1, 2, 2, 4]


@pytest.mark.parametrize("compiler", ADAPTER.SUPPORTED["compiler"])
def test_dropout_differs_from_step_to_step(compiler):
    running = sessions.start(make_case("bert", compiler=compiler, **DROPOUT))
    first, second = (running.compute_gradients()["pooler.weight"] for _ in range(2))
    assert (first != second).any()


def test_gradient_of_the_tied_embedding_is_dense(started):
    _, gradients = started["bert"]._training.differentiate(started["bert"]._batch)
    assert all(isinstance(gradient, tf.Tensor) for gradient in gradients)


def test_weights_are_spread_over_the_servers_by_their_bytes(started):
    own = [variable for variable, _ in started["bert"]._parameters.values()]
    cluster = Cluster(("a:1", "b:1"), ("a:2", "b:2"), 1, "b:1")
    graph = ServerGraph(cluster, "/device:CPU:0")
    with tf.Graph().as_default():
        weights = make_weights(graph, own)
    assert [weight.shape for weight in weights] == [variable.shape for variable in own]
    scalars = Counter()
    for weight in weights:
        scalars[weight.device] += weight.shape.num_elements()
    assert sorted(scalars) == [format_server_device(task) for task in range(2)]
    assert max(scalars.values()) < 1.1 * min(scalars.values())


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("bert", {"precision": "amp-fp16", "loss_scale": 128}),
        ("bert", {"compiler": "xla"}),
        ("resnet50", {"optimizer": "sgd"}),
    ],
)
def test_one_rank_with_a_server_trains_as_one_without(model, changes):
    case = make_case(model, clip_global_norm=True, **changes)
    served = vary(case, gradient_sync="parameter_server")
    losses = sessions.run_elsewhere(sessions.take_losses, served, 4)
    assert losses == pytest.approx(sessions.take_losses(case, 4), rel=1e-4)


def test_loaded_batch_is_a_copy(started):
    running = started["resnet50"]
    staged = tf.ones([4, 64, 64, 3])
    copied = running._copy(staged)
    assert copied.numpy().ctypes.data != staged.numpy().ctypes.data


def test_pipeline_says_what_went_wrong_with_a_sample(started):
    order = [[(0, 0), (0, 3), (0, 2), (0, 1)]]
    with pytest.raises(DataError, match="sample 3 is broken"):
        list(started["resnet50"].open_pipeline(BrokenSamples(), order))


class BrokenSamples:
    def read_sample(self, index, epoch):
        if index == 3:
            raise DataError("sample 3 is broken")
        return {"labels": numpy.int64(index)}


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        tf.zeros([2**44])
    assert is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


def test_session_says_what_ran_and_has_the_threads_asked_for(started):
    assert started["bert"].versions == {"tensorflow": tf.__version__}
    assert tf.config.threading.get_intra_op_parallelism_threads() == make_case("bert").cpus_per_rank


@pytest.mark.parametrize(("precision", "is_on"), [("tf32", True), ("fp32", False)])
def test_tf32_is_on_for_tf32_alone(precision, is_on):
    device.set_up(make_case("resnet50", precision=precision), sessions.ALONE)
    try:
        assert tf.config.experimental.tensor_float_32_execution_enabled() == is_on
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(False)


def test_clock_of_gpus_reads_each_loss_behind_its_step(monkeypatch):
    running = sessions.start(make_case("bert"))
    monkeypatch.setattr(running, "_is_gpu", True)
    clock = running.make_clock(4)
    clock.mark(0)
    for index in range(1, 4):
        running.step()
        clock.mark(index)
    assert clock.name == "completion"
    assert len(clock.read_ended_seconds(3)) == 3
    assert all(0 < value < 10 for value in clock.read_step_seconds())
