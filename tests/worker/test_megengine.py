"""Tests of what is particular to the MegEngine adapter, with the real MegEngine."""

import resource
import time
from dataclasses import replace

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.reference_optimizers import make_optimizer
from dlperf_slurm.worker.synthetic_batch import make_batch

mge = pytest.importorskip("megengine", reason="needs MegEngine: dlperf-slurm env create megengine")
numpy = pytest.importorskip("numpy", reason="comes with MegEngine")

from megengine import functional as F  # noqa: E402

from dlperf_slurm.worker.frameworks.megengine import bert, session  # noqa: E402

ADAPTER = load_adapter("megengine")
CASE = sessions.make_case("megengine", "bert")


@pytest.mark.parametrize("compiler", ADAPTER.SUPPORTED["compiler"])
def test_dropout_differs_from_step_to_step(compiler):
    parameters = {**sessions.SMALL["bert"], "dropout": 0.5}
    running = sessions.start(vary(CASE, model_parameters=parameters, compiler=compiler))
    losses = set()
    for _ in range(3):
        running.compute_gradients()
        losses.add(running.read_loss())
    assert len(losses) == 3


def test_amp_computes_in_float16_and_the_loss_in_float32(monkeypatch):
    types = []
    compute_loss = bert.compute_loss

    def note_types(definition, logits, batch):
        loss = compute_loss(definition, logits, batch)
        types.extend([*(part.dtype for part in logits), loss.dtype])
        return loss

    monkeypatch.setattr(bert, "compute_loss", note_types)
    sessions.start(vary(CASE, precision="amp-fp16")).step()
    assert types == [numpy.float16, numpy.float16, numpy.float32]


def test_overflow_skips_the_step_and_halves_the_scale():
    running = sessions.start(vary(CASE, precision="amp-fp16", clip_global_norm=True))
    running._scaler.scale_factor = 2.0**40
    before = running.read_weights()
    running.step()
    assert compute_difference(running.read_weights(), before).relative == 0.0
    assert running._scaler.scale_factor == 2.0**39


def test_trace_keeps_neither_its_first_batch_nor_the_gradients_of_an_earlier_step():
    case = vary(CASE, compiler="trace", gradient_accumulation=2)
    running = sessions.start(case)
    definition = sessions.make_definition(case)
    rule = make_optimizer(case, definition)
    initial = running.read_weights()
    expected = {name: values.astype("float64") for name, values in initial.items()}
    for rank in range(3):
        running.load(running.stage(make_batch(definition, 4, case.seed, rank)))
        rule.update(expected, running.compute_gradients())
        running.accumulate()
        running.step()
    found = sessions.find_update_difference(case, initial, running.read_weights(), expected)
    assert found.relative < 1e-5


def test_trace_reads_the_learning_rate_in_each_step():
    case = vary(CASE, compiler="trace")
    sessions.follow_learning_rates(sessions.start(case), case)


def test_trace_takes_a_constant_loss_scale():
    losses = []
    for compiler in ADAPTER.SUPPORTED["compiler"]:
        running = sessions.start(
            vary(CASE, precision="amp-fp16", loss_scale=128, compiler=compiler)
        )
        for _ in range(3):
            running.step()
        losses.append(running.read_loss())
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def exhaust_memory():
    running = sessions.start(CASE)
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
    too_large = F.ones((2**16, 2**15))
    with pytest.raises(RuntimeError) as caught:
        running.synchronize()
    del too_large
    return type(caught.value).__name__, is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    assert sessions.run_elsewhere(exhaust_memory) == ("AsyncError", True)


def measure_busy_cpus():
    running = sessions.start(sessions.make_case("megengine", "resnet50", batch_size_per_device=16))
    running.step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(5):
        running.step()
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def test_rank_with_one_cpu_does_not_use_two():
    assert sessions.run_elsewhere(measure_busy_cpus) < 1.1


def test_only_a_rank_that_sees_several_gpus_chooses_by_its_local_rank(monkeypatch):
    second = replace(sessions.ALONE, local_rank=1)
    chosen = []
    for count in (1, 4):
        monkeypatch.setattr(mge, "get_device_count", lambda device_type, count=count: count)
        chosen.append(session.choose_gpu(second))
    assert chosen == [0, 1]


def test_gpu_case_without_a_gpu_says_that_there_is_none():
    with pytest.raises(RuntimeError, match="MegEngine sees no GPU"):
        sessions.start(vary(CASE, device="cuda"))
