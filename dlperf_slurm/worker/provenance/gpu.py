"""This host -> its GPUs, from NVML or else AMD SMI, and the version of ROCm."""

import os
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

from dlperf_slurm.worker import amd_smi
from dlperf_slurm.worker.host import ROOT, read_text
from dlperf_slurm.worker.nvml import ask, load_nvml
from dlperf_slurm.worker.provenance.machine import drop_empty, join_distinct

# NVML_TOPOLOGY_*: the connection between two GPUs, in the words of NVML's documentation
_LEVELS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "host bridge",
    40: "NUMA node",
    50: "between NUMA nodes",
}
_SWITCHES = {0: "off", 1: "on"}
MICRO = 1e-6
DEFAULT_ROCM = "/opt/rocm"


def describe_gpus() -> Dict[str, str]:
    """Describe GPUs of NVML or AMD SMI, name -> text of the distinct values; {} without any.

    Limits are the current ones: the enforced power limit and the maximum clock.
    """
    nvml = load_nvml()
    if nvml is None:
        return _describe_amd_gpus()
    handles = [
        handle
        for index in range(nvml.nvmlDeviceGetCount())
        for handle in [ask(nvml, "nvmlDeviceGetHandleByIndex", index)]
        if handle is not None
    ]
    facts = {
        "gpu_count": str(len(handles)),
        "gpu_driver": str(ask(nvml, "nvmlSystemGetDriverVersion") or ""),
        "cuda_driver": _format_cuda(ask(nvml, "nvmlSystemGetCudaDriverVersion")),
        **_describe_devices(nvml, handles),
        "gpu_topology": _describe_topology(nvml, handles),
    }
    nvml.nvmlShutdown()
    return drop_empty(facts)


def _describe_devices(nvml: Any, handles: List[Any]) -> Dict[str, str]:
    def join(query: str, form: Callable[[Any], str] = str, *arguments: Any) -> str:
        answers = [ask(nvml, f"nvmlDeviceGet{query}", handle, *arguments) for handle in handles]
        return join_distinct(form(answer) for answer in answers if answer is not None)

    clock = nvml.NVML_CLOCK_SM
    return {
        "gpu_models": join("Name"),
        "gpu_uuids": join("UUID"),
        "gpu_vbios": join("VbiosVersion"),
        "gpu_power_limit_watts": join("EnforcedPowerLimit", lambda value: f"{value / 1000:.0f}"),
        "gpu_greatest_clock_mhz": join("MaxClockInfo", str, clock),
        "gpu_application_clock_mhz": join("ApplicationsClock", str, clock),
        # the mode now, and after a restart
        "gpu_ecc": join("EccMode", lambda modes: _SWITCHES.get(modes[0], "")),
        "gpu_mig": join("MigMode", lambda modes: _SWITCHES.get(modes[0], "")),
        "gpu_persistence": join("PersistenceMode", lambda mode: _SWITCHES.get(mode, "")),
        "gpu_pcie": join_distinct(_describe_pcie(nvml, handle) for handle in handles),
        "gpu_nvlinks": join_distinct(_count_nvlinks(nvml, handle) for handle in handles),
    }


def _describe_pcie(nvml: Any, handle: Any) -> str:
    """Format the maximum PCIe generation (idle links slow down) and the current link width."""
    generation = ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    lanes = ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle)
    return f"gen{generation} x{lanes}" if generation and lanes else ""


def _count_nvlinks(nvml: Any, handle: Any) -> str:
    states = (
        ask(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS)
    )
    return str(sum(state == 1 for state in states))


def _describe_topology(nvml: Any, handles: List[Any]) -> str:
    """Count the pairs of GPUs by their connection, closest first: "4 x host bridge, ..."."""
    levels = Counter(
        ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", *pair) for pair in combinations(handles, 2)
    )
    pairs = sorted((level, count) for level, count in levels.items() if level is not None)
    return ", ".join(f"{count} x {_LEVELS.get(level, level)}" for level, count in pairs)


def _format_cuda(version: Any) -> str:
    """Format NVML's CUDA version: 12040 -> "12.4", None -> ""."""
    return "" if version is None else f"{version // 1000}.{version % 1000 // 10}"


def describe_rocm(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return {"rocm": version} of this host or container; {} without ROCm."""
    folder = environ.get("ROCM_PATH") or DEFAULT_ROCM
    version = read_text(root / folder.lstrip("/") / ".info" / "version")
    return drop_empty({"rocm": version.strip()})


def _describe_amd_gpus() -> Dict[str, str]:
    """Describe AMD's GPUs of this host as `describe_gpus` does; {} without AMD SMI."""
    amd = amd_smi.load_amd_smi()
    if amd is None:
        return {}
    handles = amd_smi.list_handles(amd)

    def join(query: str, field: str, *arguments: Any, factor: float = 1) -> str:
        values = [
            amd_smi.pick(amd_smi.ask(amd, query, handle, *arguments), field) for handle in handles
        ]
        told = [value for value in values if value is not None]
        return join_distinct(str(v) if factor == 1 else f"{v * factor:.0f}" for v in told)

    def join_answers(query: str) -> str:
        return join_distinct(str(amd_smi.ask(amd, query, handle) or "") for handle in handles)

    facts = {
        "gpu_count": str(len(handles)),
        "gpu_models": join_distinct(amd_smi.get_market_name(amd, handle) for handle in handles),
        "gpu_uuids": join_answers("get_gpu_device_uuid"),
        "gpu_driver": join("get_gpu_driver_info", "driver_version"),
        "gpu_vbios": join("get_gpu_vbios_info", "version"),
        "gpu_power_limit_watts": join("get_power_cap_info", "power_cap", factor=MICRO),
        "gpu_greatest_clock_mhz": join("get_clock_info", "max_clk", amd.AmdSmiClkType.GFX),
        "gpu_compute_partition": join_answers("get_gpu_compute_partition"),
        "gpu_memory_partition": join_answers("get_gpu_memory_partition"),
    }
    amd_smi.ask(amd, "shut_down")
    return drop_empty(facts)
