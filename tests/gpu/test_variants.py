"""Ways to run PyTorch's steps beside each other: layouts, and modes of torch.compile."""

import functools
import statistics
import time

import pytest
from support import sessions
from support.gpu_attempts import choose_work
from support.gpu_report import NOT_FOR_THIS_GPU

pytestmark = pytest.mark.any_device
STEPS, WINDOWS = 20, 3
EAGER, COMPILED = ("eager", {}), ("torch.compile", {"compiler": "torch.compile"})
LAYOUTS = [(name, {"memory_format": name}) for name in ("default", "channels_last")]
INFERENCE = {"mode": "infer"}
GRAPHS, TUNED = ((name, {"compiler": name}) for name in ("reduce-overhead", "max-autotune"))
# model, axes of both, and the two ways; the latter is expected to be faster
PAIRS = [
    ("resnet50", {}, *LAYOUTS),
    ("resnet50", INFERENCE, *LAYOUTS),
    ("resnet50", INFERENCE, EAGER, COMPILED),
    ("llama", {}, EAGER, COMPILED),
    ("llama", {}, COMPILED, GRAPHS),
    ("llama", {}, COMPILED, TUNED),
    ("bert", {}, EAGER, COMPILED),
    ("bert", {}, COMPILED, GRAPHS),
    ("bert", {}, COMPILED, TUNED),
    ("resnet50", {}, EAGER, COMPILED),
    ("resnet50", {}, COMPILED, GRAPHS),
    ("vit", {}, EAGER, COMPILED),
]


def name_pair(pair):
    model, axes, (usual, _), (other, _) = pair
    return "-".join([model, axes.get("mode", "train"), usual, other])


@pytest.mark.parametrize("pair", PAIRS, ids=name_pair)
def test_faster_way_is_no_slower(pair, device, hold):
    model, axes, *ways = pair
    is_gpu = device == "cuda"
    if not is_gpu and any("compiler" in own for _, own in ways):
        pytest.skip(f"{NOT_FOR_THIS_GPU}compiling takes minutes on a CPU")
    seconds = [time_way(model, device, *sorted({**axes, **own}.items())) for _, own in ways]
    for (name, _), one in zip(ways, seconds):
        hold(name, 1e3 * one, "ms")
    hold("ratio", seconds[0] / seconds[1], least=0.97 if is_gpu else None)


@functools.cache
def time_way(model, device, *axes):
    """Time a way once for all pairs."""
    return sessions.run_elsewhere(time_step, model, device, dict(axes))


def time_step(model, device, axes):
    """Return the median seconds per step."""
    is_gpu = device == "cuda"
    precision = "amp-bf16" if is_gpu else "fp32"
    work = {**choose_work(model, device), "precision": precision, **axes}
    if work.get("mode") == "infer":
        work["clip_global_norm"] = False
    case = sessions.make_case("pytorch", **work)
    session = sessions.start(case)
    step = session.infer if work.get("mode") == "infer" else session.step
    steps = STEPS if is_gpu else 1
    for _ in range(case.warmup_steps):
        step()
    windows = []
    for _ in range(WINDOWS):
        session.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            step()
        session.synchronize()
        windows.append((time.perf_counter() - started) / steps)
    return statistics.median(windows)
