"""What is particular to the MXNet adapter, with the real MXNet."""

import os
import resource
import subprocess
import sys

import pytest
from support import ports, sessions

from dlperf_slurm.worker.comm import find_free_port
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.optimizers import measure_norm

mx = pytest.importorskip("mxnet", reason="needs MXNet: dlperf-slurm env create mxnet")
numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

from dlperf_slurm.worker.frameworks.mxnet import parameters  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.distribution import SERVER  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.losses import compute_cross_entropy  # noqa: E402

ADAPTER = load_adapter("mxnet")
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(sessions.CHECKOUT), *sys.path])}


def make_case(model, **changes):
    return sessions.make_case("mxnet", model, **changes)


@pytest.mark.parametrize(
    ("model", "name", "distance"),
    [
        ("bert", "embeddings.word.weight", 0.01),
        ("bert", "layers.0.attention.value.weight", 0.01),
        ("resnet50", "stem.convolution.weight", 0.0005),
    ],
)
def test_gradient_is_the_slope_of_the_loss(model, name, distance):
    running = sessions.start(make_case(model))
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


def find_types_in_bfloat16():
    types = set()
    for model in ("bert", "resnet50"):
        running = sessions.start(make_case(model, precision="amp-bf16"))
        layer = running._model.next_sentence if model == "bert" else running._model.classifier
        layer.register_forward_hook(lambda block, inputs, output: types.add(str(output.dtype)))
        running.step()
    return types


def test_products_are_computed_in_bfloat16():
    types = sessions.run_elsewhere(find_types_in_bfloat16)
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
    running = sessions.start(make_case("bert"))
    running._batch["attention_mask"][:, -1] = 0
    outputs = []
    for token in (1, 2):
        running._batch["input_ids"][:, -1] = token
        outputs.append(running._model(*running._inputs)[1].asnumpy())
    assert numpy.array_equal(*outputs)


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
    assert reason in ADAPTER.find_unsupported(make_case("bert", **changes))


def exhaust_memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2)
    with pytest.raises(mx.MXNetError) as caught:
        mx.nd.add_n(*(mx.nd.ones((2**14, 2**14)) for _ in range(5))).wait_to_read()
    return ADAPTER.is_out_of_memory(caught.value)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    assert sessions.run_elsewhere(exhaust_memory) is True


def test_server_ends_when_its_rank_is_killed():
    """A scheduler alone: it listens until all have joined."""
    port = find_free_port()
    script = f"""if True:
        import os, subprocess, sys
        subprocess.run([sys.executable, "-m", "{SERVER}", str(os.getpid())])"""
    root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    sizes = {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    rank = subprocess.Popen([sys.executable, "-c", script], env={**ENV, **root, **sizes})
    ports.wait_until_listening(port, True)
    rank.kill()
    rank.wait()
    ports.wait_until_listening(port, False)
