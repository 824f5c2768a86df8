"""AMD's GPUs by an AMD SMI of the test's own: samples, facts, and which one a rank drives."""

import math
import os

import pytest
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.worker.amd_smi import list_visible
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import find_device_uuid
from dlperf_slurm.worker.provenance.gpu import describe_gpus, describe_rocm
from dlperf_slurm.worker.telemetry import Sampler
from dlperf_slurm.worker.telemetry.gpu_sources import choose_devices, open_devices
from dlperf_slurm.worker.telemetry.series import CLOCK, ENERGY, POWER, THROTTLE, summarize_samples

CUDA = vary(CASE, device="cuda")
FIRST, SECOND = (RankInfo(rank, rank, 2, "n1", "127.0.0.1", 0) for rank in (0, 1))
MI300X = {
    "gpu_asic_info": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"},
    # the first answer is to the reading before the window
    "energy_count": [
        {"energy_accumulator": 0, "counter_resolution": 15.3},
        {"energy_accumulator": 1000000, "counter_resolution": 15.3},
        {"energy_accumulator": 2000000, "counter_resolution": 15.3},
    ],
    "power_info": {"current_socket_power": 700, "average_socket_power": "N/A"},
    "gpu_activity": {"gfx_activity": 90, "umc_activity": 40},
    "clock_info": {"clk": 2100, "max_clk": 2100},
    "temp_metric": 70,
    "gpu_vram_usage": {"vram_total": 196592, "vram_used": 1024},
    "gpu_metrics_info": [
        {"ppt_residency_acc": 5, "prochot_residency_acc": 9, "hbm_thm_residency_acc": 0},
        {"ppt_residency_acc": 8, "prochot_residency_acc": 9, "hbm_thm_residency_acc": 1},
    ],
}
# one of two dies, by an earlier version of the package
MI250X = {
    "gpu_asic_info": {"market_name": "AMD Instinct MI250X", "device_id": 0x7408},
    "energy_count": {"power": 0, "counter_resolution": 15.3},
    "power_info": {"average_socket_power": 480},
    "clock_info": {"cur_clk": 1700, "max_clk": 1700},
}


def test_gpus_are_watched_by_a_process_of_the_host(fake_amd_smi):
    fake_amd_smi(MI300X, MI300X)
    sampler = Sampler(vary(CUDA, telemetry_interval_seconds=60), FIRST)
    sampler.await_ready()
    sampler.start_window()
    sampler.end_window()
    samples = sampler.finish()
    assert [series.device for series in samples.series][1:] == [0, 1]
    gpu = summarize_samples([samples])[1]
    assert gpu.name == "AMD Instinct MI300X"
    assert gpu.energy_joules == pytest.approx(15.3)
    assert gpu.mean_utilization == pytest.approx(0.9)
    assert (gpu.mean_clock_mhz, gpu.peak_temperature_celsius) == (2100, 70)
    assert gpu.peak_memory_bytes == 2**30


def test_gpu_is_read_as_far_as_it_tells(fake_amd_smi, monkeypatch):
    fake_amd_smi(MI300X, MI250X, {})
    first, gcd, silent = open_devices({0: "0", 1: "1", 2: "2"})
    # counters that grow between samples held the clock down: power cap and heat, as NVML's bits
    assert [first.read()[THROTTLE] for _ in range(3)] == [0, 0x44, 0]
    # a GCD counts no energy
    sample = gcd.read()
    assert gcd.name == "AMD Instinct MI250X GCD"
    assert (sample[POWER], sample[CLOCK]) == (480, 1700)
    assert math.isnan(sample[ENERGY])
    assert math.isnan(sample[THROTTLE])
    assert all(map(math.isnan, silent.read().values()))
    monkeypatch.delenv("FAKE_AMD_SMI")
    assert list(open_devices({0: "0"})) == []
    assert describe_gpus() == {}
    assert find_device_uuid(CUDA, FIRST, os.environ) == ""


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        ({}, ["0", "1", "2", "3"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, ["2", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["1", "0"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "1,2,0"}, ["3"]),
        (
            {"ROCR_VISIBLE_DEVICES": "GPU-a, GPU-b", "HIP_VISIBLE_DEVICES": "1,0"},
            ["GPU-b", "GPU-a"],
        ),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "3,-1,2"}, ["3"]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_hip_counts_among_what_rocr_has_left(environ, visible):
    assert list_visible(environ, ["0", "1", "2", "3"]) == visible


def test_ranks_drive_gpus_in_the_order_of_hip(fake_amd_smi, monkeypatch):
    serial = {"gpu_asic_info": {"asic_serial": "0x1F0A"}}
    told = [{"hip_id": 1, "hip_uuid": "GPU-00b"}, {"hip_id": 0, "hip_uuid": "GPU-00a"}]
    fake_amd_smi(
        {"gpu_device_uuid": "b", "gpu_enumeration_info": told[0], **serial},
        {"gpu_device_uuid": "a", "gpu_enumeration_info": told[1]},
    )
    assert [find_device_uuid(CUDA, rank, os.environ) for rank in (FIRST, SECOND)] == ["a", "b"]
    for name in ("GPU-00b", "GPU-1f0a"):
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", name)
        assert find_device_uuid(CUDA, FIRST, os.environ) == "b"


def test_rank_watches_what_rocr_shows_it(fake_amd_smi):
    fake_amd_smi(MI300X, MI300X, MI300X, MI300X)
    both = {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1,0"}
    assert choose_devices(CUDA, FIRST, both) == {0: "3", 1: "2"}
    assert choose_devices(CUDA, SECOND, {"ROCR_VISIBLE_DEVICES": "3"}) == {1: "3"}


def test_amd_s_variables_beside_nvidia_s_gpus_mean_nothing(fake_nvml, monkeypatch):
    fake_nvml({"UUID": "GPU-a"}, {"UUID": "GPU-b"})
    told = {"CUDA_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "1,0"}
    assert choose_devices(CUDA, FIRST, told) == {0: "1", 1: "0"}


def test_gpus_of_one_kind_are_described_once(fake_amd_smi):
    facts = {
        **MI250X,
        "gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.12.12"},
        "gpu_vbios_info": {"version": "022.040"},
        "power_cap_info": {"power_cap": 560000000},
        "gpu_memory_partition": "NPS1",
        "gpu_compute_partition": "N/A",
    }
    fake_amd_smi(*({"gpu_device_uuid": uuid, **facts} for uuid in "ab"))
    assert describe_gpus() == {
        "gpu_count": "2",
        "gpu_driver": "6.12.12",
        "gpu_greatest_clock_mhz": "1700",
        "gpu_memory_partition": "NPS1",
        "gpu_models": "AMD Instinct MI250X GCD",
        "gpu_power_limit_watts": "560",
        "gpu_uuids": "a, b",
        "gpu_vbios": "022.040",
    }


def test_version_of_rocm_is_that_of_its_folder(tmp_path):
    for folder, version in (("opt/rocm", "6.3.1-48\n"), ("sw/rocm-7", "7.0.2-56")):
        (tmp_path / folder / ".info").mkdir(parents=True)
        (tmp_path / folder / ".info" / "version").write_text(version)
    assert describe_rocm(tmp_path, {}) == {"rocm": "6.3.1-48"}
    assert describe_rocm(tmp_path, {"ROCM_PATH": "/sw/rocm-7"}) == {"rocm": "7.0.2-56"}
    assert describe_rocm(tmp_path, {"ROCM_PATH": "/no"}) == {}
