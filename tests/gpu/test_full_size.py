"""Trainings at full size, by model and precision: throughput, clock, memory, power, ceilings.

What depends on the GPU is reported without a bound.
"""

import pytest
from support.attempts import unfold
from support.gpu_attempts import choose_work, make_attempt, run
from support.gpu_report import NOT_FOR_THIS_GPU
from support.sessions import make_definition

from dlperf_slurm.contract.axes import LARGEST
from dlperf_slurm.contract.record import STEP_SECONDS_FILE
from dlperf_slurm.worker.peaks.measure import run_measurement

pytestmark = pytest.mark.any_device
# the most wanted first, as the time may end
SETTINGS = (
    ("amp-bf16", "plain"),
    ("amp-bf16", "torch.compile"),
    ("tf32", "plain"),
    ("amp-fp16", "plain"),
    ("fp32", "plain"),
)
# of a model's operations, forward and backward, those of the forward pass
TRAINING_FLOPS_FACTOR = 3


@pytest.mark.parametrize("model", ["resnet50", "bert", "llama", "vit"])
@pytest.mark.parametrize(("precision", "compiler"), SETTINGS)
def test_training_runs_at_full_size(framework, device, model, precision, compiler, tmp_path, hold):
    if device == "cpu" and compiler == "torch.compile":
        pytest.skip(f"{NOT_FOR_THIS_GPU}compiling takes minutes on a CPU")
    compilers = {} if compiler == "plain" else {"compiler": compiler}
    changes = {**choose_work(model, device), **compilers, "precision": precision}
    attempt = make_attempt(tmp_path / "a1", framework, **changes)
    record = run(attempt)
    numpy = pytest.importorskip("numpy")
    steps = read_steps(attempt)
    hold("throughput", record.samples_per_s, "samples/s")
    hold("step", 1e3 * float(numpy.median(steps)), "ms")
    hold("variation of steps", 100 * float(steps.std() / steps.mean()), "%")
    hold("peak memory", record.ranks[0].peak_memory_bytes / 2**20, "MiB")
    flops = TRAINING_FLOPS_FACTOR * make_definition(attempt.case).flops_per_sample
    rate = flops * record.samples_per_s
    hold("rate", rate / 1e12, "TFLOP/s")
    for one in (one for one in record.telemetry if one.device >= 0):
        hold("power", one.mean_power_watts, "W")
        hold("least clock", one.least_clock_mhz, "MHz")
        reasons = ", ".join(one.throttle_reasons)
        hold("reasons that held clocks down", len(one.throttle_reasons), reasons)
    is_gpu = device == "cuda"
    difference = abs(float(steps.sum()) / record.window_seconds - 1)
    clock = f"sum of steps off the window, by {record.clock.name}"
    hold(clock, 100 * difference, "%", most=2 if is_gpu else None)
    peak = measure_peak(framework, precision, attempt.case) if is_gpu else None
    if peak and not peak.problem:
        hold("of the sustained product", 100 * rate / peak.flops_per_s, "%", most=100)


def read_steps(attempt):
    numpy = pytest.importorskip("numpy")
    unfold(attempt.path)
    return numpy.load(attempt.path / STEP_SECONDS_FILE)


# axes, and the least and the most of time and memory as a share of the plain step's
WAYS = [
    ({"activation_checkpointing": True}, (1.0, 2.5), (0.1, 0.9)),
    ({"gradient_sync": "sharded"}, (0.7, 1.5), (0.5, 1.5)),
    ({"data": "host"}, (0.9, 1.1), (0.9, 1.1)),
    ({"gradient_accumulation": 2}, (1.7, 2.1), (0.8, 1.2)),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way[0])))
def test_step_done_in_another_way_takes_its_time_and_memory(framework, device, way, tmp_path, hold):
    axes, seconds, memory = way
    is_gpu = device == "cuda"
    found = []
    for name, own in (("plain", {}), ("other", axes)):
        changes = {"precision": "amp-bf16" if is_gpu else "fp32", **choose_work("llama", device)}
        attempt = make_attempt(tmp_path / name, framework, **{**changes, **own})
        record = run(attempt)
        step_seconds = float(read_steps(attempt).mean())
        peak_bytes = record.ranks[0].peak_memory_bytes
        hold(f"{name} step", 1e3 * step_seconds, "ms")
        hold(f"{name} memory", peak_bytes / 2**20, "MiB")
        found.append((step_seconds, peak_bytes))
    for what, bounds, plain, own in zip(("step", "memory"), (seconds, memory), *found):
        least, most = bounds if is_gpu else (None, None)
        hold(f"{what}, of plain", own / plain, least=least, most=most)


_PEAKS = {}


def measure_peak(framework, precision, case):
    """Measure the peak of a framework's products once for each precision."""
    if (framework, precision) not in _PEAKS:
        _PEAKS[framework, precision] = run_measurement(case, "here")
    return _PEAKS[framework, precision]


def test_largest_batch_is_found(framework, device, tmp_path, hold):
    is_gpu = device == "cuda"
    sizes = {"batch_size_step": 256} if is_gpu else {"batch_size_step": 64}
    limit = {} if is_gpu else {"memory_limit_bytes": 720 * 2**20}
    changes = {**choose_work("resnet50", device), **sizes, **limit}
    changes.update(batch_size_per_device=LARGEST, warmup_steps=2, measured_steps=5)
    changes["precision"] = "amp-bf16" if is_gpu else "fp32"
    attempt = make_attempt(tmp_path / "a1", framework, **changes)
    record = attempt.search().conclude()
    assert record.status == "ok", f"{record.reason}\n{attempt.stderr[-2000:]}"
    for trial in record.batch_trials:
        hold(
            "lacks memory" if trial.is_out_of_memory else "fits",
            trial.batch_size_per_device,
            f"images, {trial.seconds:.0f} s",
        )
    assert any(trial.is_out_of_memory for trial in record.batch_trials)
    hold("largest batch", record.case.axes.batch_size, "images", least=1)
