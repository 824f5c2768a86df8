"""This host -> its AMD GPUs, as far as AMD SMI tells, and the version of ROCm."""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping

from dlperf_slurm.worker.amd_smi import ask, list_handles, load_amd_smi, name_device, pick
from dlperf_slurm.worker.provenance.files import ROOT, drop_empty, join_distinct, read_text

MICRO = 1e-6
DEFAULT_ROCM = "/opt/rocm"


def describe_rocm(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """The version of ROCm in this host or container; {} without any."""
    folder = environ.get("ROCM_PATH") or DEFAULT_ROCM
    version = read_text(root / folder.lstrip("/") / ".info" / "version")
    return drop_empty({"rocm": version.strip()})


def describe_amd_gpus() -> Dict[str, str]:
    """The GPUs of this host, with what is common to them once; {} without any."""
    amd = load_amd_smi()
    if amd is None:
        return {}
    handles = list_handles(amd)
    facts = {"gpu_count": str(len(handles)), **_describe_devices(amd, handles)}
    ask(amd, "shut_down")
    return drop_empty(facts)


def _describe_devices(amd: Any, handles: List[Any]) -> Dict[str, str]:
    def join(query: str, field: str, *arguments: Any, factor: float = 1) -> str:
        values = [pick(ask(amd, query, handle, *arguments), field) for handle in handles]
        told = [value for value in values if value is not None]
        return join_distinct(str(v) if factor == 1 else f"{v * factor:.0f}" for v in told)

    def join_answers(query: str) -> str:
        return join_distinct(str(ask(amd, query, handle) or "") for handle in handles)

    return {
        "gpu_models": join_distinct(name_device(amd, handle) for handle in handles),
        "gpu_uuids": join_answers("get_gpu_device_uuid"),
        "gpu_driver": join("get_gpu_driver_info", "driver_version"),
        "gpu_vbios": join("get_gpu_vbios_info", "version"),
        "gpu_power_limit_watts": join("get_power_cap_info", "power_cap", factor=MICRO),
        "gpu_greatest_clock_mhz": join("get_clock_info", "max_clk", amd.AmdSmiClkType.GFX),
        "gpu_compute_partition": join_answers("get_gpu_compute_partition"),
        "gpu_memory_partition": join_answers("get_gpu_memory_partition"),
    }
