"""The process beside the window: what it sees for real, of GPUs that are made up, and its end."""

import json
import math
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from support import attempts, frozen_code
from support.cases import vary

from dlperf_slurm.contract.record import HOST, OK, DeviceState
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.telemetry import SAMPLES_FILE, Sampler, gather_telemetry
from dlperf_slurm.worker.telemetry.__main__ import find_busy_cpus
from dlperf_slurm.worker.telemetry.series import DeviceSeries, HostSamples, summarize_samples
from dlperf_slurm.worker.telemetry.sources import EnergyCounter, HostSource

psutil = pytest.importorskip("psutil", reason="needs psutil: pip install psutil")

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])
SUPPORT = Path(__file__).resolve().parents[1] / "support"
# of any Linux (proc_sys_kernel(5), pid_max)
GREATEST_PID = 2**22
CPU = vary(attempts.CASE, device="cpu", devices_per_node=1)
CUDA = vary(attempts.CASE, device="cuda", devices_per_node=2)
FIRST = RankInfo(0, 0, 2, "n1", "127.0.0.1", 0)
SECOND = replace(FIRST, rank=1, local_rank=1)

A100 = {
    "Name": "A100",
    # the first answer is to the reading before the window
    "TotalEnergyConsumption": [0, 5000, 8000],
    "PowerUsage": [0, 300000, 350000],
    "UtilizationRates": [{"gpu": 0}, {"gpu": 90}, {"gpu": 100}],
    "ClockInfo": [210, 1410, 1200],
    "Temperature": [30, 55, 60],
    "MemoryInfo": [{"used": 0}, {"used": 7 * 2**30}, {"used": 9 * 2**30}],
    "CurrentClocksThrottleReasons": [0x1, 0x4, 0x40],
    "EnforcedPowerLimit": 400000,
}


@pytest.fixture(autouse=True)
def own_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PACKAGE_FOLDER)


def sample_window(case, rank_info=FIRST, work=lambda: None, interval_seconds=60):
    """One sample at the start and one at the end of `work`, and between them by the interval."""
    sampler = Sampler(vary(case, telemetry_interval_seconds=interval_seconds), rank_info)
    sampler.await_ready()
    sampler.start_window()
    work()
    sampler.end_window()
    return sampler.finish()


def compute(seconds):
    """Keep one CPU busy for this time of it."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def list_new_children():
    """Child processes begun since the test did: an earlier one may have left some of Python's."""
    before = psutil.Process().children()
    return lambda: [one for one in psutil.Process().children() if one not in before]


def make_series(device=0, **columns):
    count = max(map(len, columns.values()))
    return DeviceSeries(device, "GPU", {"seconds": [float(i) for i in range(count)], **columns})


def summarize(*series):
    return summarize_samples([HostSamples("n1", 1.0, 0.1, series)])


def test_host_is_sampled_at_the_ends_of_the_window_and_between():
    samples = sample_window(CPU, work=lambda: compute(1.0), interval_seconds=0.1)
    (host,) = summarize_samples([samples])
    assert samples.problem == ""
    assert (host.host, host.device, host.interval_seconds) == ("n1", HOST, 0.1)
    first, *_, last = samples.series[0].columns["seconds"]
    # what has the least priority may miss its turn, but never takes more of them
    assert 2 < host.samples <= 2 + (last - first) / 0.1
    # a fraction of all CPUs, in clock ticks of 10 ms; other processes may take the rest
    assert 0.8 / os.cpu_count() < host.mean_utilization <= 1.01
    assert 0 <= host.stolen_share < 1
    assert 0 < host.peak_memory_bytes <= psutil.virtual_memory().total
    # of the sampler itself
    assert 0 < samples.cpu_seconds < 0.1


@pytest.mark.parametrize(
    ("busy", "stolen", "share"),
    [([5.0, 9.0], [1.0, 2.0], 0.25), ([5.0, 5.0], [1.0, 1.0], 0.0), ([5.0], [1.0], 0.0)],
)
def test_stolen_share_is_of_the_time_that_cpus_were_needed(busy, stolen, share):
    (host,) = summarize(make_series(HOST, cpu_busy_seconds=busy, cpu_stolen_seconds=stolen))
    assert host.stolen_share == pytest.approx(share)


@pytest.mark.parametrize(("rank_info", "interval_seconds"), [(SECOND, 60), (FIRST, 0)])
def test_other_ranks_of_a_host_and_an_interval_of_zero_are_no_sampling(rank_info, interval_seconds):
    assert sample_window(CPU, rank_info, interval_seconds=interval_seconds) == HostSamples("n1")


def test_gpu_figures_are_those_of_the_window_alone(fake_nvml):
    fake_nvml(A100, {**A100, "Name": "other"})
    samples = sample_window(CUDA, work=lambda: compute(0.2))
    _, gpu, other = summarize_samples([samples])
    assert [(one.device, one.name) for one in (gpu, other)] == [(0, "A100"), (1, "other")]
    assert gpu.samples == 2
    assert gpu.energy_joules == pytest.approx(3.0)
    first, last = samples.series[1].columns["seconds"]
    assert gpu.mean_power_watts == pytest.approx(3.0 / (last - first))
    assert gpu.mean_utilization == pytest.approx(0.95)
    assert (gpu.mean_clock_mhz, gpu.least_clock_mhz) == (1305, 1200)
    assert gpu.peak_temperature_celsius == 60
    assert gpu.peak_memory_bytes == 9 * 2**30
    assert gpu.throttle_reasons == ("power cap", "thermal slowdown by hardware")
    assert gpu.at_start == DeviceState(1410, 400, ("power cap",))
    assert gpu.at_end == DeviceState(1200, 400, ("thermal slowdown by hardware",))


def test_error_counters_that_grew_during_the_repeat_are_told(fake_nvml):
    # both are read before the window too: when drivers are initialized, and right before it
    growing = {
        "TotalEccErrors 0 0": [3, 3, 5],
        "TotalEccErrors 1 0": [0, 1, 2],
        "PcieReplayCounter": [7, 7, 7],
        "NvLinkErrorCounter": [1] * 16 + [2] * 4 + [1] * 4,
        "Xids": [31, None, None, 94, 94],
    }
    fake_nvml({**A100, **growing}, A100)
    _, gpu, other = summarize_samples([sample_window(CUDA)])
    assert gpu.errors == {
        "corrected ECC errors": 2,
        "uncorrected ECC errors": 1,
        "NVLink replays": 4,
        "Xid 94": 2,
    }
    assert other.errors == {}


def test_error_counters_of_ports_are_told(tmp_path):
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    for name, value in (("counters/link_downed", "2\n"), ("hw_counters/out_of_sequence", "40\n")):
        (port / name).parent.mkdir(parents=True)
        (port / name).write_text(value)
    host = HostSource(psutil, tmp_path)
    assert host.read_errors() == {"mlx5_0/1 link_downed": 2, "mlx5_0/1 out_of_sequence": 40}


def test_cpus_that_wait_for_files_are_not_busy(tmp_path):
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    times = SimpleNamespace(**dict(zip(names, (5.0, 0.0, 2.0, 10.0, 3.0, 1.0, 0.0, 0.0))))
    told = SimpleNamespace(cpu_times=lambda: times, virtual_memory=psutil.virtual_memory)
    now = HostSource(told, tmp_path).read()
    assert (now["cpu_busy_seconds"], now["cpu_total_seconds"]) == (8.0, 21.0)


def test_gpu_that_tells_no_power_has_the_rest_and_an_unknown_one_nothing(fake_nvml, monkeypatch):
    fake_nvml({"Name": "vGPU", "ClockInfo": 1000}, A100)
    gpu = summarize_samples([sample_window(CUDA)])[1]
    assert (gpu.name, gpu.mean_clock_mhz) == ("vGPU", 1000)
    assert (gpu.energy_joules, gpu.mean_power_watts, gpu.throttle_reasons) == (0, 0, ())
    # and one that NVML does not know is left out
    fake_nvml(A100)
    samples = sample_window(CUDA)
    assert [series.device for series in samples.series] == [HOST, 0]
    assert samples.problem == ""
    monkeypatch.delenv("FAKE_NVML")
    assert [series.device for series in sample_window(CUDA).series] == [HOST]


@pytest.mark.parametrize(
    ("gpu", "python", "says"),
    [
        ({"Name": "A100", "PowerUsage": [1000, "die"]}, sys.executable, "exit code 3"),
        ({"Name": "die"}, sys.executable, "not start"),
        ({}, "/nowhere/python", "not start: .*/nowhere/python"),
    ],
)
def test_sampler_that_dies_or_cannot_start_says_why(fake_nvml, monkeypatch, gpu, python, says):
    fake_nvml(gpu, A100)
    monkeypatch.setattr(sys, "executable", python)
    samples = sample_window(CUDA)
    assert samples == HostSamples("n1", problem=samples.problem)
    assert re.search(says, samples.problem)


def test_interrupted_sampler_goes_on_until_its_rank_ends(list_new_children, capfd):
    sampler = Sampler(CPU, FIRST)
    (process,) = list_new_children()
    # while it imports, and while it waits
    process.send_signal(signal.SIGINT)
    sampler.await_ready()
    assert process.nice() == 19
    process.send_signal(signal.SIGINT)
    sampler.start_window()
    sampler.end_window()
    assert sampler.finish().problem == ""
    assert list_new_children() == []
    assert "Traceback" not in capfd.readouterr().err
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_samples_are_gathered_written_and_problems_named(tmp_path):
    class World:
        def gather(self, value):
            return [value, HostSamples("n1"), HostSamples("n2", problem="the sampler died")]

    sampler = Sampler(CPU, FIRST)
    sampler.await_ready()
    sampler.start_window()
    sampler.end_window()
    telemetry, facts = gather_telemetry(World(), sampler, tmp_path)
    assert [one.host for one in telemetry] == ["n1"]
    assert facts == {"telemetry": "n2: the sampler died"}
    with numpy.load(str(tmp_path / SAMPLES_FILE)) as arrays:
        assert arrays["n1/-1/memory_bytes"].shape == (2,)


@pytest.mark.parametrize(
    ("columns", "figures"),
    [
        # without a counter: 200 W and 300 W over a second each
        (
            {"power_watts": [100.0, 300.0, 300.0]},
            {"energy_joules": 500.0, "mean_power_watts": 250.0},
        ),
        (
            {"energy_joules": [7.0, 9.0, 27.0], "power_watts": [1.0, 1.0, 1.0]},
            {"energy_joules": 20.0, "mean_power_watts": 10.0},
        ),
        # samples that could not be taken
        (
            {"clock_mhz": [math.nan, 900.0, 700.0], "power_watts": [math.nan, 10.0, 20.0]},
            {"mean_clock_mhz": 800.0, "least_clock_mhz": 700.0, "energy_joules": 15.0},
        ),
        # idling is no throttling
        ({"throttle_bits": [1.0, 0.0]}, {"throttle_reasons": ()}),
    ],
)
def test_figures_are_those_of_the_samples(columns, figures):
    (gpu,) = summarize(make_series(**columns))
    assert {name: getattr(gpu, name) for name in figures} == figures


@pytest.fixture
def zones(tmp_path):
    """Two packages, one with its memory apart, and what is counted in them already."""
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
    }
    folder = tmp_path / "sys/class/powercap"
    for zone, name in names.items():
        (folder / zone).mkdir(parents=True)
        (folder / zone / "name").write_text(name + "\n")
        (folder / zone / "max_energy_range_uj").write_text("10000000")
        (folder / zone / "energy_uj").write_text("9000000")
    return folder


def test_packages_and_memory_add_up_and_a_counter_that_wraps_around_goes_on(zones, tmp_path):
    counter = EnergyCounter(tmp_path)
    for zone in zones.iterdir():
        (zone / "energy_uj").write_text("9500000\n")
    # nothing counts twice
    assert counter.read_joules() == pytest.approx(3 * 0.5)
    (zones / "intel-rapl:1" / "energy_uj").write_text("400000")
    # 0.5 to the range and 0.4 from zero
    assert counter.read_joules() == pytest.approx(3 * 0.5 + 0.5 + 0.4)


def test_energy_that_is_not_counted_or_may_not_be_read_is_unknown(zones, tmp_path):
    assert math.isnan(EnergyCounter(tmp_path / "nowhere").read_joules())
    (zones / "intel-rapl:1" / "energy_uj").write_text("")
    assert math.isnan(EnergyCounter(tmp_path).read_joules())
    (zones / "intel-rapl:1" / "energy_uj").unlink()
    assert math.isnan(EnergyCounter(tmp_path).read_joules())


def test_cpus_of_ranks_beside_this_one_are_busy(tmp_path):
    ended_rank, other_rank = GREATEST_PID + 1, os.getpid()
    # and a process that is none of the launcher's, 7
    for pid, parent in ((ended_rank, 7), (other_rank, 7), (GREATEST_PID + 2, 8)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"1 (python (x) y) S {parent} {'0 ' * 20}")
    assert find_busy_cpus(ended_rank, tmp_path) == os.sched_getaffinity(other_rank)


GPU = {"Name": "A100", "PowerUsage": 250000, "ClockInfo": 1410}


@pytest.mark.integration
def test_record_has_the_telemetry_of_the_host_and_of_each_rank_s_gpu(tmp_path, monkeypatch, mpi):
    code_dir = frozen_code.freeze_with_spin(tmp_path / "code")
    shutil.copy(str(SUPPORT / "fake_pynvml.py"), str(code_dir / "pynvml.py"))
    monkeypatch.setenv("FAKE_NVML", json.dumps([GPU] * 3))
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, device="cuda", measured_steps=50)
    attempt.launch(step_seconds=0.01)
    record = attempt.read_record()
    assert record.status == OK, attempt.stderr
    assert [one.device for one in record.telemetry] == [HOST, 0, 1]
    gpu = record.telemetry[1]
    assert (gpu.mean_power_watts, gpu.mean_clock_mhz) == (250, 1410)
    # what lies between the first sample and the last is the window, and little else
    seconds = gpu.energy_joules / gpu.mean_power_watts
    assert seconds == pytest.approx(record.window_seconds, abs=0.3)
    with numpy.load(str(attempt.path / SAMPLES_FILE)) as samples:
        assert {name.rpartition("/")[0] for name in samples} == {
            f"{gpu.host}/{device}" for device in (HOST, 0, 1)
        }
    # the platform is that of the host and of all its ranks
    assert record.hosts == ()
    assert record.platform["gpu_models"] == "A100"
    assert record.platform["env.NCCL_ALGO"] == "Ring"
    assert record.platform["cpus_allowed"]
