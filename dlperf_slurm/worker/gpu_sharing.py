"""The GPUs that ranks drive -> whether each has its own.

Ranks that share a GPU without knowing run to their end, and their figures are taken for those of as
many GPUs.
"""

from typing import Dict, List, Mapping, Sequence, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.nvml import ask, find_handle, load_nvml
from dlperf_slurm.worker.ranks import PlacementError, World


def refuse_shared_gpus(
    case: Case, placement: Placement, world: World, environ: Mapping[str, str]
) -> None:
    """Raises PlacementError, on all ranks alike, if two drive the same GPU.

    Where NVML does not tell which one a rank drives, nothing is known against it.
    """
    uuid = find_device_uuid(case, placement, environ)
    compare_devices(world.exchange((placement.host, uuid)))


def find_device_uuid(case: Case, placement: Placement, environ: Mapping[str, str]) -> str:
    """That of the GPU, or of its MIG instance, which adapters take; empty if it is not known."""
    nvml = load_nvml() if case.device == "cuda" else None
    if nvml is None:
        return ""
    told = environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        visible = [str(index) for index in range(ask(nvml, "nvmlDeviceGetCount") or 0)]
    else:
        visible = [name.strip() for name in told.split(",") if name.strip()]
    index = 0 if len(visible) == 1 else placement.local_rank
    handle = find_handle(nvml, visible[index]) if index < len(visible) else None
    return "" if handle is None else ask(nvml, "nvmlDeviceGetUUID", handle) or ""


def compare_devices(devices: Sequence[Tuple[str, str]]) -> None:
    """Raises PlacementError, which names the ranks, if two of these (host, UUID) are one GPU."""
    ranks_by_device: Dict[Tuple[str, str], List[int]] = {}
    for rank, device in enumerate(devices):
        ranks_by_device.setdefault(device, []).append(rank)
    for (host, uuid), ranks in ranks_by_device.items():
        if uuid and len(ranks) > 1:
            names = " and ".join(map(str, ranks))
            raise PlacementError(
                f"ranks {names} drive the same GPU, {uuid} on {host}: see that each has one of its "
                "own, by the site's gpu_request, by the launcher's flags or by CUDA_VISIBLE_DEVICES"
            )
