"""NVML through pynvml (nvidia-ml-py) -> its answers, and whether each rank has a GPU of its own."""

from importlib import import_module
from itertools import takewhile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import amd_smi
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.ranks import PlacementError, World


def load_nvml() -> Any:
    """pynvml, initialized; None where the package or the driver is not there."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def ask(nvml: Any, query: str, *arguments: Any) -> Any:
    """Return NVML's answer; None for what this driver, device or user may not be asked."""
    function = getattr(nvml, query, None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except (nvml.NVMLError, *_list_mismatch_errors(nvml)):
        return None
    # earlier pynvml answers in bytes
    return answer.decode() if isinstance(answer, bytes) else answer


def _list_mismatch_errors(nvml: Any) -> Tuple[Type[Exception], ...]:
    """Return what pynvml raises for a driver older than itself, which is no NVMLError.

    Drivers before R510 lack the function behind nvmlDeviceGetComputeRunningProcesses, for one.
    """
    error = getattr(nvml, "NVMLLibraryMismatchError", None)
    return () if error is None else (error,)


def find_handle(nvml: Any, name: str) -> Any:
    """The GPU, or instance of one, that CUDA_VISIBLE_DEVICES names so; None if NVML has none.

    NVML numbers GPUs by their place on the bus, as CUDA does in the order PCI_BUS_ID, which the job
    script asks for.
    """
    if name.isdigit():
        return ask(nvml, "nvmlDeviceGetHandleByIndex", int(name))
    return ask(nvml, "nvmlDeviceGetHandleByUUID", name)


def list_visible(environ: Mapping[str, str], numbers: Sequence[str]) -> List[str]:
    """Numbers (of the host's `numbers`) or UUIDs of the GPUs that a process sees, in its order.

    What stands behind a negative number is not seen (CUDA C++ Programming Guide, "CUDA Environment
    Variables").
    """
    told = environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return list(numbers)
    names = [name.strip() for name in told.split(",")]
    return [name for name in takewhile(lambda name: not name.startswith("-"), names) if name]


def list_seen(nvml: Any, environ: Mapping[str, str]) -> List[str]:
    """The same of a host whose GPUs NVML counts: nor is what stands behind a number of none."""
    numbers = [str(index) for index in range(ask(nvml, "nvmlDeviceGetCount") or 0)]
    visible = list_visible(environ, numbers)
    return list(takewhile(lambda name: name in numbers or not name.isdigit(), visible))


def choose_own(visible: Sequence[str], local_rank: int) -> Optional[str]:
    """The one of these that a rank's adapter takes, see `Placement.choose_gpu`; None if none is."""
    index = 0 if len(visible) == 1 else local_rank
    return visible[index] if index < len(visible) else None


def refuse_shared_gpus(
    case: Case, placement: Placement, world: World, environ: Mapping[str, str]
) -> None:
    """Raises PlacementError, on all ranks alike, if two drive the same GPU.

    They would run to their end, and their figures be taken for those of as many GPUs. Where neither
    NVML nor AMD SMI tells which one a rank drives, nothing is known against it.
    """
    uuid = find_device_uuid(case, placement, environ)
    compare_devices(world.exchange((placement.host, uuid)))


def find_device_uuid(case: Case, placement: Placement, environ: Mapping[str, str]) -> str:
    """That of the GPU, or of its MIG instance, which adapters take; empty if it is not known."""
    if case.device != "cuda":
        return ""
    nvml = load_nvml()
    if nvml is None:
        return amd_smi.find_device_uuid(placement.local_rank, environ)
    own = choose_own(list_seen(nvml, environ), placement.local_rank)
    handle = None if own is None else find_handle(nvml, own)
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
                "own, by the site's gpu_request, by the launcher's flags, by CUDA_VISIBLE_DEVICES, "
                "or by ROCR_VISIBLE_DEVICES"
            )
