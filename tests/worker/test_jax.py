"""Tests of what is particular to the JAX adapter, with the real JAX."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support import sessions

from dlperf_slurm.worker.attempt import describe_compilation
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.weights import generate_weights

jax = pytest.importorskip("jax", reason="needs JAX: dlperf-slurm env create jax")
numpy = pytest.importorskip("numpy")

from jax import numpy as jnp  # noqa: E402
from jax._src.cudnn import fused_attention_stablehlo  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from dlperf_slurm.worker.determinism import XLA_FLAG, XLA_LACK  # noqa: E402
from dlperf_slurm.worker.frameworks.jax import (  # noqa: E402
    compilation_cache,
    device,
    forward,
    layers,
    session,
    sharding,
)
from dlperf_slurm.worker.frameworks.jax.compilation_cache import CompilationCache  # noqa: E402
from dlperf_slurm.worker.frameworks.jax.loader import prepare_batch  # noqa: E402
from dlperf_slurm.worker.frameworks.jax.training import Training, clip_gradients  # noqa: E402
from dlperf_slurm.worker.work import Work  # noqa: E402

ADAPTER = load_adapter("jax")
# sharded axes by name: none
WHOLE = dict.fromkeys("ab")
MODELS = ADAPTER.SUPPORTED["model"]
COUNT_THREADS = """
from pathlib import Path
from types import SimpleNamespace
from dlperf_slurm.worker.frameworks.jax import device
case = SimpleNamespace(device="cpu", cpus_per_rank=3, axes=SimpleNamespace(precision="fp32"))
device.configure_devices(case, None)
device.jax.devices()
print(sum("XLAEigen" in path.read_text() for path in Path("/proc/self/task").glob("*/comm")))
"""


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory):
    """Share a compilation cache between tests and their processes."""
    with pytest.MonkeyPatch.context() as patch:
        # most of a test's time is LLVM's; results stay the same
        patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        for name, value in (
            ("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled"))),
            ("jax_persistent_cache_min_compile_time_secs", 0),
        ):
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield
        jax.config.update("jax_compilation_cache_dir", None)


def make_case(model, **changes):
    return sessions.make_case("jax", model, **changes)


def test_gradients_above_the_norm_are_clipped_also_in_float16():
    """Clip gradients whose squares are beyond float16, and leave those below the norm."""
    gradients = {"a": jnp.full(3, 3000.0, jnp.float16), "b": jnp.full((1,), 3000.0, jnp.float16)}
    assert numpy.allclose(clip_gradients(gradients, 1.0, WHOLE)["a"], 0.5, rtol=1e-2)
    assert numpy.array_equal(clip_gradients(gradients, 12000.0, WHOLE)["a"], gradients["a"])


def test_step_whose_scaled_gradients_overflow_is_skipped_and_halves_the_scale(monkeypatch):
    monkeypatch.setattr(forward, "INITIAL_SCALE", 2.0**60)
    case = make_case("bert", precision="amp-fp16", clip_global_norm=True)
    running = sessions.start(case)
    for _ in range(2):
        running.step()
    assert running._state.loss_scale.scale == 2.0**58
    assert running._state.optimizer["step"] == 0
    for name, values in generate_weights(sessions.make_definition(case), case.seed):
        assert numpy.array_equal(running._state.weights[name], values)


def test_pure_precision_keeps_weights_and_optimizer_in_its_type():
    running = sessions.start(make_case("vit", precision="bf16", optimizer="adamw"))
    running.step()
    state = running._state
    kept = [state.weights, state.optimizer["first"], state.optimizer["second"]]
    assert {each.dtype for each in jax.tree.leaves(kept)} == {jnp.dtype(jnp.bfloat16)}


def test_loaded_images_are_a_copy_in_the_layout_of_the_case():
    case = make_case("resnet50", memory_format="channels_last", data="host")
    running = sessions.start(case)
    batch = make_batch(sessions.make_definition(case), 4, case.seed, 1)
    expected = batch["images"].transpose(0, 2, 3, 1)
    staged = running.stage(batch)
    running.load(staged)
    images = running._batch["images"]
    assert numpy.array_equal(images, expected)
    pointers = {array.unsafe_buffer_pointer() for array in (images, staged["images"])}
    assert len(pointers) == 2


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        jnp.zeros(2**50, jnp.uint8).block_until_ready()
    assert is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


def test_xla_computes_with_as_many_threads_as_the_rank_has_cpus():
    found = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS],
        env={**os.environ, "PYTHONPATH": str(sessions.CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["3"]


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [("3", None, 0), ("0,1,2,3", None, 2), (None, 1, 0), (None, 4, 2)],
)
def test_rank_chooses_by_its_local_rank_among_the_gpus_that_it_sees(
    monkeypatch, visible, count, expected
):
    """CUDA_VISIBLE_DEVICES says which, or else the driver in a container."""
    nvml = SimpleNamespace(nvmlDeviceGetCount=lambda: count, NVMLError=RuntimeError)
    monkeypatch.setattr(device, "load_nvml", lambda: nvml if count else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device.choose_gpu(replace(sessions.ALONE, local_rank=2)) == expected


def lower_step(case, platform="cpu"):
    """Return a training step's StableHLO, without compiling it, and the name of its attention."""
    device.configure_devices(case, sessions.ALONE)
    work = Work(case, sessions.ALONE, ADAPTER.__name__)
    mesh = device.make_mesh(sessions.ALONE)
    weights, axes = session.place_weights(case, work, mesh)
    passes = forward.Forward(case, work, axes)
    training = Training(case, work, passes, mesh, axes)
    state = session.make_state(case, work, mesh, weights)
    state = state._replace(
        optimizer=jax.eval_shape(training.initialize_optimizer, state.weights),
        learning_rate=jnp.float32(1.0),
    )
    batch = prepare_batch(work.make_batch(), layers.LAYOUTS["default"][0], work.classes)
    lowered = training.step.trace(state, batch).lower(lowering_platforms=(platform,))
    return lowered.as_text(), passes.describe_attention()


def list_products(text):
    """List (operand type, precision) of all matrix products and convolutions.

    An algorithm, which JAX's attention asks for, names types of its own.
    """
    found = set()
    for line in text.splitlines():
        if re.search(r"stablehlo\.(dot_general|convolution)", line):
            operands, _, _ = line.rpartition(" : (")[2].partition(") ->")
            own = re.findall(r"[lr]hs_precision_type = (\w+)", line)
            types = own or re.findall(r"(?:x|<)([a-z]+\d+)>", operands)
            precisions = re.findall("HIGHEST|HIGH|DEFAULT", line)
            found |= set(itertools.product(types, precisions))
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", {("f32", "HIGHEST")}),
        # float32 with XLA's default precision, which is TF32 on GPUs
        ("tf32", {("f32", "DEFAULT")}),
        ("amp-bf16", {("bf16", "DEFAULT")}),
    ],
)
def test_all_products_of_a_step_are_of_the_precision_of_the_case(model, precision, expected):
    case = make_case(model, precision=precision, clip_global_norm=True)
    try:
        text, _ = lower_step(case)
        assert list_products(text) == expected
    finally:
        jax.config.update("jax_default_matmul_precision", None)


@pytest.mark.parametrize(
    ("model", "precision"), [("bert", "amp-bf16"), ("llama", "bf16"), ("vit", "amp-fp16")]
)
def test_attention_is_one_kernel_of_cudnn_per_layer_where_that_is_chosen(
    cudnn, monkeypatch, model, precision
):
    monkeypatch.setattr(forward, "choose_attention", lambda *asked: (layers.CUDNN, ""))
    case = sessions.make_case("jax", model, precision=precision)
    text, name = lower_step(case, "cuda")
    for kernel in ("__cudnn$fmhaSoftmax(", "__cudnn$fmhaSoftmaxBackward("):
        assert text.count(kernel) == case.model_parameters["layers"]
    assert name == "cuDNN"


@pytest.fixture
def cudnn(monkeypatch):
    """Make JAX find a GPU and cuDNN in what it asks for when it traces a step."""
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(fused_attention_stablehlo, "check_compute_capability", lambda least: True)


@pytest.mark.parametrize(
    ("model", "changes", "expected"),
    [
        ("llama", {"precision": "amp-bf16", "device": "cuda"}, "cuDNN is not detected."),
        ("llama", {"device": "cuda"}, ""),
        ("llama", {"precision": "amp-bf16"}, ""),
        ("resnet50", {"precision": "amp-bf16", "device": "cuda"}, ""),
    ],
)
def test_attention_is_xlas_where_cudnn_has_none_and_says_why(model, changes, expected):
    case = sessions.make_case("jax", model, **changes)
    work = Work(case, sessions.ALONE, ADAPTER.__name__)
    compute_type = forward.COMPUTE_TYPES.get(case.axes.precision, jnp.float32)
    attention, lack = forward.choose_attention(case, work, compute_type)
    assert attention == layers.XLA
    assert lack.rpartition("fails: ")[2] == expected


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_attention_is_xlas_if_training_has_to_be_deterministic(cudnn, monkeypatch, mode):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=x {XLA_FLAG}")
    case = sessions.make_case("jax", "llama", device="cuda", precision="bf16", mode=mode)
    work = Work(case, sessions.ALONE, ADAPTER.__name__)
    attention, lack = forward.choose_attention(case, work, jnp.bfloat16)
    is_found = (attention, lack) == (layers.XLA, f", because {XLA_LACK}")
    assert is_found == (mode == "train")


@pytest.mark.parametrize("length", [6, 7])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_over_a_padded_length_is_that_over_the_length(length, is_causal):
    arrays = [jax.random.normal(jax.random.key(i), (2, length, 3, 8)) for i in range(3)]

    def differentiate(attend):
        def weigh(*arrays):
            y = attend(*arrays, is_causal=is_causal, implementation="xla")
            return (y * jnp.arange(y.size).reshape(y.shape)).sum()

        return jax.value_and_grad(weigh, (0, 1, 2))(*arrays)

    found = jax.tree.leaves(differentiate(layers.attend_evenly))
    for one, expected in zip(found, jax.tree.leaves(differentiate(jax.nn.dot_product_attention))):
        numpy.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_only_checkpointed_blocks_are_kept_from_being_computed_once(is_checkpointed):
    case = sessions.make_case("jax", "llama", activation_checkpointing=is_checkpointed)
    running = sessions.start(case)
    text = running._training.step.lower(running._state, running._batch).as_text()
    assert ("optimization_barrier" in text) == is_checkpointed


def test_matrices_are_split_by_their_first_even_axis_and_vectors_stay_whole():
    case = sessions.make_case("jax", "llama", devices_per_node=2, gradient_sync="sharded")
    shapes = {"a": (6, 3), "b": (3, 4), "c": (3, 5), "d": (8,)}
    axes = {name: sharding.find_split_axis(case, shape) for name, shape in shapes.items()}
    assert axes == {"a": 0, "b": 1, "c": None, "d": None}
    assert sharding.make_specs(axes)["b"] == P(None, "ranks")


@pytest.mark.parametrize("gathered_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("kind", "scattering"), [("cpu", False), ("cuda", True)])
def test_gradient_of_gathered_parts_is_summed_without_the_reduce_scatter_of_gloo(
    kind, scattering, axis, gathered_type
):
    case = sessions.make_case(
        "jax", "llama", devices_per_node=2, gradient_sync="sharded", device=kind
    )
    gradients, expected, text = sessions.run_elsewhere(
        differentiate_gathered, case, axis, gathered_type
    )
    assert numpy.allclose(gradients, expected, rtol=1e-6)
    assert ("reduce_scatter" in text) == scattering
    # the sum is in the weight's type, whatever type was gathered
    summed = re.search(r"(?:reduce_scatter|all_to_all).*?->\s*tensor<[0-9x]+(\w+)>", text, re.S)
    gathered = re.search(r"all_gather.*?->\s*tensor<[0-9x]+(\w+)>", text, re.S)
    assert (summed[1], gathered[1]) == ("f32", "bf16" if gathered_type == "bfloat16" else "f32")


def differentiate_gathered(case, axis, gathered_type):
    """Return a matrix's gradients over two devices, the expected ones, and the program's text."""
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), (device.RANKS,))
    gather = sharding.choose_gather(case)
    random = numpy.random.default_rng(1)
    matrix = random.normal(size=(4, 6)).astype("float32")
    factors = random.normal(size=(2, 4, 6)).astype("float32")
    if gathered_type == "bfloat16":
        # each is exact in bfloat16, their sum is not
        factors[0], factors[1] = numpy.sign(factors[0]), 1 + 2.0**-7

    def differentiate(part, factor):
        # the sum is of no interest, but its gathering is in the program
        total, gradient = jax.value_and_grad(
            lambda p: (gather(p, axis, gathered_type) * factor[0]).sum()
        )(part)
        return total[None], gradient

    split = P(*[None] * axis, device.RANKS)
    mapped = jax.shard_map(
        differentiate,
        mesh=mesh,
        in_specs=(split, P(device.RANKS)),
        out_specs=(P(device.RANKS), split),
    )
    program = jax.jit(mapped).lower(matrix, factors)
    gradients = numpy.asarray(program.compile()(matrix, factors)[1])
    return gradients, factors.sum(0), program.as_text()


@pytest.mark.parametrize(("stats", "peak"), [(None, 0), ({}, 0), ({"peak_bytes_in_use": 7}, 7)])
def test_allocator_of_a_gpu_that_counts_nothing_has_no_peak(stats, peak):
    running = sessions.start(make_case("bert"))
    running._device = SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    assert running.read_peak_memory_bytes() == peak


@pytest.mark.parametrize("gathered_type", ["float32", "bfloat16"])
def test_whole_weights_are_gathered_again_instead_of_kept(gathered_type):
    case = sessions.make_case("jax", "llama", devices_per_node=2, gradient_sync="sharded")
    text = sessions.run_elsewhere(differentiate_chain, case, gathered_type)
    # three by the forward pass; the backward pass does not need the first one
    assert text.count("stablehlo.all_gather") == 5


def differentiate_chain(case, gathered_type):
    """Return the text of a program for the gradients of three matrices, split over two devices."""
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), (device.RANKS,))
    gather = sharding.choose_gather(case)
    parts = dict.fromkeys("abc", numpy.ones((8, 8), numpy.float32))

    def compute(parts, x):
        weights = sharding.GatheredWeights(parts, dict.fromkeys(parts, 0), gather)
        for name in weights:
            x = jnp.sin(x @ weights.read_as(name, x.dtype))
        return x.sum()

    split = dict.fromkeys(parts, P(device.RANKS))
    mapped = jax.shard_map(
        jax.grad(sharding.gather_again(compute)),
        mesh=mesh,
        in_specs=(split, P(device.RANKS)),
        out_specs=split,
    )
    return jax.jit(mapped).lower(parts, numpy.ones((4, 8), gathered_type)).as_text()


def start_with_cache(cache_home):
    """Return what a record says of a session's compilation, and its loss."""
    os.environ["XDG_CACHE_HOME"] = str(cache_home)
    # not that of the tests
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    case = make_case("bert")
    device.configure_devices(case, sessions.ALONE)
    cache = CompilationCache()
    running = session.JaxSession(case, sessions.ALONE, device.make_mesh(sessions.ALONE), cache)
    running.step()
    return describe_compilation(running), running.read_loss()


def test_second_session_takes_its_programs_from_a_private_cache(tmp_path):
    first, second = (sessions.run_elsewhere(start_with_cache, tmp_path) for _ in range(2))
    assert (first[0], second[0]) == ({"compilation": "compiled"}, {"compilation": "cached"})
    assert first[1] == second[1]
    folder = tmp_path / "dlperf-slurm" / "jax"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700] * 2


def find_cache(cache_home, chosen):
    os.environ["XDG_CACHE_HOME"] = str(cache_home)
    jax.config.update("jax_compilation_cache_dir", chosen)
    CompilationCache()
    return jax.config.jax_compilation_cache_dir


def test_cache_is_the_users_choice_or_else_private_or_none(tmp_path):
    assert sessions.run_elsewhere(find_cache, tmp_path, "chosen") == "chosen"
    own = tmp_path / "dlperf-slurm"
    assert sessions.run_elsewhere(find_cache, tmp_path, None) == str(own / "jax")
    own.chmod(0o770)
    assert sessions.run_elsewhere(find_cache, tmp_path, None) is None


def test_cache_keeps_its_latest_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compilation_cache, "MOST_ENTRIES", 2)
    folder = compilation_cache.make_folder()
    for name, modified in (("old", 8), ("older", 7), ("new", 9), ("oldest", 6)):
        (folder / name).touch()
        os.utime(str(folder / name), (0, modified))
    compilation_cache.make_folder()
    assert sorted(path.name for path in folder.iterdir()) == ["new", "old"]


def test_session_on_cpus_has_no_cache(monkeypatch):
    monkeypatch.setattr(session, "JaxSession", lambda *arguments: arguments[-1])
    assert sessions.start(make_case("bert")) is None
    assert describe_compilation(SimpleNamespace(compilation="")) == {}
