"""Tests of what is particular to the MXNet adapter, with the real MXNet."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support import attempts, ports, sessions
from support.cases import vary

from dlperf_slurm.contract.axes import PARAMETER_SERVER
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.worker import host, nvml
from dlperf_slurm.worker.frameworks import load_adapter, start_session
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.ranks import World

mx = pytest.importorskip("mxnet", reason="needs MXNet: dlperf-slurm env create mxnet")
numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

from dlperf_slurm.worker.frameworks.mxnet import set_environment  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.layers import compute_cross_entropy  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.session import wait_for_all  # noqa: E402
from dlperf_slurm.worker.frameworks.mxnet.training import SERVER, clip_gradients  # noqa: E402

ADAPTER = load_adapter("mxnet")


def make_case(model, **changes):
    return sessions.make_case("mxnet", model, **changes)


def clip_in_mixed_precision():
    from mxnet.contrib import amp

    amp.init("float16")
    gradients = [mx.nd.full((3,), 3000.0), mx.nd.full((1, 1), 3000.0)]
    clip_gradients(gradients, 1.0)
    return [gradient.asnumpy().ravel().tolist() for gradient in gradients]


def test_norm_whose_squares_are_beyond_float16_is_clipped_to_with_mixed_precision():
    first, second = sessions.run_elsewhere(clip_in_mixed_precision)
    assert [*first, *second] == pytest.approx([0.5] * 4, rel=1e-6)


@pytest.mark.parametrize(("precision", "expected"), [("tf32", "1"), ("fp32", "0")])
def test_tf32_is_decided_before_mxnet_is_loaded(monkeypatch, precision, expected):
    monkeypatch.setattr(os, "environ", {})
    set_environment(make_case("resnet50", device="cuda", precision=precision))
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == expected


def find_types_in_bfloat16():
    types = set()
    for model in ("bert", "resnet50"):
        running = sessions.start(make_case(model, precision="amp-bf16"))
        layer = running._model.next_sentence if model == "bert" else running._model.classifier
        layer.register_forward_hook(lambda block, inputs, output: types.add(str(output.dtype)))
        running.step()
    return types


def test_cpu_without_avx512_is_told_what_works(monkeypatch):
    monkeypatch.setattr(host, "has_cpu_flag", lambda flag: flag != "avx512bw")
    assert sessions.take_losses(make_case("bert"), 1)
    with pytest.raises(RuntimeError, match=r"'amp-bf16' needs AVX-512 .*; use precision 'fp32'"):
        sessions.start(make_case("bert", precision="amp-bf16"))


def test_products_are_computed_in_bfloat16():
    sessions.skip_unsupported(make_case("bert", precision="amp-bf16"))
    types = sessions.run_elsewhere(find_types_in_bfloat16)
    assert ["bfloat16" in name for name in types] == [True]


@pytest.mark.parametrize("labels", [[0], [[1, 0]]])
def test_cross_entropy_of_large_logits_is_finite(labels):
    loss = compute_cross_entropy(mx.nd.array([[-200, 300]]), mx.nd.array(labels))
    assert loss.asscalar() == pytest.approx(500)


@pytest.mark.parametrize("gradient_accumulation", [1, 2])
def test_constant_loss_scale_is_not_in_the_gradients(gradient_accumulation):
    case = make_case("bert", gradient_accumulation=gradient_accumulation)
    plain, scaled = (sessions.start(vary(case, loss_scale=scale)) for scale in ("dynamic", 128))
    difference = compute_difference(scaled.compute_gradients(), plain.compute_gradients())
    assert difference.relative < 1e-6
    # but the scale is in the gradients of the backward pass, which float16 could round to zero
    for session in (plain, scaled):
        session._backpropagate()
    own = [session._parameters["pooler.weight"].grad().asnumpy() for session in (plain, scaled)]
    numpy.testing.assert_allclose(own[1], 128 * own[0], rtol=1e-5)


@sessions.needs_mpirun
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
def test_servers_follow_changing_learning_rates_too(tmp_path, optimizer):
    case = make_case(
        "bert", optimizer=optimizer, devices_per_node=2, gradient_sync=PARAMETER_SERVER
    )
    write_json(tmp_path / CASE_FILE, case)
    done = launch_ranks(tmp_path, "run_rank")
    assert done.returncode == 0, done.stderr


def launch_ranks(folder, function):
    """Run a function of this file on each rank of the case in a folder."""
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    script = f"import sys; sys.path[:0] = {folders}; import test_mxnet; test_mxnet.{function}()"
    case = read_json(folder / CASE_FILE, Case)
    return subprocess.run(
        [*attempts.make_mpirun(case), sys.executable, "-c", script],
        cwd=str(folder),
        env={**attempts.make_environment(sessions.CHECKOUT), "PATH": sessions.find_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@sessions.needs_mpirun
def test_ranks_end_when_one_loses_its_servers(tmp_path):
    write_json(tmp_path / CASE_FILE, make_case("bert", devices_per_node=2))
    done = launch_ranks(tmp_path, "lose_servers")
    assert done.returncode != 0
    assert "a parameter server of this rank ended with exit code -9" in done.stderr


def lose_servers():
    from mpi4py import MPI

    case = read_json(Path(CASE_FILE), Case)
    session = start_session(case, World(MPI.COMM_WORLD).place(case))
    for server in session._servers._processes:
        server.kill()
    while True:
        session.step()


def run_rank():
    from mpi4py import MPI

    case = read_json(Path(CASE_FILE), Case)
    session = start_session(case, World(MPI.COMM_WORLD).place(case))
    sessions.follow_learning_rates(session, case)
    session.close()


def exhaust_memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2)
    with pytest.raises(mx.MXNetError) as caught:
        mx.nd.add_n(*(mx.nd.ones((2**14, 2**14)) for _ in range(5))).wait_to_read()
    return is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)


def test_allocation_beyond_the_hosts_memory_is_out_of_memory():
    assert sessions.run_elsewhere(exhaust_memory) is True


def test_server_ends_when_its_rank_is_killed():
    """Test with a scheduler alone, which listens until all have joined."""
    sizes = {"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    role = {"DMLC_ROLE": "scheduler", "DMLC_PS_ROOT_URI": "127.0.0.1"}
    ports.assert_ends_with_rank(SERVER, "DMLC_PS_ROOT_PORT", **role, **sizes)


def test_values_that_the_clock_waits_for_are_of_the_weights_that_their_step_left():
    running = sessions.start(make_case("resnet50"))
    taken = []
    for _ in range(2):
        running.step()
        taken.append(running._copy_updated())
    for values in taken:
        wait_for_all(values)
    earlier, later = ([value.asnumpy().ravel()[0] for value in values] for values in taken)
    first, *_, last = (values.ravel()[0] for values in running.read_weights().values())
    assert later == pytest.approx([first, last], abs=0)
    assert earlier != later


def test_memory_of_a_gpu_is_that_of_this_process(fake_nvml, monkeypatch):
    fake_nvml({}, {"ComputeRunningProcesses": [[{"pid": os.getpid(), "usedGpuMemory": 7}]]})
    monkeypatch.setattr(nvml, "HOST_PROCESSES", nvml.find_process_space())
    running = sessions.start(make_case("resnet50"))
    running._device = mx.gpu(1)
    assert running.read_peak_memory_bytes() == 7
