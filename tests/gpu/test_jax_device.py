"""A check of JAX on one GPU: the idle time of the GPU between two steps."""

import pytest
from support import sessions
from support.gpu_timeline import find_gap_between_steps

STEPS = 20
# a step of BERT base at this batch size takes tens of milliseconds on any GPU
BATCH_SIZE = 32
LARGEST_SHARE = 0.05


def test_gpu_hardly_waits_between_steps(tmp_path, hold):
    jax = pytest.importorskip("jax", reason="needs JAX: make gpu-environments")
    case = sessions.make_case(
        "jax",
        "bert",
        device="cuda",
        model_parameters={},
        precision="amp-bf16",
        batch_size_per_device=BATCH_SIZE,
    )
    session = sessions.start(case)
    for _ in range(3):
        session.step()
    session.synchronize()
    # the host is one step ahead of the GPU, as in the measuring loop
    clock = session.make_clock(STEPS + 1)
    with jax.profiler.trace(str(tmp_path)):
        clock.mark(0)
        for index in range(1, STEPS + 1):
            session.step()
            clock.mark(index)
        session.synchronize()
    intervals = read_kernels(jax, tmp_path)
    assert intervals, "the profiler saw no kernel: may this user read the GPU's counters?"
    gap_seconds = find_gap_between_steps(intervals, STEPS)
    step_seconds = (max(end for _, end in intervals) - min(intervals)[0]) / STEPS
    hold("step", 1e3 * step_seconds, "ms")
    hold("gap between steps", 1e3 * gap_seconds, "ms")
    hold("of a step", 100 * gap_seconds / step_seconds, "%", most=100 * LARGEST_SHARE)


def read_kernels(jax, folder):
    """Read start and end in seconds of the kernels on the GPU, from the profile in a folder."""
    (path,) = folder.rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(path))
    return [
        (1e-9 * event.start_ns, 1e-9 * event.end_ns)
        for plane in profile.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
