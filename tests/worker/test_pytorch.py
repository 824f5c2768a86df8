"""The PyTorch adapter with the real torch: models, precisions, data parallelism, memory, clocks."""

import math
import multiprocessing
import shutil
import socket
from dataclasses import replace

import pytest

from dlperf_slurm.contract import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.frameworks import Placement, load_adapter
from dlperf_slurm.worker.models import bert, load_model, resnet50
from dlperf_slurm.worker.weights import make_weights

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
torch = pytest.importorskip(
    "torch",
    reason="needs PyTorch: pip install torch --index-url https://download.pytorch.org/whl/cpu",
)

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from dlperf_slurm.worker.frameworks.pytorch import bert as bert_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch import resnet50 as resnet50_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch import session  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch.parameters import load_weights  # noqa: E402

pytestmark = pytest.mark.pytorch
ADAPTER = load_adapter("pytorch")
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
    framework="pytorch",
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
HAS_CUDA = torch.cuda.is_available()
ON_DEVICES = [
    pytest.param(device, precision, marks=[] if device == "cpu" else needs_gpu)
    for needs_gpu in [pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU")]
    for device in ADAPTER.DEVICES
    for precision in ADAPTER.PRECISIONS
    if (device, precision) != ("cpu", "tf32")
]


def make_case(model, **changes):
    return replace(CASE, model=model, model_parameters=SMALL[model], **changes)


def build_with_weights(definition, model):
    built = BUILDERS[model].build_model(definition)
    load_weights(built, make_weights(definition, CASE.seed).items())
    return built


def take_losses(case, steps, placement=ALONE):
    running = ADAPTER.start(case, placement)
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.read_loss())
    return losses


def to_tensors(batch):
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def measure_gradient_norm(running):
    # A fused optimizer leaves its gradients unscaled.
    gradients = [parameter.grad for parameter in running._model.parameters()]
    return float(torch.nn.utils.get_total_norm(gradients))


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("bert", {}),
        ("resnet50", {}),
        ("bert", SMALL["bert"]),
        ("bert", {"layers": 1, "heads": 8, "hidden_size": 64, "type_vocabulary_size": 3}),
        ("resnet50", SMALL["resnet50"]),
        ("resnet50", {"stage_blocks": (1, 2, 1, 3), "width": 12, "image_size": 40}),
    ],
)
def test_torch_model_has_exactly_the_definitions_parameters(model, parameters):
    definition = load_model(model).Definition(**parameters)
    built = BUILDERS[model].build_model(definition)
    assert session.count_parameters(built) == definition.parameter_count


@pytest.mark.parametrize("model", MODELS)
def test_state_dict_has_the_definitions_names_and_shapes_in_its_order(model):
    definition = load_model(model).Definition(**SMALL[model])
    built = BUILDERS[model].build_model(definition)
    found = [(name, tuple(values.shape)) for name, values in built.named_parameters()]
    assert found == [(p.name, p.shape) for p in definition.list_parameters()]
    statistics = {name: values for name, values in built.named_buffers() if values.ndim}
    assert list(statistics) == [p.name for p in definition.list_running_statistics()]
    for parameter in definition.list_running_statistics():
        assert statistics[parameter.name].tolist() == [parameter.mean] * parameter.size


@pytest.mark.parametrize("model", MODELS)
def test_session_starts_with_the_neutral_weights_of_its_seed(model):
    weights = ADAPTER.start(make_case(model), ALONE).read_weights()
    expected = make_weights(load_model(model).Definition(**SMALL[model]), CASE.seed)
    assert list(weights) == list(expected)
    for name, values in expected.items():
        assert weights[name].dtype == values.dtype
        assert (weights[name] == values).all()


def test_weights_for_a_parameter_that_is_not_there_are_refused():
    built = bert_builder.build_model(bert.Definition(**SMALL["bert"]))
    with pytest.raises(KeyError, match="unknown"):
        load_weights(built, {"unknown": numpy.zeros(1)}.items())


def test_parameter_without_weights_is_named():
    definition = bert.Definition(**SMALL["bert"])
    weights = make_weights(definition, 0)
    del weights["pooler.bias"]
    with pytest.raises(ValueError, match=r"pooler\.bias"):
        load_weights(bert_builder.build_model(definition), weights.items())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_gradients_are_those_of_the_step_before_scale_and_clip(model, precision):
    case = make_case(model, precision=precision)
    stepped, proving = ADAPTER.start(case, ALONE), ADAPTER.start(case, ALONE)
    for running in (stepped, proving):
        running._scaler = torch.amp.GradScaler("cpu", 16.0, enabled=precision == "amp-fp16")
    proving._clip_global_norm = 1.0
    stepped.step()
    gradients = proving.compute_gradients()
    norm = sum(float((values.astype("float64") ** 2).sum()) for values in gradients.values()) ** 0.5
    assert norm == pytest.approx(measure_gradient_norm(stepped), rel=1e-6)
    for name, parameter in stepped._model.named_parameters():
        expected = parameter.grad.numpy()
        numpy.testing.assert_allclose(gradients[name], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("model", MODELS)
def test_computing_gradients_changes_neither_weights_nor_the_next_step(model):
    plain, proving = (ADAPTER.start(make_case(model), ALONE) for _ in range(2))
    before = proving.read_weights()
    proving.compute_gradients()
    for name, values in proving.read_weights().items():
        assert (values == before[name]).all()
    for running in (plain, proving):
        running.step()
    after = plain.read_weights()
    for name, values in proving.read_weights().items():
        assert (values == after[name]).all()


@pytest.mark.parametrize("model", MODELS)
def test_arrays_of_a_session_are_copies(model):
    running = ADAPTER.start(make_case(model), ALONE)
    for read in (running.read_weights, running.compute_gradients):
        first = read()
        kept = {name: values.copy() for name, values in first.items()}
        running.step()
        assert all((first[name] == kept[name]).all() for name in kept)


def test_channels_last_arrays_have_the_canonical_layout():
    running = ADAPTER.start(make_case("resnet50", memory_format="channels_last"), ALONE)
    name = "blocks.0.spatial.convolution.weight"
    for arrays in (running.read_weights(), running.compute_gradients()):
        assert arrays[name].shape == (8, 8, 3, 3)
        assert arrays[name].flags["C_CONTIGUOUS"]


def test_evaluation_uses_the_running_statistics_and_leaves_them():
    running = ADAPTER.start(make_case("resnet50"), ALONE)
    before = {name: value.clone() for name, value in running._model.named_buffers()}
    first = running.evaluate_loss()
    for name, value in running._model.named_buffers():
        assert torch.equal(value, before[name])
    running.step()
    assert running.read_loss() != pytest.approx(first, rel=1e-3)
    assert running._model.training


def test_evaluation_has_no_dropout():
    case = replace(CASE, model_parameters={**SMALL["bert"], "dropout": 0.5})
    running = ADAPTER.start(case, ALONE)
    assert running.evaluate_loss() == running.evaluate_loss()
    without = ADAPTER.start(CASE, ALONE)
    assert running.evaluate_loss() == without.evaluate_loss()


def test_ranks_have_the_same_weights_and_dropout_of_their_own():
    case = replace(CASE, model_parameters={**SMALL["bert"], "dropout": 0.5})
    one, other = (ADAPTER.start(case, replace(ALONE, rank=rank)) for rank in range(2))
    for name, values in one.read_weights().items():
        assert (values == other.read_weights()[name]).all()
    other._batch, other._inputs = one._batch, one._inputs
    torch.manual_seed(CASE.seed + 1)
    one.step()
    torch.manual_seed(CASE.seed + 2)
    other.step()
    assert one.read_loss() != other.read_loss()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_full_size", [True, False])
def test_forward_pass_costs_the_definitions_flops(model, is_full_size):
    definition = load_model(model).Definition(**({} if is_full_size else SMALL[model]))
    batch = to_tensors(make_batch(definition, 2, 0, 0))
    built = BUILDERS[model].build_model(definition)
    # The counter does not know the CPU's fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        built(*(batch[name] for name in BUILDERS[model].INPUTS))
    assert counter.get_total_flops() == 2 * definition.flops_per_sample


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("device", "precision"), ON_DEVICES)
def test_loss_falls_over_20_steps_on_one_batch(model, device, precision):
    losses = take_losses(make_case(model, device=device, precision=precision), 20)
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.1


def test_fp16_stays_finite_after_the_scaler_skipped_the_first_steps():
    case = make_case("resnet50", precision="amp-fp16")
    full_width = replace(case, model_parameters={**SMALL["resnet50"], "width": 32, "classes": 1000})
    running = ADAPTER.start(full_width, ALONE)
    running._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    losses = []
    for _ in range(40):
        running.step()
        losses.append(running.read_loss())
    assert losses[1] == losses[0]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("model", MODELS)
def test_autocast_computes_in_the_precision_asked_for(model):
    for precision, expected in (
        ("fp32", torch.float32),
        ("amp-bf16", torch.bfloat16),
        ("amp-fp16", torch.float16),
    ):
        running = ADAPTER.start(make_case(model, precision=precision), ALONE)
        layer = running._model.next_sentence if model == "bert" else running._model.classifier
        seen = []
        layer.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output))
        running.step()
        assert seen[0].dtype == expected


@pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ADAPTER.PRECISIONS)
def test_step_does_not_wait_for_the_gpu(model, precision):
    case = make_case(model, device="cuda", precision=precision, clip_global_norm=True)
    running = ADAPTER.start(case, ALONE)
    running.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        running.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("model", MODELS)
def test_same_seed_gives_the_same_losses(model):
    assert take_losses(make_case(model), 3) == take_losses(make_case(model), 3)


def test_another_seed_gives_another_loss():
    assert take_losses(make_case("bert"), 1) != take_losses(make_case("bert", seed=8), 1)


def test_channels_last_gives_the_same_loss():
    default, last = (
        take_losses(make_case("resnet50", memory_format=memory_format), 3)
        for memory_format in ("default", "channels_last")
    )
    assert last == pytest.approx(default, rel=1e-3)


def test_channels_last_reaches_weights_and_images():
    running = ADAPTER.start(make_case("resnet50", memory_format="channels_last"), ALONE)
    for tensor in (running._inputs[0], running._model.blocks[0].spatial.convolution.weight):
        assert tensor.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_clip_scales_the_unscaled_gradient_to_norm_1(model, precision):
    case = make_case(model, precision=precision)
    free, clipped = (
        ADAPTER.start(replace(case, clip_global_norm=is_clipped), ALONE)
        for is_clipped in (False, True)
    )
    for running in (free, clipped):
        running._scaler = torch.amp.GradScaler("cpu", 16.0, enabled=precision == "amp-fp16")
        running.step()
    assert measure_gradient_norm(free) > 1.2
    assert measure_gradient_norm(clipped) == pytest.approx(1.0, rel=1e-3)


def test_fp32_switches_tf32_off_in_products_and_convolutions():
    session.allow_tf32(True)
    ADAPTER.start(make_case("bert"), ALONE)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_tf32_switches_it_on():
    session.allow_tf32(False)
    session.allow_tf32(True)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("model", MODELS)
def test_biases_and_normalizations_do_not_decay(model):
    built = BUILDERS[model].build_model(load_model(model).Definition(**SMALL[model]))
    decaying, other = find_groups(model, built)
    for name, parameter in built.named_parameters():
        is_free = name.endswith("bias") or "normalization" in name
        assert (id(parameter) in other) == is_free
        assert (id(parameter) in decaying) != is_free


def find_groups(model, built):
    definition = load_model(model).Definition(**SMALL[model])
    groups = BUILDERS[model].make_optimizer(definition, built, 256).param_groups
    assert [group["weight_decay"] for group in groups] == [definition.WEIGHT_DECAY, 0.0]
    return [{id(parameter) for parameter in group["params"]} for group in groups]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on the CPU needs g++")
@pytest.mark.parametrize("model", MODELS)
def test_compiled_steps_equal_eager_ones(model):
    case = make_case(model)
    eager = take_losses(case, 3)
    compiled = take_losses(replace(case, compiler="torch.compile"), 3)
    assert compiled == pytest.approx(eager, rel=1e-3)


def test_decoder_sees_the_gathered_positions_only():
    definition = bert.Definition(**SMALL["bert"])
    built = bert_builder.build_model(definition)
    batch = to_tensors(make_batch(definition, 3, 0, 0))
    seen = []
    built.masked_words.decoder.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0].shape, output.shape))
    )
    built(*(batch[name] for name in bert_builder.INPUTS))
    assert seen == [((3, 5, 32), (3, 5, 200))]


def test_decoder_predicts_in_the_order_of_the_masked_positions():
    head = bert_builder.MaskedWordHead(
        bert.Definition(**SMALL["bert"]), torch.nn.Embedding(200, 32)
    )
    hidden = torch.randn(2, 16, 32)
    every = head(hidden, torch.arange(16).repeat(2, 1))
    some = head(hidden, torch.tensor([[3, 9], [0, 15]]))
    torch.testing.assert_close(some, torch.stack([every[0, [3, 9]], every[1, [0, 15]]]))


def test_decoder_weight_is_the_word_embedding():
    built = bert_builder.build_model(bert.Definition(**SMALL["bert"]))
    assert built.masked_words.decoder.weight is built.embeddings.word.weight


def test_attention_does_not_read_masked_out_tokens():
    definition = bert.Definition(**SMALL["bert"])
    built = bert_builder.build_model(definition).eval()
    batch = to_tensors(make_batch(definition, 2, 0, 0))
    batch["attention_mask"][:, -1] = 0
    outputs = []
    for token in (1, 2):
        batch["input_ids"][:, -1] = token
        outputs.append(built(*(batch[name] for name in bert_builder.INPUTS))[1])
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "gpt"}, "pytorch has no model 'gpt'; it has: bert, resnet50"),
        ({"device": "tpu"}, "pytorch has no device 'tpu'; it has: cpu, cuda"),
        (
            {"precision": "fp8"},
            "pytorch has no precision 'fp8'; it has: fp32, tf32, amp-bf16, amp-fp16",
        ),
        ({"compiler": "xla"}, "pytorch has no compiler 'xla'; it has: none, torch.compile"),
        (
            {"memory_format": "nhwc"},
            "pytorch has no memory_format 'nhwc'; it has: default, channels_last",
        ),
        (
            {"distribution": "horovod"},
            "pytorch has no distribution 'horovod'; it has: native",
        ),
        (
            {"precision": "tf32"},
            "pytorch: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'",
        ),
        (
            {"memory_format": "channels_last"},
            "pytorch: memory_format 'channels_last' needs images; use 'default' for 'bert'",
        ),
    ],
)
def test_unsupported_case_is_refused_with_what_works(changes, reason):
    assert ADAPTER.find_unsupported(replace(CASE, **changes)) == reason


def test_tf32_on_a_gpu_is_supported():
    assert ADAPTER.find_unsupported(replace(CASE, precision="tf32", device="cuda")) is None


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert ADAPTER.is_out_of_memory(caught.value)


def test_allocation_beyond_pythons_memory_is_out_of_memory():
    with pytest.raises(MemoryError) as caught:
        bytearray(2**60)
    assert ADAPTER.is_out_of_memory(caught.value)


@pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU")
def test_allocation_beyond_the_gpus_memory_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    assert ADAPTER.is_out_of_memory(caught.value)


def test_wrong_shape_is_not_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not ADAPTER.is_out_of_memory(caught.value)


def test_peak_memory_sees_an_allocation_and_forgets_it_after_reset():
    running = ADAPTER.start(make_case("bert"), ALONE)
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


def test_host_clock_gives_one_time_between_each_pair_of_marks():
    running = ADAPTER.start(make_case("bert"), ALONE)
    clock = running.make_clock(4)
    clock.mark(0)
    for index in range(1, 4):
        running.step()
        clock.mark(index)
    seconds = clock.read_step_seconds()
    assert clock.name == "host"
    assert len(seconds) == 3
    assert all(0 < value < 10 for value in seconds)


@pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU")
def test_cuda_clock_gives_one_time_between_each_pair_of_marks():
    running = ADAPTER.start(make_case("bert", device="cuda"), ALONE)
    clock = running.make_clock(4)
    clock.mark(0)
    for index in range(1, 4):
        running.step()
        clock.mark(index)
    running.synchronize()
    seconds = clock.read_step_seconds()
    assert clock.name == "cuda_event"
    assert len(seconds) == 3
    assert all(0 < value < 10 for value in seconds)


def test_threads_are_the_cpus_of_the_rank():
    ADAPTER.start(make_case("bert", cpus_per_rank=2), ALONE)
    assert torch.get_num_threads() == 2
    ADAPTER.start(make_case("bert"), ALONE)
    assert torch.get_num_threads() == 1


def test_session_says_what_ran():
    running = ADAPTER.start(make_case("resnet50"), ALONE)
    assert running.versions == {"torch": str(torch.__version__)}
    assert running.device_name
    assert running.parameter_count == resnet50.Definition(**SMALL["resnet50"]).parameter_count


def step_as_rank(case, rank, port, directory):
    """Run in a process of its own: three steps, then the first gradients and last weights."""
    placement = replace(ALONE, rank=rank, local_rank=rank, world_size=2, master_port=port)
    running = ADAPTER.start(case, placement)
    running.step()
    gradients = {
        name.replace("module.", "", 1): parameter.grad.clone()
        for name, parameter in running._model.named_parameters()
    }
    running.step()
    running.step()
    running.synchronize()
    weights = [parameter.detach().clone() for parameter in running._model.parameters()]
    torch.save({"gradients": gradients, "weights": weights}, directory / f"rank{rank}.pt")
    running.close()


def run_two_ranks(case, directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=step_as_rank, args=(case, rank, port, directory), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(directory / f"rank{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    cases = [make_case(model, devices_per_node=2) for model in MODELS]
    return {case.model: run_two_ranks(case, tmp_path_factory.mktemp(case.model)) for case in cases}


@pytest.mark.parametrize("model", MODELS)
def test_two_ranks_hold_the_same_weights_after_three_steps(two_ranks, model):
    first, second = two_ranks[model]
    for one, other in zip(first["weights"], second["weights"]):
        assert torch.equal(one, other)


def test_averaged_gradient_of_two_ranks_is_that_of_the_joined_batch(two_ranks):
    """BERT only: ResNet's batch normalization sees each rank's batch, not the joined one."""
    definition = bert.Definition(**SMALL["bert"])
    built = build_with_weights(definition, "bert")
    halves = [to_tensors(make_batch(definition, 4, CASE.seed, rank)) for rank in range(2)]
    joined = {name: torch.cat([half[name] for half in halves]) for name in halves[0]}
    logits = built(*(joined[name] for name in bert_builder.INPUTS))
    bert_builder.compute_loss(definition, logits, joined).backward()
    gradients = two_ranks["bert"][0]["gradients"]
    for name, parameter in built.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_averaged_gradient_of_two_ranks_is_the_mean_of_their_own(two_ranks):
    definition = resnet50.Definition(**SMALL["resnet50"])
    built = build_with_weights(definition, "resnet50")
    for rank in range(2):
        batch = to_tensors(make_batch(definition, 4, CASE.seed, rank))
        (resnet50_builder.compute_loss(definition, built(batch["images"]), batch) / 2).backward()
    gradients = two_ranks["resnet50"][0]["gradients"]
    for name, parameter in built.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
