"""A rank's GPU and its CPUs: on one NUMA node or not, by a sysfs and an NVML of the test's own."""

import os

import pytest

from dlperf_slurm.worker.provenance.gpu_affinity import (
    describe_gpu_affinity,
    list_allowed_nodes,
    parse_ranges,
    read_gpu_node,
)

GPUS = (
    {"PciInfo": {"busId": "00000000:3B:00.0"}},
    {"PciInfo": {"busId": "00000000:AF:00.0"}},
    {"UUID": "MIG-1"},
)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Two nodes of four CPUs with a GPU each; the process may use the CPUs of the first."""
    for name, text in {
        "sys/devices/system/node/node0/cpulist": "0-1,4-5",
        "sys/devices/system/node/node1/cpulist": "2-3,6-7",
        "sys/bus/pci/devices/0000:3b:00.0/numa_node": "0",
        "sys/bus/pci/devices/0000:af:00.0/numa_node": "1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4})
    return tmp_path


def test_gpu_of_the_same_node_is_near_and_one_of_another_is_far(fake_nvml, host):
    fake_nvml(*GPUS)
    near, far = (describe_gpu_affinity(rank, {}, host) for rank in (0, 1))
    assert near == {"gpu_numa_node": "0", "cpu_numa_nodes": "0", "gpu_affinity": "near"}
    assert far == {"gpu_numa_node": "1", "cpu_numa_nodes": "0", "gpu_affinity": "far"}


def test_it_is_the_gpu_that_the_rank_drives(fake_nvml, host):
    fake_nvml(*GPUS)
    found = describe_gpu_affinity(0, {"CUDA_VISIBLE_DEVICES": "1,0"}, host)
    assert found["gpu_affinity"] == "far"


def test_cpus_of_both_nodes_are_near_to_either(fake_nvml, host, monkeypatch):
    fake_nvml(*GPUS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 3})
    found = describe_gpu_affinity(1, {}, host)
    assert (found["cpu_numa_nodes"], found["gpu_affinity"]) == ("0-1", "near")


def test_nothing_is_said_of_what_is_not_known(fake_nvml, host, tmp_path, monkeypatch):
    fake_nvml(*GPUS)
    # an instance of MIG, a rank without a GPU, a machine without nodes
    assert describe_gpu_affinity(2, {}, host) == {}
    assert describe_gpu_affinity(3, {}, host) == {}
    assert describe_gpu_affinity(0, {}, tmp_path / "none") == {}
    (host / "sys/bus/pci/devices/0000:3b:00.0/numa_node").write_text("-1\n")
    assert describe_gpu_affinity(0, {}, host) == {}
    monkeypatch.delenv("FAKE_NVML")
    assert describe_gpu_affinity(1, {}, host) == {}


def test_earlier_pynvml_answers_in_bytes(host):
    assert read_gpu_node(b"00000000:AF:00.0", host) == "1"


def test_lists_of_cpus_are_read_as_linux_writes_them(host):
    assert parse_ranges("0-2,8") == {0, 1, 2, 8}
    assert parse_ranges("") == set()
    assert list_allowed_nodes({5, 6}, host) == [0, 1]
