"""The ceilings of one GPU by torch alone, beside those that a benchmark's record has."""

import statistics
import time

import pytest
from support.gpu_report import NOT_FOR_THIS_GPU

from dlperf_slurm.worker.peaks import PeakSettings, load_operations
from dlperf_slurm.worker.peaks.device_peak import measure_sustained

pytestmark = pytest.mark.any_device
FORMATS = ("bf16", "fp16", "tf32", "fp32")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch: make gpu-environments")


def time_calls(torch, device, call, least_seconds):
    """Return seconds per call: the best of samples, and the median of the second half of them."""
    samples, calls = [], 10 if device == "cuda" else 1
    call()
    deadline = time.perf_counter() + least_seconds
    while len(samples) < 2 or time.perf_counter() < deadline:
        synchronize(torch, device)
        started = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize(torch, device)
        samples.append((time.perf_counter() - started) / calls)
    return min(samples), statistics.median(samples[len(samples) // 2 :])


def synchronize(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


@pytest.mark.parametrize("number_format", FORMATS)
def test_product_that_records_have_is_the_one_of_random_numbers(torch, device, number_format, hold):
    is_gpu = device == "cuda"
    size, seconds = (8192, 2.0) if is_gpu else (128, 0.05)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(number_format, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = number_format == "tf32"
    rates = {}
    for values in ("ones", "randn"):
        matrix = getattr(torch, values)(size, size, device=device, dtype=kind)
        out = torch.empty_like(matrix)
        found = time_calls(torch, device, lambda m=matrix, o=out: torch.mm(m, m, out=o), seconds)
        best, sustained = (2 * size**3 / one / 1e12 for one in found)
        hold(f"{values}, best", best, "TFLOP/s")
        hold(f"{values}, sustained", sustained, "TFLOP/s")
        rates[values] = sustained
    product = load_operations("pytorch").make_product(PeakSettings(device, number_format, 1), size)
    own = 2 * size**3 / measure_sustained(product, seconds) / 1e12
    hold("that of records", own, "TFLOP/s")
    bounds = {"least": 0.9, "most": 1.1} if is_gpu else {}
    hold("that of records over random numbers", own / rates["randn"], **bounds)


@pytest.mark.parametrize("mib", [256, 2048])
def test_copies(torch, device, mib, hold):
    """Report the rate, reads plus writes, without a bound, as it depends on the GPU."""
    count = mib * 2**18 if device == "cuda" else 2**16
    array = torch.ones(count, device=device)
    copy = torch.empty_like(array)
    best, sustained = time_calls(torch, device, lambda: copy.copy_(array), 0.3)
    hold("best", 2 * 4 * count / best / 1e9, "GB/s")
    hold("sustained", 2 * 4 * count / sustained / 1e9, "GB/s")


def test_events_agree_with_the_hosts_clock(torch, device, hold):
    if device != "cuda":
        pytest.skip(f"{NOT_FOR_THIS_GPU}a CPU has no events")
    matrix = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.mm(matrix, matrix, out=out)
    torch.cuda.synchronize()
    started = time.perf_counter()
    first.record()
    for _ in range(200):
        torch.mm(matrix, matrix, out=out)
    last.record()
    torch.cuda.synchronize()
    host_seconds = time.perf_counter() - started
    ratio = first.elapsed_time(last) / 1e3 / host_seconds
    hold("events over host", ratio, least=0.98, most=1.02)
