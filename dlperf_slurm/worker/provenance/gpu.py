"""This host -> its GPUs, as far as NVML tells, else AMD SMI: models, driver, limits, links."""

from collections import Counter
from itertools import combinations
from typing import Any, Dict, List

from dlperf_slurm.worker.nvml import ask, load_nvml
from dlperf_slurm.worker.provenance.amd_gpu import describe_amd_gpus
from dlperf_slurm.worker.provenance.files import drop_empty, join_distinct

# NVML_TOPOLOGY_*: what lies between two GPUs, by the words of its documentation
_LEVELS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "host bridge",
    40: "NUMA node",
    50: "between NUMA nodes",
}
_SWITCHES = {0: "off", 1: "on"}


def describe_gpus() -> Dict[str, str]:
    """The GPUs that this process may see, with what is common to them once; {} without any.

    A limit is what holds now: the power that is enforced, the clock up to which the GPU may go.
    """
    nvml = load_nvml()
    if nvml is None:
        return describe_amd_gpus()
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
    """Generation at most, as idle links go down; lanes as they are, as some may be lost."""
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
    """How many pairs of GPUs are how near."""
    levels = Counter(
        ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", *pair) for pair in combinations(handles, 2)
    )
    pairs = sorted((level, count) for level, count in levels.items() if level is not None)
    return ", ".join(f"{count} x {_LEVELS.get(level, level)}" for level, count in pairs)


def _format_cuda(version: Any) -> str:
    """12040 is 12.4."""
    return "" if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _join(values: Any) -> str:
    return join_distinct(map(_to_text, values))


def _to_text(value: Any) -> str:
    return "" if value is None else str(value)
