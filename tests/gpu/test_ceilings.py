"""The peak of one GPU that a benchmark's record has, beside that of torch alone."""

import statistics
import time

import pytest

from dlperf_slurm.worker.peaks import PeakSettings, load_operations
from dlperf_slurm.worker.peaks.device_peak import measure_sustained

pytestmark = pytest.mark.any_device


@pytest.mark.parametrize("number_format", ["bf16", "fp16", "tf32", "fp32"])
def test_product_that_records_have_is_the_one_of_random_numbers(device, number_format, hold):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make gpu-environments")
    is_gpu = device == "cuda"
    size, seconds = (8192, 2.0) if is_gpu else (128, 0.05)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(number_format, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = number_format == "tf32"
    matrix = torch.randn(size, size, device=device, dtype=kind)
    out = torch.empty_like(matrix)

    def multiply():
        for _ in range(10 if is_gpu else 1):
            torch.mm(matrix, matrix, out=out)
        if is_gpu:
            torch.cuda.synchronize()

    flops = 2 * size**3
    random = flops * (10 if is_gpu else 1) / time_calls(multiply, seconds)
    product = load_operations("pytorch").make_product(PeakSettings(device, number_format, 1), size)
    own = flops / measure_sustained(product, seconds)
    hold("random numbers, sustained", random / 1e12, "TFLOP/s")
    hold("that of records", own / 1e12, "TFLOP/s")
    bounds = {"least": 0.9, "most": 1.1} if is_gpu else {}
    hold("that of records over random numbers", own / random, **bounds)


def time_calls(call, least_seconds):
    """Return the median seconds of a call, in the second half of this time."""
    samples = []
    call()
    deadline = time.perf_counter() + least_seconds
    while len(samples) < 2 or time.perf_counter() < deadline:
        started = time.perf_counter()
        call()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples[len(samples) // 2 :])
