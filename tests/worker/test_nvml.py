"""The GPU that a rank drives, and that is watched for it, whichever it sees.

Once by a pynvml of the tests, and once by the real one over a library of theirs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import attempts, frozen_code
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.contract.record import FAILED
from dlperf_slurm.worker import nvml as nvml_module
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import (
    HOST_PROCESSES,
    ask,
    compare_devices,
    find_device_uuid,
    find_handle,
    load_nvml,
    read_own_memory_bytes,
)
from dlperf_slurm.worker.ranks import PlacementError
from dlperf_slurm.worker.telemetry.gpu_sources import choose_devices, open_devices
from dlperf_slurm.worker.telemetry.series import MEMORY, POWER

RANKS = 8
CUDA = vary(CASE, device="cuda", devices_per_node=RANKS)
PLACEMENTS = [RankInfo(rank, rank, RANKS, "n1", "127.0.0.1", 0) for rank in range(RANKS)]
SUPPORT = Path(__file__).parents[1] / "support"
LIBRARY = SUPPORT / "nvml_library.c"

ALL = {rank: rank for rank in range(RANKS)}
# what CUDA_VISIBLE_DEVICES is -> the GPU of each rank, by its number; those of MIG are `MIG`
MIG = -1
VISIBLE = [
    (None, ALL),
    ("0,1,2,3,4,5,6,7", ALL),
    ("7,6,5,4,3,2,1,0", {rank: 7 - rank for rank in range(RANKS)}),
    # fewer than ranks: those that see none of their own fail by themselves
    ("7,6,5,4", {0: 7, 1: 6, 2: 5, 3: 4}),
    ("GPU-5, GPU-2", {0: 5, 1: 2}),
    # as srun --gpus-per-task=1 has it: each rank sees its own only
    ("3", dict.fromkeys(range(RANKS), 3)),
    ("GPU-5", dict.fromkeys(range(RANKS), 5)),
    ("MIG-1", dict.fromkeys(range(RANKS), MIG)),
    ("2,1,-1,0", {0: 2, 1: 1}),
    # all ranks are given the only one before a number that no GPU has
    ("0,9,1", dict.fromkeys(range(RANKS), 0)),
    ("-1", {}),
    ("", {}),
]


def find_watched(environ):
    """Return the monitored GPUs by local rank, and assert that none is monitored twice."""
    watched = {}
    for rank_info in PLACEMENTS:
        chosen = choose_devices(CUDA, rank_info, environ)
        assert not set(chosen) & set(watched)
        watched.update(chosen)
    return watched


def find_uuid(name):
    nvml = load_nvml()
    return ask(nvml, "nvmlDeviceGetUUID", find_handle(nvml, name))


def check_devices(environ, gpus):
    uuids = {rank: "MIG-1" if gpu == MIG else f"GPU-{gpu}" for rank, gpu in gpus.items()}
    driven = [find_device_uuid(CUDA, rank_info, environ) for rank_info in PLACEMENTS]
    assert {rank: uuid for rank, uuid in enumerate(driven) if uuid} == uuids
    watched = find_watched(environ)
    assert {rank: find_uuid(name) for rank, name in watched.items()} == uuids
    assert [source.device for source in open_devices(watched)] == sorted(gpus)


@pytest.mark.parametrize(("visible", "gpus"), VISIBLE)
def test_gpu_that_is_watched_is_the_one_that_is_driven(fake_nvml, visible, gpus):
    fake_nvml(*({"UUID": f"GPU-{index}"} for index in range(RANKS)), {"UUID": "MIG-1"})
    check_devices({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, gpus)


def test_real_pynvml_finds_the_same(tmp_path, monkeypatch):
    """In a process of its own, as pynvml keeps the library that it has loaded."""
    pytest.importorskip("pynvml", reason="needs pynvml: pip install nvidia-ml-py")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, for a library that answers as NVML does: apt-get install gcc")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(LIBRARY)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    folders = [str(Path(__file__).parent), str(SUPPORT.parent), str(SUPPORT.parents[1])]
    program = f"import sys; sys.path[:0] = {folders!r}; import test_nvml; test_nvml.check_all()"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert (done.returncode, done.stdout.decode()) == (0, f"checked: {len(VISIBLE)}\n")


def check_all():
    """All that CUDA_VISIBLE_DEVICES may be, and one sample."""
    for visible, gpus in VISIBLE:
        check_devices({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, gpus)
    (source,) = open_devices({0: "3"})
    sample = source.read()
    assert (source.name, sample[POWER], sample[MEMORY]) == ("NVIDIA H100", 503.0, 50 * 2**30)
    print(f"checked: {len(VISIBLE)}")


def test_nothing_is_known_without_a_driver_or_of_cpus(fake_nvml, monkeypatch):
    fake_nvml({"UUID": "GPU-a"})
    # one GPU is that of all ranks
    assert {find_device_uuid(CUDA, rank, {}) for rank in PLACEMENTS} == {"GPU-a"}
    assert find_device_uuid(CASE, PLACEMENTS[0], {}) == ""
    monkeypatch.delenv("FAKE_NVML")
    assert find_device_uuid(CUDA, PLACEMENTS[0], {}) == ""
    visible = {"CUDA_VISIBLE_DEVICES": "4, 5"}
    assert choose_devices(CUDA, PLACEMENTS[1], visible) == {1: "5"}


@pytest.mark.parametrize(
    ("listed", "space", "expected"),
    [
        ([("other", 5), ("own", 7)], HOST_PROCESSES, 7),
        # once per compute instance
        ([("own", 7), ("own", 2)], HOST_PROCESSES, 9),
        ([("other", 5)], HOST_PROCESSES, 0),
        ([("own", None)], HOST_PROCESSES, 0),
        ([("own", 2**64 - 1)], HOST_PROCESSES, 0),
        (None, HOST_PROCESSES, 0),
        ("mismatch", HOST_PROCESSES, 0),
        # in a container the id of this process may be that of another one
        ([("own", 7)], "pid:[4026532212]", 0),
        ([("own", 7)], None, 0),
    ],
)
def test_memory_is_that_of_this_process_or_unknown(
    fake_nvml, tmp_path, monkeypatch, listed, space, expected
):
    ids = {"own": os.getpid(), "other": os.getpid() + 1}
    # successive answers are a list, so that one answer is a list of a list
    told = (
        [[{"pid": ids[who], "usedGpuMemory": used} for who, used in listed]]
        if isinstance(listed, list)
        else listed
    )
    fake_nvml({}, {"ComputeRunningProcesses": told})
    link = tmp_path / "space"
    if space:
        link.symlink_to(space)
    monkeypatch.setattr(nvml_module, "PROCESS_SPACE", str(link))
    assert read_own_memory_bytes(1) == expected
    assert read_own_memory_bytes(0) == 0
    monkeypatch.delenv("FAKE_NVML")
    assert read_own_memory_bytes(1) == 0


def test_ranks_that_share_a_gpu_are_named():
    devices = [("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "GPU-c"), ("n2", "GPU-c")]
    with pytest.raises(PlacementError, match=r"ranks 2 and 3 .*GPU-c on n2"):
        compare_devices(devices)
    compare_devices([("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "GPU-a")])
    compare_devices([("n1", ""), ("n1", "")])


def test_launched_ranks_that_share_a_gpu_give_a_failed_record(tmp_path, monkeypatch, mpi):
    code_dir = frozen_code.freeze_with_spin(tmp_path / "code")
    shutil.copy(str(SUPPORT / "fake_pynvml.py"), str(code_dir / "pynvml.py"))
    monkeypatch.setenv("FAKE_NVML", json.dumps([{"UUID": "GPU-a"}]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    record = attempts.Attempt(tmp_path / "a1", code_dir, device="cuda").launch().conclude()
    assert record.status == FAILED
    assert re.search("ranks 0 and 1 .*GPU-a on ", record.reason)
