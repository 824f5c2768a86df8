"""Checks of PyTorch on one GPU: its device, its kernels, its memory."""

import json
import os
import re
from pathlib import Path

import pytest
from support import sessions
from support.gpu_report import NOT_FOR_THIS_GPU

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import find_device_uuid
from dlperf_slurm.worker.out_of_memory import is_out_of_memory

# model -> patterns for names of kernels in a step: "own" of torch itself, and by precision those
# that must match ("some") and must not match ("none") a library's kernel
EXPECTED = json.loads(Path(__file__).with_name("expected_kernels.json").read_text("utf-8"))
SIZES = {
    "bert": {"layers": 2},
    "llama": {"layers": 2},
    "resnet50": {"image_size": 64, "stage_blocks": (1, 1, 1, 1), "classes": 10},
    "vit": {"layers": 2},
}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch: make gpu-environments")


def make_case(model, **changes):
    sizes = {**changes.pop("model_parameters", {}), **SIZES[model]}
    return sessions.make_case("pytorch", model, device="cuda", model_parameters=sizes, **changes)


def test_nvml_finds_the_gpu_that_torch_drives(torch):
    case = make_case("bert")
    uuid = find_device_uuid(case, RankInfo(0, 0, 1, "here", "127.0.0.1", 0), os.environ)
    # torch's UUID has no prefix "GPU-" or "MIG-"
    assert uuid.partition("-")[2] == str(torch.cuda.get_device_properties(0).uuid)


@pytest.mark.parametrize("model", sorted(EXPECTED["pytorch"]))
@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp-bf16", "amp-fp16"])
def test_step_runs_the_expected_kernels(torch, model, precision):
    if precision in ("tf32", "amp-bf16") and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip(f"{NOT_FOR_THIS_GPU}{precision} needs compute capability 8.0")
    batch = make_case(model, precision=precision, batch_size_per_device=32)
    names = list_kernels(torch, sessions.start(batch))
    own, expected = EXPECTED["pytorch"][model]["own"], EXPECTED["pytorch"][model][precision]
    text = "\n".join(names)
    missing = [pattern for pattern in own + expected["some"] if not re.search(pattern, text)]
    found = [pattern for pattern in expected["none"] if re.search(pattern, text)]
    assert not missing, f"no kernel has {missing}, of:\n{text}"
    assert not found, f"a kernel has {found}, of:\n{text}"


def list_kernels(torch, session):
    """List the names of the kernels of one step, after steps that select algorithms."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        session.step()
    session.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        session.step()
        session.synchronize()
    names = {event.name for event in seen.events() if event.device_type == DeviceType.CUDA}
    assert names, "the profiler saw no kernel: may this user read the GPU's counters?"
    return sorted(names)


def test_error_of_a_library_in_a_full_memory_is_out_of_memory(torch, tmp_path):
    """Fail cuBLAS at its first use, when it allocates its workspace, in a separate process."""
    said = sessions.run_elsewhere(fail_in_a_full_memory)
    assert said is None or said[1], f"not taken for a lack of memory: {said[0]}"


def fail_in_a_full_memory():
    """Return the error of a product in a full memory and whether it is out of memory, or None.

    The two matrices are allocated first, so that the library's own memory is what is missing.
    """
    import torch

    from dlperf_slurm.worker.frameworks import load_adapter

    matrix = torch.ones(64, 64, device="cuda")
    taken = []
    for mib in (1024, 64, 2):
        try:
            while True:
                taken.append(torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            torch.cuda.synchronize()
    try:
        matrix @ matrix
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error), is_out_of_memory(error, load_adapter("pytorch").OUT_OF_MEMORY)
    return None
