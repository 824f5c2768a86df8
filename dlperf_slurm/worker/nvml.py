"""NVML through pynvml (nvidia-ml-py) -> its answers, and a check that ranks do not share a GPU."""

import os
from importlib import import_module
from itertools import takewhile
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import amd_smi
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.ranks import PlacementError, World

# the host's PID namespace; a container may have one of its own (PROC_PID_INIT_INO of Linux)
HOST_PROCESSES = "pid:[4026531836]"
PROCESS_SPACE = "/proc/self/ns/pid"
# NVML_VALUE_NOT_AVAILABLE, for which newer versions of pynvml return None
NOT_AVAILABLE = 2**64 - 1


def load_nvml() -> Any:
    """Return pynvml, initialized, or None if the package or the driver is missing."""
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
    """Return NVML's answer, or None if the driver, device or user's permissions do not allow it.

    `query` is the name of a function of pynvml, such as "nvmlDeviceGetName".
    """
    function = getattr(nvml, query, None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)):
        # the latter is no NVMLError: drivers before R510 lack the function of a query
        return None
    # older versions of pynvml return bytes
    return answer.decode() if isinstance(answer, bytes) else answer


def find_handle(nvml: Any, name: str) -> Any:
    """Return the handle of a GPU or MIG instance as CUDA_VISIBLE_DEVICES names it, or None.

    `name` is an index or a UUID. NVML orders GPUs by PCI bus id, as CUDA does with
    CUDA_DEVICE_ORDER=PCI_BUS_ID, which the job script sets.
    """
    if name.isdigit():
        return ask(nvml, "nvmlDeviceGetHandleByIndex", int(name))
    return ask(nvml, "nvmlDeviceGetHandleByUUID", name)


def list_visible(environ: Mapping[str, str], numbers: Sequence[str]) -> List[str]:
    """Return the GPUs that a process sees, in CUDA's order, as indices or UUIDs.

    `numbers` are the indices of all the host's GPUs. An entry of CUDA_VISIBLE_DEVICES that is a
    negative number hides itself and all entries after it (CUDA C++ Programming Guide, "CUDA
    Environment Variables").
    """
    return amd_smi.split_names(environ.get("CUDA_VISIBLE_DEVICES"), numbers)


def list_seen(nvml: Any, environ: Mapping[str, str]) -> List[str]:
    """Return the GPUs that a process sees, as `list_visible` with the number of GPUs from NVML.

    An index that does not exist hides itself and all entries after it.
    """
    numbers = [str(index) for index in range(ask(nvml, "nvmlDeviceGetCount") or 0)]
    visible = list_visible(environ, numbers)
    return list(takewhile(lambda name: name in numbers or not name.isdigit(), visible))


def refuse_shared_gpus(
    case: Case, rank_info: RankInfo, world: World, environ: Mapping[str, str]
) -> None:
    """Raise PlacementError, on all ranks alike, if two ranks use the same GPU.

    Such a run would succeed, and its figures would be taken for those of one GPU per rank. Ranks
    whose GPU is known neither from NVML nor from AMD SMI are not checked.
    """
    uuid = find_device_uuid(case, rank_info, environ)
    compare_devices(world.exchange((rank_info.host, uuid)))


def find_device_uuid(case: Case, rank_info: RankInfo, environ: Mapping[str, str]) -> str:
    """Return the UUID of the GPU or MIG instance that the rank's adapter uses, or '' if unknown."""
    if case.device != "cuda":
        return ""
    nvml = load_nvml()
    if nvml is None:
        return amd_smi.find_device_uuid(rank_info.local_rank, environ)
    handle = find_own_handle(nvml, rank_info.local_rank, environ)
    return "" if handle is None else ask(nvml, "nvmlDeviceGetUUID", handle) or ""


def find_own_handle(nvml: Any, local_rank: int, environ: Mapping[str, str]) -> Any:
    """Return NVML's handle of the GPU or MIG instance that a rank uses, or None if unknown."""
    own = amd_smi.choose_own(list_seen(nvml, environ), local_rank)
    return None if own is None else find_handle(nvml, own)


def read_own_memory_bytes(index: int) -> int:
    """Return the memory that this process uses now on its visible GPU `index`; 0 if unknown.

    Includes CUDA's own memory. NVML knows processes by their ids on the host: in a container with
    ids of its own, where the same id may be that of another process, the result is 0.
    """
    nvml = load_nvml()
    handle = None if nvml is None else find_own_handle(nvml, index, os.environ)
    if handle is None or find_process_space() != HOST_PROCESSES:
        return 0
    processes = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
    used = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
    return 0 if None in used or NOT_AVAILABLE in used else sum(used)


def find_process_space() -> str:
    """Return the PID namespace of this process, "pid:[NUMBER]", or "" if not known."""
    try:
        return os.readlink(PROCESS_SPACE)
    except OSError:
        return ""


def compare_devices(devices: Sequence[Tuple[str, str]]) -> None:
    """Raise PlacementError if two ranks use the same GPU; the message names the ranks.

    `devices` has (host, UUID of the GPU) of each rank, "" for an unknown UUID.
    """
    ranks_by_device: Dict[Tuple[str, str], List[int]] = {}
    for rank, device in enumerate(devices):
        ranks_by_device.setdefault(device, []).append(rank)
    for (host, uuid), ranks in ranks_by_device.items():
        if uuid and len(ranks) > 1:
            names = " and ".join(map(str, ranks))
            raise PlacementError(
                f"ranks {names} use the same GPU, {uuid} on {host}: give each rank a GPU of its "
                "own; check gpu_request of the site file, the launcher's flags, "
                "CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"
            )
