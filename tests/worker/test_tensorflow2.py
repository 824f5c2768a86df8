"""The TensorFlow 2 adapter with the real TensorFlow: gradients, updates, precisions, two ranks."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlperf_slurm.contract import Case, write_json
from dlperf_slurm.worker.frameworks import Placement, load_adapter
from dlperf_slurm.worker.models import load_model

tf = pytest.importorskip(
    "tensorflow",
    reason="needs TensorFlow 2: dlperf-slurm env create tensorflow2",
    minversion="2.0",
)
numpy = pytest.importorskip("numpy")

from dlperf_slurm.worker.frameworks.tensorflow2 import bert as bert_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow2 import resnet50 as resnet50_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow2.parameters import count_parameters  # noqa: E402
from dlperf_slurm.worker.optimizers import make_optimizer  # noqa: E402
from dlperf_slurm.worker.weights import make_weights  # noqa: E402

ADAPTER = load_adapter("tensorflow2")
BUILDERS = {"bert": bert_builder, "resnet50": resnet50_builder}
SMALL = {
    "resnet50": {"image_size": 32, "stage_blocks": (1, 1, 1, 1), "width": 8, "classes": 10},
    "bert": {
        "sequence_length": 16,
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 64,
        "vocabulary_size": 200,
        "predictions_per_sequence": 5,
        "dropout": 0.0,
    },
}
MODELS = sorted(SMALL)
ALONE = Placement(
    rank=0, local_rank=0, world_size=1, host="here", master_address="127.0.0.1", master_port=0
)
CASE = Case(
    run_id="run",
    case_id="case",
    repeat=1,
    attempt=1,
    framework="tensorflow2",
    model="bert",
    model_parameters=SMALL["bert"],
    nodes=1,
    devices_per_node=1,
    device="cpu",
    cpus_per_rank=1,
    batch_size_per_device=4,
    precision="fp32",
    compiler="none",
    memory_format="default",
    distribution="native",
    clip_global_norm=False,
    warmup_steps=1,
    measured_steps=2,
    seed=7,
)
MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent) + os.pathsep + os.defpath)


DROPOUT = {"model_parameters": {**SMALL["bert"], "dropout": 0.5}}


def make_case(model, **changes):
    return replace(CASE, **{"model": model, "model_parameters": SMALL[model], **changes})


@pytest.fixture(scope="module", autouse=True)
def sessions():
    """Both models, for tests that leave the weights as they are.

    First of all: the threads of a process cannot be set once it has computed something.
    """
    return {model: ADAPTER.start(make_case(model), ALONE) for model in MODELS}


@pytest.mark.parametrize(("model", "count"), [("bert", 110_106_428), ("resnet50", 25_557_032)])
def test_full_size_has_the_definitions_parameters(model, count):
    built = BUILDERS[model].build_model(load_model(model).Definition(), tf.float32)
    assert count_parameters(built) == count


@pytest.mark.parametrize("model", MODELS)
def test_weights_come_back_as_they_were_loaded(sessions, model):
    weights = sessions[model].read_weights()
    expected = make_weights(load_model(model).Definition(**SMALL[model]), CASE.seed)
    assert list(weights) == list(expected)
    for name, values in expected.items():
        numpy.testing.assert_array_equal(weights[name], values)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert", "embeddings.word.weight"),
        ("bert", "layers.0.attention.value.weight"),
        ("bert", "layers.1.output_normalization.weight"),
        ("resnet50", "stem.convolution.weight"),
        ("resnet50", "blocks.2.spatial.convolution.weight"),
        ("resnet50", "blocks.1.shortcut.normalization.bias"),
    ],
)
def test_loss_changes_along_a_gradient_by_its_norm(sessions, model, name):
    running = sessions[model]
    variable, axes = running._parameters[name]
    gradient = running.compute_gradients()[name].transpose(axes)
    norm = numpy.linalg.norm(gradient)
    start = variable.numpy()
    # far enough for float32, near enough for the curvature
    distance = 2e-3 / norm
    losses = []
    for length in (distance, -distance):
        variable.assign(start + length * gradient / norm)
        losses.append(float(running._compute_loss(running._batch, training=True)))
    variable.assign(start)
    assert (losses[0] - losses[1]) / (2 * distance) == pytest.approx(norm, rel=0.02)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_clipped", [False, True])
def test_three_steps_follow_the_update_rule(model, is_clipped):
    running = ADAPTER.start(make_case(model, clip_global_norm=is_clipped), ALONE)
    rule = make_optimizer(load_model(model).Definition(**SMALL[model]), 4, is_clipped)
    first = running.read_weights()
    expected = {name: values.astype("float64") for name, values in first.items()}
    for _ in range(3):
        rule.update(expected, running.compute_gradients())
        running.step()
    for name, values in running.read_weights().items():
        moved, should_move = values - first[name], expected[name] - first[name]
        numpy.testing.assert_allclose(moved, should_move, rtol=1e-3, atol=3e-7, err_msg=name)


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_clip_scales_the_unscaled_gradient_to_norm_1(precision):
    running = ADAPTER.start(make_case("bert", precision=precision, clip_global_norm=True), ALONE)
    assert norm_of(running.compute_gradients().values()) > 1.2
    running.step()
    moments = norm_of(running._optimizer._first_moments)
    assert moments / (1 - running._definition.BETA1) == pytest.approx(1.0, rel=1e-3)


def norm_of(arrays):
    return math.sqrt(sum(float(numpy.square(numpy.asarray(a)).sum()) for a in arrays))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compiler", ADAPTER.COMPILERS)
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_loss_falls_over_20_steps_on_one_batch(model, compiler, precision):
    if (model, compiler) == ("resnet50", "xla") and precision != "fp32":
        pytest.skip("XLA compiles it for a quarter of a minute; BERT has these precisions")
    running = ADAPTER.start(make_case(model, compiler=compiler, precision=precision), ALONE)
    losses = []
    for _ in range(20):
        running.step()
        losses.append(running.read_loss())
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16"])
@pytest.mark.parametrize("model", MODELS)
def test_amp_computes_in_the_type_asked_for(model, precision):
    running = ADAPTER.start(make_case(model, precision=precision), ALONE)
    inputs = [running._batch[name] for name in BUILDERS[model].INPUTS]
    logits = running._model(*inputs, training=False)
    last = logits[0] if model == "bert" else logits
    assert last.dtype == {"amp-bf16": tf.bfloat16, "amp-fp16": tf.float16}[precision]


def test_overflow_skips_the_step_and_halves_the_scale():
    running = ADAPTER.start(make_case("bert", precision="amp-fp16"), ALONE)
    before = running.read_weights()
    running._loss_scale.value.assign(2.0**40)
    running.step()
    assert float(running._loss_scale.value) == 2.0**39
    for name, values in running.read_weights().items():
        numpy.testing.assert_array_equal(values, before[name])


@pytest.mark.parametrize("compiler", ADAPTER.COMPILERS)
def test_dropout_differs_from_step_to_step(compiler):
    running = ADAPTER.start(make_case("bert", compiler=compiler, **DROPOUT), ALONE)
    first, second = (running.compute_gradients()["pooler.weight"] for _ in range(2))
    assert (first != second).any()


def test_dropout_is_that_of_the_seed_and_the_rank():
    case = make_case("bert", **DROPOUT)
    first = ADAPTER.start(case, ALONE)
    first.step()
    second = ADAPTER.start(case, ALONE)
    second.step()
    assert first.read_loss() == second.read_loss()
    other = ADAPTER.start(case, replace(ALONE, rank=1))
    other._batch = first._batch
    other.step()
    assert other.read_loss() != first.read_loss()


def test_evaluation_changes_nothing_and_reads_the_running_statistics():
    running = ADAPTER.start(make_case("resnet50"), ALONE)
    before = running.evaluate_loss()
    assert running.evaluate_loss() == before
    running.compute_gradients()
    assert running.evaluate_loss() != before


def test_gradient_of_the_tied_embedding_is_dense(sessions):
    _, gradients = sessions["bert"]._differentiate(sessions["bert"]._batch)
    assert all(isinstance(gradient, tf.Tensor) for gradient in gradients)


def test_attention_does_not_read_masked_out_tokens(sessions):
    running = sessions["bert"]
    batch = {name: values.numpy() for name, values in running._batch.items()}
    batch["attention_mask"][:, -1] = 0
    outputs = []
    for token in (1, 2):
        batch["input_ids"][:, -1] = token
        inputs = [tf.constant(batch[name]) for name in bert_builder.INPUTS]
        outputs.append(running._model(*inputs, training=False)[1].numpy())
    numpy.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "gpt"}, "tensorflow2 has no model 'gpt'; it has: bert, resnet50"),
        ({"compiler": "jit"}, "tensorflow2 has no compiler 'jit'; it has: none, xla"),
        ({"memory_format": "channels_last"}, "'default', which is channels-last already: use that"),
        ({"precision": "tf32"}, "needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"),
    ],
)
def test_unsupported_case_is_refused_with_what_works(changes, reason):
    assert ADAPTER.find_unsupported(replace(CASE, **changes)).endswith(reason)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        tf.zeros([2**44])
    assert ADAPTER.is_out_of_memory(caught.value)


def test_wrong_shape_is_not_out_of_memory():
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
    assert not ADAPTER.is_out_of_memory(caught.value)


def test_session_says_what_ran_and_has_the_threads_asked_for(sessions):
    assert sessions["bert"].versions == {"tensorflow": tf.__version__}
    assert tf.config.threading.get_intra_op_parallelism_threads() == CASE.cpus_per_rank


@pytest.mark.skipif(MPIRUN is None, reason="needs mpirun beside this Python or on the system")
@pytest.mark.parametrize(("model", "distribution"), [("bert", "horovod"), ("resnet50", "native")])
def test_two_ranks_average_their_gradients(model, distribution, tmp_path):
    """Of the joined batch; of ResNet, whose normalization sees one rank's batch, the mean."""
    if distribution == "horovod" and find_spec("horovod") is None:
        pytest.skip("needs Horovod built for TensorFlow 2: dlperf-slurm env create tensorflow2")
    case = make_case(model, devices_per_node=2, distribution=distribution)
    write_json(tmp_path / "case.json", case)
    launcher = f"{MPIRUN} --allow-run-as-root --oversubscribe --bind-to none -np 2".split()
    subprocess.run(
        [*launcher, sys.executable, "-m", "dlperf_slurm.worker", "verify", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=True,
    )
    assert json.loads((tmp_path / "parity.json").read_text())["ranks"]["relative"] == 0
    if model == "bert":
        joined = make_case(model, batch_size_per_device=8)
        expected = ADAPTER.start(joined, ALONE).compute_gradients()
    else:
        own = [
            ADAPTER.start(make_case(model), replace(ALONE, rank=rank)).compute_gradients()
            for rank in range(2)
        ]
        expected = {name: (own[0][name] + own[1][name]) / 2 for name in own[0]}
    found = numpy.load(tmp_path / "gradients.npz")
    for name, values in expected.items():
        # some gradients are zero but for rounding
        numpy.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-6, err_msg=name)
