"""Tests of what is particular to the PaddlePaddle adapter, with the real Paddle."""

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.synthetic_batch import make_batch

paddle = pytest.importorskip("paddle", reason="needs PaddlePaddle: dlperf-slurm env create paddle")

from dlperf_slurm.worker.frameworks.paddle import device, training  # noqa: E402

ADAPTER = load_adapter("paddle")
CASE = sessions.make_case("paddle", "bert")


@pytest.mark.parametrize("clip_global_norm", [False, True])
def test_constant_loss_scale_changes_neither_gradients_nor_updates(clip_global_norm):
    case = vary(CASE, optimizer="sgd", clip_global_norm=clip_global_norm)
    sessions.assert_scale_changes_nothing(case)


def test_static_graph_accumulates_as_the_dynamic_one():
    case = sessions.make_case("paddle", "resnet50", gradient_accumulation=2)
    weights = []
    for compiler in ("none", "to_static"):
        session = sessions.start(vary(case, compiler=compiler))
        batch = make_batch(sessions.make_definition(case), 4, case.seed, 1)
        session.accumulate()
        session.load(session.stage(batch))
        session.step()
        weights.append(session.read_weights())
    assert compute_difference(weights[1], weights[0]).relative < 1e-5


def test_batch_with_one_value_per_channel_is_refused():
    parameters = {**sessions.SMALL["resnet50"], "image_size": 32}
    case = vary(CASE, model="resnet50", model_parameters=parameters, batch_size_per_device=1)
    with pytest.raises(ValueError, match="more than one value per channel"):
        sessions.start(case).step()
    sessions.start(vary(case, batch_size_per_device=2)).step()


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    with pytest.raises(MemoryError) as caught:
        paddle.empty([2**50])
    assert is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_tf32_is_switched_in_products_and_convolutions(is_allowed):
    device.allow_tf32(not is_allowed)
    device.allow_tf32(is_allowed)
    assert paddle.base.core.get_cublas_switch() == is_allowed
    assert paddle.base.core.get_cudnn_switch() == is_allowed


def test_each_block_is_checkpointed(monkeypatch):
    computed = []

    def recompute(function, *arguments, **options):
        computed.append(function)
        return function(*arguments)

    monkeypatch.setattr(training, "recompute", recompute)
    case = sessions.make_case("paddle", "llama", activation_checkpointing=True)
    sessions.start(case).step()
    assert len(set(computed)) == case.model_parameters["layers"]
