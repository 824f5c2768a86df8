"""This host -> its CPUs (model, sockets, cores, SMT, NUMA, frequencies), memory and network."""

import os
import re
from pathlib import Path
from typing import Dict, Iterable, List, Sized

from dlperf_slurm.worker.host import (
    ROOT,
    list_folder,
    read_cpu_fields,
    read_cpu_name,
    read_memory_kib,
    read_text,
)

NODES = "sys/devices/system/node"


def join_distinct(values: Iterable[str]) -> str:
    """Join the distinct nonempty values by ", ", in order of first appearance."""
    return ", ".join(dict.fromkeys(filter(None, values)))


def drop_empty(facts: Dict[str, str]) -> Dict[str, str]:
    """Return the facts without those that are empty, so unknown."""
    return {name: value for name, value in facts.items() if value}


def describe_cpu(root: Path = ROOT) -> Dict[str, str]:
    """Describe all CPUs and memory of the host, not only this process's share, as name -> text."""
    cpu = root / "sys/devices/system/cpu"
    # without nodes that have only memory, in which equal hosts may differ
    nodes = [n for n in list_folder(root / NODES, "node[0-9]*") if read_text(n / "cpulist")]
    # rounded: equal nodes differ by a few MiB reserved by the kernel
    memory_kib = read_memory_kib("MemTotal", root)
    return drop_empty(
        {
            "cpu_model": read_cpu_name(root),
            "cpu_microcode": read_cpu_fields(root).get("microcode", ""),
            "cpu_count": str(os.cpu_count()),
            **_describe_topology(cpu),
            "cpu_smt": read_text(cpu / "smt/control"),
            "numa_nodes": _count(nodes),
            **_describe_frequency(cpu),
            "memory_gib": f"{memory_kib / 2**20:.0f}" if memory_kib else "",
        }
    )


def _describe_topology(cpu: Path) -> Dict[str, str]:
    folders = [path / "topology" for path in list_folder(cpu, "cpu[0-9]*")]
    sockets = {read_text(path / "physical_package_id") for path in folders}
    cores = {read_text(path / "thread_siblings_list") for path in folders}
    return {"cpu_sockets": _count(sockets - {""}), "cpu_cores": _count(cores - {""})}


def _describe_frequency(cpu: Path) -> Dict[str, str]:
    """Describe the frequency governor, driver, limits and boost; often empty in a cloud."""
    policies = list_folder(cpu / "cpufreq", "policy[0-9]*")
    limits = (
        _join_limits(read_text(path / "scaling_min_freq"), read_text(path / "scaling_max_freq"))
        for path in policies
    )
    boost = {"0": "off", "1": "on"}.get(read_text(cpu / "cpufreq/boost"), "")
    no_turbo = {"0": "on", "1": "off"}.get(read_text(cpu / "intel_pstate/no_turbo"), "")
    return {
        "cpu_governor": join_distinct(read_text(path / "scaling_governor") for path in policies),
        "cpu_driver": join_distinct(read_text(path / "scaling_driver") for path in policies),
        "cpu_limits_mhz": join_distinct(limits),
        "cpu_boost": boost or no_turbo,
    }


def _join_limits(least_khz: str, most_khz: str) -> str:
    if not (least_khz.isdigit() and most_khz.isdigit()):
        return ""
    return f"{int(least_khz) // 1000} to {int(most_khz) // 1000}"


def _count(items: Sized) -> str:
    return str(len(items) or "")


def describe_binding(root: Path = ROOT) -> Dict[str, str]:
    """Describe this process's affinity: cpus_allowed (count), cpu_list, memory_nodes ("0-3,8")."""
    cpus = sorted(os.sched_getaffinity(0))
    status = read_text(root / "proc/self/status")
    nodes = re.search(r"^Mems_allowed_list:\s*(\S+)", status, re.M)
    return drop_empty(
        {
            "cpus_allowed": str(len(cpus)),
            "cpu_list": format_ranges(cpus),
            "memory_nodes": nodes.group(1) if nodes else "",
        }
    )


def format_ranges(numbers: List[int]) -> str:
    """Format ascending numbers in Linux's cpulist format, such as "0-3,8"."""
    ranges: List[List[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


def describe_network(root: Path = ROOT) -> Dict[str, str]:
    """Describe "network", the physical interfaces and bonds that are up, and "infiniband" ports.

    Each is a text; one without a value is left out.
    """
    interfaces = filter(None, map(_describe_interface, list_folder(root / "sys/class/net")))
    ports = list_folder(root / "sys/class/infiniband", "*/ports/*")
    return drop_empty(
        {
            "network": "; ".join(interfaces),
            "infiniband": "; ".join(map(_describe_port, ports)),
        }
    )


def _describe_interface(path: Path) -> str:
    has_hardware = (path / "device").exists() or (path / "bonding").exists()
    if not has_hardware or read_text(path / "operstate") == "down":
        return ""
    driver = path / "device/driver"
    speed = read_text(path / "speed")
    words = [
        path.name,
        driver.resolve().name if driver.exists() else "",
        # -1 if the driver does not know the speed
        f"{speed} Mbit/s" if speed.isdigit() else "",
        f"mtu {read_text(path / 'mtu')}",
    ]
    return " ".join(filter(None, words))


def _describe_port(path: Path) -> str:
    """Format a port: "mlx5_0/1 ACTIVE 200 Gb/sec (4X HDR) InfiniBand firmware 20.31.1014"."""
    device = path.parents[1]
    firmware = read_text(device / "fw_ver")
    words = [
        f"{device.name}/{path.name}",
        # "4: ACTIVE"
        read_text(path / "state").rpartition(" ")[2],
        read_text(path / "rate"),
        read_text(path / "link_layer"),
        f"firmware {firmware}" if firmware else "",
    ]
    return " ".join(filter(None, words))
