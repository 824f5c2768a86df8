"""Checks of every framework on one GPU: clock, telemetry, energy, number formats, refusal."""

import pytest
from support import sessions
from support.gpu_attempts import make_attempt, run
from support.gpu_machine import list_gpus
from support.gpu_report import NOT_FOR_THIS_GPU

from dlperf_slurm.contract.record import FAILED, STEP_SECONDS_FILE
from dlperf_slurm.contract.step_archive import SAMPLES_FILE
from dlperf_slurm.worker.nvml import ask, find_handle, load_nvml
from dlperf_slurm.worker.peaks import PeakSettings, load_operations
from dlperf_slurm.worker.peaks.device_peak import find_best_seconds
from dlperf_slurm.worker.telemetry.series import ENERGY, POWER, SECONDS

PRODUCT_SIZE = 8192
PRODUCT_SECONDS = 5.0
# whose adapters take step boundaries as device events
WITH_EVENTS = ("mindspore", "paddle", "pytorch")
# GPUs with a much higher rate in TF32 than in fp32, by data sheet: A100, H100, B200
WITH_FAST_TF32 = {(8, 0), (9, 0), (10, 0)}


@pytest.fixture(scope="module")
def attempt(framework, tmp_path_factory):
    """Run ResNet-50 in fp16 for some seconds, for all tests of this file."""
    folder = tmp_path_factory.mktemp("attempt") / "a1"
    attempt = make_attempt(
        folder,
        framework,
        "resnet50",
        precision="amp-fp16",
        batch_size_per_device=64,
        warmup_steps=20,
        measured_steps=300,
        telemetry_interval_seconds=0.1,
    )
    run(attempt)
    return attempt


@pytest.fixture(scope="module")
def record(attempt):
    return attempt.read_record()


@pytest.fixture(scope="module")
def watched(record):
    """Return the telemetry of the GPU, not that of its host."""
    found = [one for one in record.telemetry if one.device == 0]
    assert found, f"no telemetry of the GPU: {record.platform.get('telemetry', 'no reason told')}"
    return found[0]


def test_steps_add_up_to_the_window(attempt, record, hold):
    """Compare device events, if the framework has them, with the host's window."""
    numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
    steps = numpy.load(attempt.path / STEP_SECONDS_FILE)
    difference = abs(float(steps.sum()) - record.window_seconds) / record.window_seconds
    hold(f"sum of steps off the window, by {record.clock.name}", 100 * difference, "%", most=2)
    hold("one boundary", 1e6 * record.clock.boundary_seconds, "us", most=100)


def test_clock_has_device_events_where_the_framework_has_them(framework, record):
    assert (record.clock.name == "cuda_event") == (framework in WITH_EVENTS)


def test_telemetry_and_adapter_name_the_same_gpu(record, watched):
    (rank,) = record.ranks
    assert rank.device_name == watched.name


def test_gpu_that_is_watched_is_the_one_that_works(watched, hold):
    hold("samples", watched.samples, least=10)
    hold("use", 100 * watched.mean_utilization, "%", least=50)
    hold("clock", watched.mean_clock_mhz, "MHz", least=200)


def test_frameworks_peak_memory_is_within_what_the_gpu_has_given(record, watched, hold):
    peak = record.ranks[0].peak_memory_bytes
    hold("peak of the framework", peak / 2**20, "MiB", least=100)
    hold("of what NVML saw", 100 * peak / watched.peak_memory_bytes, "%", most=105)


def test_energy_counter_agrees_with_power_over_time(attempt, hold):
    numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
    with numpy.load(attempt.path / SAMPLES_FILE) as arrays:
        columns = {
            name.rpartition("/")[2]: arrays[name]
            for name in arrays.files
            if name.split("/")[-2] == "0"
        }
    seconds, energy, power = (columns[name] for name in (SECONDS, ENERGY, POWER))
    if numpy.isnan(energy).all():
        pytest.skip(f"{NOT_FOR_THIS_GPU}NVML has no counter of its energy")
    known = ~(numpy.isnan(energy) | numpy.isnan(power))
    seconds, energy, power = seconds[known], energy[known], power[known]
    joules = float((numpy.diff(seconds) * (power[1:] + power[:-1]) / 2).sum())
    hold("counter", float(energy[-1] - energy[0]), "J", least=1)
    hold("counter over power x time", float(energy[-1] - energy[0]) / joules, least=0.85, most=1.15)


def test_tf32_is_twice_as_fast_as_fp32(framework, hold):
    rates = {}
    for number_format in ("fp32", "tf32"):
        rates[number_format] = sessions.run_elsewhere(measure_product, framework, number_format)
        hold(f"product in {number_format}", rates[number_format] / 1e12, "TFLOP/s")
    capability = find_capability()
    if capability not in WITH_FAST_TF32:
        name = ".".join(map(str, capability))
        pytest.skip(f"{NOT_FOR_THIS_GPU}TF32 of compute capability {name} need not be faster")
    hold("tf32 over fp32", rates["tf32"] / rates["fp32"], least=2)


def measure_product(framework, number_format):
    """Return the FLOP/s of a large product; run in a separate process, which frees its memory."""
    setting = PeakSettings("cuda", number_format, 1)
    product = load_operations(framework).make_product(setting, PRODUCT_SIZE)
    return 2 * PRODUCT_SIZE**3 / find_best_seconds(product, PRODUCT_SECONDS)


def find_capability():
    """Return the compute capability of the first GPU, as (major, minor), from NVML."""
    nvml = load_nvml()
    handle = find_handle(nvml, list_gpus()[0])
    return tuple(ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle))


def test_two_ranks_on_one_gpu_are_refused(framework, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", list_gpus()[0])
    attempt = make_attempt(tmp_path / "a1", framework, "resnet50", ranks=2)
    record = attempt.launch().conclude()
    assert record.status == FAILED
    assert "ranks 0 and 1 use the same GPU" in record.reason
