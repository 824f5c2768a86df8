"""Tests of what is particular to the PyTorch adapter, with the real torch."""

import math
from importlib import import_module

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.work import UNFUSED

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
torch = pytest.importorskip(
    "torch",
    reason="needs PyTorch: pip install torch --index-url https://download.pytorch.org/whl/cpu",
)

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from dlperf_slurm.worker.frameworks.pytorch import session  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch.blocks import shard  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch.training import (  # noqa: E402
    clip_gradients,
)

ADAPTER = load_adapter("pytorch")
NO_ENGINE = "FIND was unable to find an engine to execute this computation"
LAST_LAYERS = {
    "bert": "next_sentence",
    "llama": "head",
    "resnet50": "classifier",
    "vit": "classifier",
}
SMALL = {**sessions.SMALL, "resnet50": {**sessions.SMALL["resnet50"], "image_size": 32}}
MODELS = sorted(SMALL)
CASE = sessions.make_case("pytorch", "bert")
HAS_CUDA = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU")


def make_case(model, **changes):
    return vary(CASE, model=model, model_parameters=SMALL[model], **changes)


def build_model(model, definition):
    builder = import_module(f"dlperf_slurm.worker.frameworks.pytorch.{model}")
    return builder.Model(definition)


def measure_gradient_norm(running):
    # a fused optimizer leaves the gradients without the loss scale
    gradients = [parameter.grad for parameter in running._model.parameters()]
    return float(torch.nn.utils.get_total_norm(gradients))


@pytest.mark.parametrize("mode", [TRAIN, INFER])
@pytest.mark.parametrize(
    ("model", "parameters", "kernel"),
    [
        ("llama", {}, "flash_attention_for_cpu"),
        ("bert", {"dropout": 0.5}, UNFUSED),
        ("resnet50", {}, ""),
    ],
)
def test_kernel_of_attention_is_the_one_that_is_taken(mode, model, parameters, kernel):
    case = vary(make_case(model, mode=mode), model_parameters={**SMALL[model], **parameters})
    running = sessions.start(case)
    # torch's CPU kernel does not support dropout, which BERT has in training only
    expected = "flash_attention_for_cpu" if model == "bert" and mode == INFER else kernel
    assert running.describe_attention() == expected


def measure_saved_bytes(is_checkpointed):
    running = sessions.start(make_case("llama", activation_checkpointing=is_checkpointed))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.nbytes) or tensor, lambda tensor: tensor
    ):
        running._model(*running._inputs)
    return sum(saved)


def test_checkpointed_blocks_keep_less_for_the_backward_pass():
    assert measure_saved_bytes(True) < 0.5 * measure_saved_bytes(False)


def test_each_rank_has_its_part_of_sharded_parameters():
    assert sessions.run_elsewhere(count_own_values) == (4 * 3 + 8 * 4, 8 * 3 + 16 * 4)


def count_own_values():
    """Return how many values the first of two ranks keeps, and how many there are in all."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 8, bias=False), torch.nn.Linear(4, 16, bias=False)
    )
    shard(model, torch.device("cpu"))
    parameters = list(model.parameters())
    return sum(p.to_local().numel() for p in parameters), sum(p.numel() for p in parameters)


def test_channels_last_is_the_layout_on_the_device_and_not_of_arrays():
    running = sessions.start(make_case("resnet50", memory_format="channels_last"))
    name = "blocks.0.spatial.convolution.weight"
    for arrays in (running.read_weights(), running.compute_gradients()):
        assert arrays[name].shape == (8, 8, 3, 3)
        assert arrays[name].flags["C_CONTIGUOUS"]
    for tensor in (running._inputs[0], running._model.blocks[0].spatial.convolution.weight):
        assert tensor.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("fp32", torch.float32), ("amp-bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_batches_are_staged_in_the_precision_of_the_step(precision, expected):
    running = sessions.start(make_case("resnet50", mode=INFER, precision=precision))
    images = numpy.full((8, 3, 32, 32), 1 / 3, numpy.float32)
    labels = numpy.zeros(8, numpy.int64)
    staged = running.stage({"images": images, "labels": labels})
    assert (staged["images"].dtype, staged["labels"].dtype) == (expected, torch.int64)
    running.load(staged)
    assert (running._inputs[0] == torch.tensor(1 / 3, dtype=expected)).all()


def test_autocast_of_staged_images_is_that_of_the_step():
    running = sessions.start(make_case("resnet50", precision="amp-bf16"))
    images = torch.from_numpy(running._work.make_batch()["images"])
    with running._autocast:
        assert running._model(images).equal(running._model(running._inputs[0]))


@needs_gpu
def test_batch_is_copied_while_the_gpu_still_reads_the_last_one():
    running = sessions.start(make_case("resnet50", device="cuda", mode=INFER))
    zeros, ones = ({"images": torch.full((8, 3, 32, 32), v).pin_memory()} for v in (0.0, 1.0))
    found = []
    for staged in (zeros, ones, zeros, ones):
        running._batch = running._copies.copy(staged)
        torch.cuda._sleep(10**7)
        found.append(running._batch["images"].sum())
    assert [float(each) for each in found] == [0.0, 8 * 3 * 32 * 32] * 2


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("device", "is_full_size"), [("cpu", False), ("meta", True)])
def test_model_has_the_definitions_parameters_and_flops(model, device, is_full_size):
    """Test the full size on the meta device, by shapes alone."""
    definition = load_model(model).Definition(**({} if is_full_size else SMALL[model]))
    batch = make_batch(definition, 2, 0, 0)
    with torch.device(device):
        built = build_model(model, definition).to(device)
    found = [(name, tuple(values.shape)) for name, values in built.named_parameters()]
    assert found == [(p.name, p.shape) for p in definition.list_parameters()]
    # FlopCounterMode does not know the CPU's fused attention
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        inputs = (batch[name] for name in load_model(model).INPUTS)
        built(*(torch.from_numpy(values).to(device) for values in inputs))
    assert counter.get_total_flops() == 2 * definition.flops_per_sample


@pytest.mark.parametrize("model", MODELS)
def test_autocast_computes_in_the_precision_asked_for(model):
    for precision, expected in (
        ("fp32", torch.float32),
        ("amp-bf16", torch.bfloat16),
        ("amp-fp16", torch.float16),
    ):
        running = sessions.start(make_case(model, precision=precision))
        layer = getattr(running._model, LAST_LAYERS[model])
        seen = []
        layer.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output))
        running.step()
        assert seen[0].dtype == expected


@needs_gpu
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ADAPTER.SUPPORTED["precision"])
def test_step_does_not_wait_for_the_gpu(model, precision):
    case = make_case(model, device="cuda", precision=precision, clip_global_norm=True)
    running = sessions.start(case)
    running.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        running.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("amp-bf16", torch.bfloat16)]
)
def test_inference_is_in_the_cases_precision_and_kept_for_no_gradient(precision, dtype):
    running = sessions.start(make_case("resnet50", mode=INFER, precision=precision))
    running.infer()
    assert running._logits.dtype == dtype
    assert running._logits.is_inference()
    assert running._logits.grad_fn is None


@pytest.mark.parametrize("mode", [TRAIN, INFER])
@pytest.mark.parametrize("compiler", ADAPTER.SUPPORTED["compiler"])
def test_compiler_is_torch_compile_in_the_mode_of_that_name(compiler, mode, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic, mode: asked.append(mode) or f)
    sessions.start(make_case("bert", mode=mode, compiler=compiler))
    name = None if compiler == "torch.compile" else compiler
    assert asked == [name] * (2 if mode == TRAIN else 1) * (compiler != "none")


def test_tokens_of_graphs_outlive_the_next_run(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic, mode: function)
    found = []
    for compiler in ("none", "reduce-overhead"):
        running = sessions.start(
            make_case("llama", mode=INFER, prompt_length=8, output_tokens=4, compiler=compiler)
        )
        choose, results = running._generation._choose, {}

        def overwrite(ids, positions, choose=choose, results=results):
            """Return the results of each call in the memory of the call before, as a graph does."""
            logits, token = choose(ids, positions)
            return logits, results.setdefault("token", token).copy_(token)

        if compiler != "none":
            monkeypatch.setattr(running._generation, "_choose", overwrite)
        running.prefill()
        for _ in range(3):
            running.decode()
        found.append(running.read_tokens().tolist())
    assert found[0] == found[1]
    assert len({tuple(tokens) for tokens in zip(*found[0])}) > 1


@needs_gpu
@pytest.mark.parametrize("compiler", ADAPTER.SUPPORTED["compiler"])
def test_compiled_tokens_of_a_gpu_are_those_without_a_cache(compiler):
    case = make_case("llama", mode=INFER, prompt_length=8, output_tokens=4, compiler=compiler)
    running = sessions.start(vary(case, device="cuda"))
    for _ in range(4):
        running.prefill()
        for _ in range(3):
            running.decode()
    assert (running.read_tokens() == running.continue_without_cache()).all()


def test_clip_scales_the_unscaled_gradient_to_norm_1():
    case = make_case("bert", precision="amp-fp16")
    free, clipped = (
        sessions.start(vary(case, clip_global_norm=is_clipped)) for is_clipped in (False, True)
    )
    for running in (free, clipped):
        running._scaler = torch.amp.GradScaler("cpu", 16.0)
        running.step()
    assert measure_gradient_norm(free) > 1.2
    assert measure_gradient_norm(clipped) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_tf32_is_a_switch_of_products_and_convolutions_which_fp32_has_off(is_allowed):
    session.allow_tf32(True)
    if not is_allowed:
        sessions.start(make_case("bert"))
    assert torch.backends.cuda.matmul.allow_tf32 == is_allowed
    assert torch.backends.cudnn.allow_tf32 == is_allowed


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)]
)
def test_norm_whose_squares_are_beyond_float16_is_clipped_to(dtype, tolerance):
    sizes = (3_000, 1_000)
    parameters = [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 3000.0)
    clip_gradients(parameters, 100.0)
    # all 4000 gradient values are equal
    for parameter in parameters:
        assert parameter.grad.float().tolist() == pytest.approx(
            [100.0 / math.sqrt(4000)] * parameter.numel(), rel=tolerance
        )
    # a smaller norm is not scaled
    before = [parameter.grad.clone() for parameter in parameters]
    clip_gradients(parameters, 101.0)
    assert all((one.grad == values).all() for one, values in zip(parameters, before))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: torch.empty(2**60, dtype=torch.uint8), True),
        (lambda: bytearray(2**60), True),
        (lambda: torch.ones(2, 3) @ torch.ones(2, 3), False),
    ],
)
def test_allocation_beyond_memory_is_out_of_memory(work, expected):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        work()
    assert is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY) == expected


@pytest.mark.parametrize("num_ooms", [0, 3])
def test_search_without_an_engine_is_out_of_memory_if_the_allocator_was(monkeypatch, num_ooms):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": num_ooms})
    assert is_out_of_memory(RuntimeError(NO_ENGINE), ADAPTER.OUT_OF_MEMORY) == (num_ooms > 0)


def test_peak_memory_sees_an_allocation_and_forgets_it_after_reset():
    running = sessions.start(make_case("bert"))
    running.reset_peak_memory()
    before = running.read_peak_memory_bytes()
    torch.ones(2**26)
    with_allocation = running.read_peak_memory_bytes()
    running.reset_peak_memory()
    assert with_allocation - before > 200 * 2**20
    assert with_allocation - running.read_peak_memory_bytes() > 200 * 2**20


def test_peak_memory_without_proc_is_the_kernels_account(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "PROC", tmp_path / "missing")
    host.reset_peak_resident()
    assert host.read_peak_resident_bytes() > 50 * 2**20


def test_threads_are_the_cpus_of_the_rank():
    sessions.start(make_case("bert", cpus_per_rank=2))
    assert torch.get_num_threads() == 2
    sessions.start(make_case("bert"))
    assert torch.get_num_threads() == 1
