"""Text generation by a full-size LLaMA: times of prefill and tokens, and the weights' bandwidth."""

import pytest
from support.attempts import unfold
from support.gpu_attempts import choose_work, make_attempt, run
from support.gpu_report import NOT_FOR_THIS_GPU
from support.sessions import make_definition

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.record import TOKEN_SECONDS_FILE
from dlperf_slurm.worker.frameworks import load_adapter

pytestmark = pytest.mark.any_device
COMPILERS = ("none", "xla", "torch.compile", "reduce-overhead")
# more than any GPU's memory had in 2026
MOST_BYTES_PER_SECOND = 12e12
BF16_BYTES = 2


@pytest.mark.parametrize("batch_size", [1, 32])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_text_is_generated(framework, device, compiler, batch_size, tmp_path, hold):
    numpy = pytest.importorskip("numpy")
    is_gpu = device == "cuda"
    if compiler not in load_adapter(framework).SUPPORTED["compiler"]:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{framework} has no {compiler}")
    if not is_gpu and compiler not in ("none", "xla"):
        pytest.skip(f"{NOT_FOR_THIS_GPU}compiling takes minutes on a CPU")
    changes = {
        **choose_work("llama", device),
        "mode": INFER,
        "clip_global_norm": False,
        "compiler": compiler,
        "precision": "bf16" if is_gpu else "fp32",
        "batch_size_per_device": batch_size,
        "prompt_length": 512 if is_gpu else 4,
        "output_tokens": 64 if is_gpu else 4,
        "warmup_steps": 3,
        "measured_steps": 10,
    }
    attempt = make_attempt(tmp_path / "a1", framework, **changes)
    record = run(attempt)
    unfold(attempt.path)
    # [ranks, steps, tokens]
    seconds = numpy.load(attempt.path / TOKEN_SECONDS_FILE)
    prefill, token = float(numpy.median(seconds[..., 0])), float(numpy.median(seconds[..., 1:]))
    hold("generations", record.samples_per_s, "samples/s")
    hold("prefill", 1e3 * prefill, "ms")
    hold("token", 1e3 * token, "ms")
    hold("peak memory", record.ranks[0].peak_memory_bytes / 2**20, "MiB")
    weights, _ = make_definition(attempt.case).count_decoded_values(batch_size, 0.0)
    weight_bytes = BF16_BYTES * weights
    hold("weights", 1e-9 * weight_bytes / token, "GB/s", most=1e-9 * MOST_BYTES_PER_SECOND)
    hold("prefill over token", prefill / token)
