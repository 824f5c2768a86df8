"""Checks of PyTorch on two or more GPUs of a node: transport, scaling, and GPU of each rank."""

import os

import pytest
from support import sessions
from support.gpu_attempts import make_attempt, run
from support.gpu_machine import list_gpus
from support.gpu_timeline import list_transports

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import find_device_uuid

pytestmark = pytest.mark.gpus(2)
RESNET = {
    "precision": "amp-fp16",
    "batch_size_per_device": 64,
    "warmup_steps": 20,
    "measured_steps": 100,
}


def find_peer_access():
    """Return whether the first two GPUs can access each other's memory; for a separate process."""
    import torch

    return torch.cuda.can_device_access_peer(0, 1)


def test_nccl_goes_from_gpu_to_gpu_where_it_can(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl-%p.log"))
    run(make_attempt(tmp_path / "a1", "pytorch", "resnet50", ranks=2, **RESNET))
    logs = [path.read_text(errors="replace") for path in sorted(tmp_path.glob("nccl-*.log"))]
    transports = list_transports("\n".join(logs))
    assert transports, "NCCL's log names no channel"
    if sessions.run_elsewhere(find_peer_access):
        assert transports == ["P2P"]
    else:
        assert "NET" not in transports, "two GPUs of one node need no network"


def test_as_much_work_on_each_of_all_gpus_takes_hardly_longer(tmp_path, hold):
    gpus = len(list_gpus())
    alone = run(make_attempt(tmp_path / "a1", "pytorch", "resnet50", **RESNET)).samples_per_s
    hold("1 GPU", alone, "images/s")
    whole = run(make_attempt(tmp_path / "a2", "pytorch", "resnet50", ranks=gpus, **RESNET))
    hold(f"{gpus} GPUs", whole.samples_per_s, "images/s")
    hold("efficiency", 100 * whole.samples_per_s / (gpus * alone), "%", least=80)


def list_uuids(visible):
    """Return torch's UUIDs of all GPUs, in the order of this CUDA_VISIBLE_DEVICES."""
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    import torch

    return [
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]


def test_nvml_finds_each_ranks_gpu_in_another_order():
    visible = ",".join(reversed(list_gpus()))
    driven = sessions.run_elsewhere(list_uuids, visible)
    ranks = len(driven)
    case = sessions.make_case("pytorch", "bert", device="cuda", devices_per_node=ranks)
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
    found = [
        find_device_uuid(case, RankInfo(rank, rank, ranks, "here", "127.0.0.1", 0), environ)
        for rank in range(ranks)
    ]
    assert [uuid.partition("-")[2] for uuid in found] == driven
