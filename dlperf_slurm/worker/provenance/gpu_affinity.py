"""A rank's GPU and its CPUs -> whether they share a NUMA node, according to NVML and sysfs."""

import os
from pathlib import Path
from typing import Dict, Mapping, Set

from dlperf_slurm.worker.host import ROOT, list_folder, read_text
from dlperf_slurm.worker.nvml import ask, find_own_handle, load_nvml
from dlperf_slurm.worker.provenance.machine import NODES, format_ranges

AFFINITY = "gpu_affinity"
NEAR = "near"
FAR = "far"


def describe_gpu_affinity(
    local_rank: int, environ: Mapping[str, str], root: Path = ROOT
) -> Dict[str, str]:
    """Return the NUMA nodes of this rank's GPU and CPUs, and whether they are NEAR or FAR.

    The keys are gpu_numa_node, cpu_numa_nodes and gpu_affinity. Returns {} if not known: without
    NVML, in a virtual machine without NUMA information, and for a MIG instance, which has no PCI
    address of its own.
    """
    nvml = load_nvml()
    if nvml is None:
        return {}
    handle = find_own_handle(nvml, local_rank, environ)
    bus = None if handle is None else ask(nvml, "nvmlDeviceGetPciInfo", handle)
    node = "" if bus is None else read_gpu_node(bus.busId, root)
    cpus = os.sched_getaffinity(0)
    allowed = sorted(number for number, own in list_node_cpus(root).items() if cpus & own)
    near = find_cpu_node(node, root)
    if not (near and allowed):
        return {}
    return {
        "gpu_numa_node": node,
        "cpu_numa_nodes": format_ranges(allowed),
        AFFINITY: NEAR if int(near) in allowed else FAR,
    }


def read_gpu_node(bus_id: object, root: Path) -> str:
    """Return the NUMA node of a PCI address such as "00000000:3B:00.0"; "" if not known.

    NVML writes the PCI domain with eight digits, the kernel with four (sysfs-bus-pci).
    """
    # older pynvml returns bytes
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    node = read_text(root / "sys/bus/pci/devices" / text.lower()[-12:] / "numa_node")
    # -1 if the firmware reports no node
    return node if node.isdigit() else ""


def find_cpu_node(node: str, root: Path) -> str:
    """Return this NUMA node, or the nearest one with CPUs if it has only memory; "" if unknown."""
    cpus = list_node_cpus(root)
    if not node or int(node) not in cpus:
        return ""
    if cpus[int(node)]:
        return node
    # in the order of the nodes
    distances = read_text(root / NODES / f"node{node}" / "distance").split()
    found = [(int(d), number) for d, number in zip(distances, sorted(cpus)) if cpus[number]]
    return str(min(found)[1]) if found else ""


def list_node_cpus(root: Path) -> Dict[int, Set[int]]:
    """Return the CPU numbers of each NUMA node, by number; empty for a node of memory alone."""
    return {
        int(path.name[len("node") :]): parse_ranges(read_text(path / "cpulist"))
        for path in list_folder(root / NODES, "node[0-9]*")
    }


def parse_ranges(text: str) -> Set[int]:
    """Parse a list in Linux's cpulist format: "0-3,8" -> {0, 1, 2, 3, 8}, "" -> the empty set."""
    numbers: Set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
