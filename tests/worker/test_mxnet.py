"""The MXNet adapter with the real MXNet: models, optimizers, precisions, distributions, memory."""

import math
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from dlperf_slurm.contract import CASE_FILE, PARITY_FILE, Case, Parity, read_json, write_json
from dlperf_slurm.worker import parity
from dlperf_slurm.worker.comm import find_free_port
from dlperf_slurm.worker.frameworks import Placement, load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.optimizers import make_optimizer, measure_norm
from dlperf_slurm.worker.weights import make_weights

mx = pytest.importorskip("mxnet", reason="needs MXNet: dlperf-slurm env create mxnet")
numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

from dlperf_slurm.worker.frameworks.mxnet import parameters  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.distribution import SERVER  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.losses import compute_cross_entropy  # noqa: E402

ADAPTER = load_adapter("mxnet")
CODE_DIR = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CODE_DIR), *sys.path])}
MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
SMALL = {
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
    "resnet50": {"image_size": 64, "stage_blocks": (1, 2, 1, 1), "width": 8, "classes": 10},
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
    framework="mxnet",
    model="bert",
    model_parameters=SMALL["bert"],
    nodes=1,
    devices_per_node=1,
    device="cpu",
    cpus_per_rank=1,
    batch_size_per_device=8,
    precision="fp32",
    compiler="none",
    memory_format="default",
    distribution="native",
    clip_global_norm=False,
    warmup_steps=1,
    measured_steps=2,
    seed=7,
)


def make_case(model, **changes):
    return replace(CASE, model=model, model_parameters=SMALL[model], **changes)


def take_losses(case, steps=20):
    running = ADAPTER.start(case, ALONE)
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.read_loss())
    return losses


def run_elsewhere(function):
    """In a process of its own, since AMP and limits are for a whole process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_full_size", [True, False])
def test_model_has_exactly_the_definitions_parameters(model, is_full_size):
    definition = load_model(model).Definition(**({} if is_full_size else SMALL[model]))
    built = import_module(f"dlperf_slurm.worker.frameworks.mxnet.{model}").build_model(definition)
    built.initialize(mx.init.Zero())
    found = parameters.find_parameters(built)
    assert parameters.count_parameters(found) == definition.parameter_count
    expected = {p.name: p.shape for p in definition.list_parameters()}
    assert {name: p.shape for name, p in found.items()} == expected


@pytest.mark.parametrize("model", MODELS)
def test_weights_are_read_as_they_were_loaded(model):
    case = make_case(model)
    expected = make_weights(load_model(model).Definition(**SMALL[model]), case.seed)
    parity.check_weights(ADAPTER.start(case, ALONE).read_weights(), expected)


@pytest.mark.parametrize(
    ("model", "name", "distance"),
    [
        ("bert", "embeddings.word.weight", 0.01),
        ("bert", "layers.0.attention.value.weight", 0.01),
        ("resnet50", "stem.convolution.weight", 0.0005),
    ],
)
def test_gradient_is_the_slope_of_the_loss(model, name, distance):
    running = ADAPTER.start(make_case(model), ALONE)
    weights = running.read_weights()
    gradient = running.compute_gradients()[name]
    norm = measure_norm([gradient])
    losses = []
    for move in (distance, -distance):
        moved = weights[name] + move * gradient / norm
        parameters.load_weights(running._parameters, {**weights, name: moved}.items())
        running.compute_gradients()
        losses.append(running.read_loss())
    assert (losses[0] - losses[1]) / (2 * distance) == pytest.approx(norm, rel=0.02)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_clipped", [False, True])
def test_steps_follow_the_models_update_rule(model, is_clipped):
    case = make_case(model, clip_global_norm=is_clipped)
    running = ADAPTER.start(case, ALONE)
    initial = running.read_weights()
    expected = {name: values.astype("float64") for name, values in initial.items()}
    optimizer = make_optimizer(
        load_model(model).Definition(**SMALL[model]), case.global_batch_size, is_clipped
    )
    for _ in range(3):
        gradients = running.compute_gradients()
        assert measure_norm(gradients.values()) > 1.2
        optimizer.update(expected, gradients)
        running.step()
    found = parity.find_update_difference(initial, running.read_weights(), expected)
    assert found.relative < 1e-6, found
    used = measure_norm(p.grad().asnumpy() for p in running._parameters.values())
    assert used == pytest.approx(1.0, rel=1e-5) if is_clipped else used > 1.2


@pytest.mark.parametrize("model", MODELS)
def test_hybridized_steps_equal_eager_ones_and_the_loss_falls(model):
    eager, compiled = (
        take_losses(make_case(model, compiler=compiler)) for compiler in ADAPTER.COMPILERS
    )
    assert compiled[:4] == pytest.approx(eager[:4], rel=1e-3)
    assert eager[-1] < eager[0] - 0.1
    assert compiled[-1] < compiled[0] - 0.1


def take_bfloat16_losses():
    losses, types = {}, set()
    for model in MODELS:
        for compiler in ADAPTER.COMPILERS:
            case = make_case(model, compiler=compiler, precision="amp-bf16")
            losses[model, compiler] = take_losses(case)
        running = ADAPTER.start(make_case(model, precision="amp-bf16"), ALONE)
        layer = running._model.next_sentence if model == "bert" else running._model.classifier
        layer.register_forward_hook(lambda block, inputs, output: types.add(str(output.dtype)))
        running.step()
    return losses, types


def test_loss_falls_in_bfloat16_which_products_are_computed_in():
    losses, types = run_elsewhere(take_bfloat16_losses)
    for case, values in losses.items():
        assert all(map(math.isfinite, values)), case
        assert values[-1] < values[0] - 0.1, case
    assert ["bfloat16" in name for name in types] == [True]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_that_of_numpy_also_for_large_logits(smoothing):
    random = numpy.random.RandomState(0)
    logits = 100 * random.standard_normal((16, 5))
    labels = random.randint(0, 5, 16)
    target = numpy.full((16, 5), smoothing / 5) + (1 - smoothing) * numpy.eye(5)[labels]
    logarithms = logits - numpy.logaddexp.reduce(logits, axis=1, keepdims=True)
    found = compute_cross_entropy(mx.nd.array(logits), mx.nd.array(labels), smoothing)
    assert float(found.asscalar()) == pytest.approx(-(target * logarithms).sum(1).mean(), rel=1e-6)


def test_attention_does_not_read_masked_out_tokens():
    running = ADAPTER.start(make_case("bert"), ALONE)
    running._batch["attention_mask"][:, -1] = 0
    outputs = []
    for token in (1, 2):
        running._batch["input_ids"][:, -1] = token
        outputs.append(running._model(*running._inputs)[1].asnumpy())
    assert numpy.array_equal(*outputs)


def test_dropout_is_for_training_only_and_differs_between_ranks():
    case = replace(CASE, model_parameters={**SMALL["bert"], "dropout": 0.5})
    losses, draws = [], []
    for rank in range(2):
        running = ADAPTER.start(case, replace(ALONE, rank=rank))
        draws.append(float(mx.nd.random.uniform().asscalar()))
        losses.append(running.evaluate_loss())
        assert running.evaluate_loss() == losses[rank]
    running.step()
    assert running.read_loss() != losses[1]
    assert draws[0] != draws[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory_format": "channels_last"}, "no memory_format 'channels_last'; it has: default"),
        ({"precision": "amp-fp16"}, "needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"),
        ({"precision": "tf32"}, "needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"),
        ({"precision": "amp-bf16", "device": "cuda"}, "on GPUs use 'amp-fp16'"),
        ({"precision": "tf32", "device": "cuda"}, "use 'fp32' or 'amp-fp16' for 'bert'"),
    ],
)
def test_unsupported_case_is_refused_with_what_works(changes, reason):
    assert reason in ADAPTER.find_unsupported(replace(CASE, **changes))


def exhaust_memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2)
    with pytest.raises(mx.MXNetError) as caught:
        mx.nd.add_n(*(mx.nd.ones((2**14, 2**14)) for _ in range(5))).wait_to_read()
    return ADAPTER.is_out_of_memory(caught.value)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    assert run_elsewhere(exhaust_memory) is True


@pytest.mark.skipif(MPIRUN is None, reason="needs mpirun beside this Python or on the system")
@pytest.mark.parametrize(("model", "distribution"), [("bert", "horovod"), ("resnet50", "native")])
def test_two_ranks_average_their_gradients(model, distribution, tmp_path):
    """Of the joined batch; of ResNet, whose normalization sees one rank's batch, the mean."""
    if distribution == "horovod":
        pytest.importorskip("horovod.mxnet", reason="needs Horovod built for MXNet")
    case = make_case(model, devices_per_node=2, distribution=distribution)
    write_json(tmp_path / CASE_FILE, case)
    mpirun = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
    subprocess.run(
        [*mpirun, sys.executable, "-m", "dlperf_slurm.worker", "verify", str(tmp_path)],
        env=ENV,
        timeout=120,
        check=True,
    )
    result = read_json(tmp_path / PARITY_FILE, Parity)
    assert result.ranks.relative == 0
    assert result.updates.relative < 1e-6
    cases = [(make_case(model), replace(ALONE, rank=rank)) for rank in range(2)]
    if model == "bert":
        cases = [(make_case(model, batch_size_per_device=16), ALONE)]
    own = [ADAPTER.start(*arguments).compute_gradients() for arguments in cases]
    expected = {name: sum(g[name] for g in own) / len(own) for name in own[0]}
    gradients = parity.read_arrays(tmp_path / parity.GRADIENTS_FILE)
    found = parity.find_difference(gradients, expected)
    assert found.relative < 1e-4, found


def test_server_ends_when_its_rank_is_killed():
    """A scheduler alone: it listens until all have joined."""
    port = find_free_port()
    script = f"""if True:
        import os, subprocess, sys
        subprocess.run([sys.executable, "-m", "{SERVER}", str(os.getpid())])"""
    root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    sizes = {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    rank = subprocess.Popen([sys.executable, "-c", script], env={**ENV, **root, **sizes})
    wait_until_listening(port, True)
    rank.kill()
    rank.wait()
    wait_until_listening(port, False)


def wait_until_listening(port, is_expected):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", port)) == 0) == is_expected:
                return
        time.sleep(0.05)
    pytest.fail(f"port {port} stayed as it was")
