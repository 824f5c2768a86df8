"""This host -> its GPUs, from NVML or else AMD SMI, and the version of ROCm."""

import os
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, List, Mapping

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
    """Describe the GPUs that NVML or AMD SMI list, with equal values listed once; {} without any.

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
        "gpu_driver": _to_text(ask(nvml, "nvmlSystemGetDriverVersion")),
        "cuda_driver": _format_cuda(ask(nvml, "nvmlSystemGetCudaDriverVersion")),
        **_describe_devices(nvml, handles),
        "gpu_topology": _describe_topology(nvml, handles),
    }
    nvml.nvmlShutdown()
    return drop_empty(facts)


def _describe_devices(nvml: Any, handles: List[Any]) -> Dict[str, str]:
    def list_values(query: str, *arguments: Any) -> List[Any]:
        return [ask(nvml, query, handle, *arguments) for handle in handles]

    clock = nvml.NVML_CLOCK_SM
    return {
        "gpu_models": _join(list_values("nvmlDeviceGetName")),
        "gpu_uuids": _join(list_values("nvmlDeviceGetUUID")),
        "gpu_vbios": _join(list_values("nvmlDeviceGetVbiosVersion")),
        "gpu_power_limit_watts": _join(
            f"{value / 1000:.0f}"
            for value in list_values("nvmlDeviceGetEnforcedPowerLimit")
            if value is not None
        ),
        "gpu_greatest_clock_mhz": _join(list_values("nvmlDeviceGetMaxClockInfo", clock)),
        "gpu_application_clock_mhz": _join(list_values("nvmlDeviceGetApplicationsClock", clock)),
        "gpu_ecc": _join(_describe_mode(v) for v in list_values("nvmlDeviceGetEccMode")),
        "gpu_mig": _join(_describe_mode(v) for v in list_values("nvmlDeviceGetMigMode")),
        "gpu_persistence": _join(
            _SWITCHES.get(value, "") for value in list_values("nvmlDeviceGetPersistenceMode")
        ),
        "gpu_pcie": _join(_describe_pcie(nvml, handle) for handle in handles),
        "gpu_nvlinks": _join(_count_nvlinks(nvml, handle) for handle in handles),
    }


def _describe_mode(current_and_pending: Any) -> str:
    return "" if current_and_pending is None else _SWITCHES.get(current_and_pending[0], "")


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
    """Count the pairs of GPUs by their connection, the closest first."""
    levels = Counter(
        ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", *pair) for pair in combinations(handles, 2)
    )
    pairs = sorted((level, count) for level, count in levels.items() if level is not None)
    return ", ".join(f"{count} x {_LEVELS.get(level, level)}" for level, count in pairs)


def _format_cuda(version: Any) -> str:
    """Format NVML's CUDA version: 12040 -> "12.4"."""
    return "" if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _join(values: Any) -> str:
    return join_distinct(map(_to_text, values))


def _to_text(value: Any) -> str:
    return "" if value is None else str(value)


def describe_rocm(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the version of ROCm in this host or container; {} without ROCm."""
    folder = environ.get("ROCM_PATH") or DEFAULT_ROCM
    version = read_text(root / folder.lstrip("/") / ".info" / "version")
    return drop_empty({"rocm": version.strip()})


def _describe_amd_gpus() -> Dict[str, str]:
    """Describe AMD's GPUs of this host, with equal values listed once; {} without AMD SMI."""
    amd = amd_smi.load_amd_smi()
    if amd is None:
        return {}
    handles = amd_smi.list_handles(amd)
    facts = {"gpu_count": str(len(handles)), **_describe_amd_devices(amd, handles)}
    amd_smi.ask(amd, "shut_down")
    return drop_empty(facts)


def _describe_amd_devices(amd: Any, handles: List[Any]) -> Dict[str, str]:
    def join(query: str, field: str, *arguments: Any, factor: float = 1) -> str:
        values = [
            amd_smi.pick(amd_smi.ask(amd, query, handle, *arguments), field) for handle in handles
        ]
        told = [value for value in values if value is not None]
        return join_distinct(str(v) if factor == 1 else f"{v * factor:.0f}" for v in told)

    def join_answers(query: str) -> str:
        return join_distinct(str(amd_smi.ask(amd, query, handle) or "") for handle in handles)

    return {
        "gpu_models": join_distinct(amd_smi.get_market_name(amd, handle) for handle in handles),
        "gpu_uuids": join_answers("get_gpu_device_uuid"),
        "gpu_driver": join("get_gpu_driver_info", "driver_version"),
        "gpu_vbios": join("get_gpu_vbios_info", "version"),
        "gpu_power_limit_watts": join("get_power_cap_info", "power_cap", factor=MICRO),
        "gpu_greatest_clock_mhz": join("get_clock_info", "max_clk", amd.AmdSmiClkType.GFX),
        "gpu_compute_partition": join_answers("get_gpu_compute_partition"),
        "gpu_memory_partition": join_answers("get_gpu_memory_partition"),
    }
