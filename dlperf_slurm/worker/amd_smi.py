"""AMD SMI through amdsmi -> its answers on GPUs; each GCD of a card with two counts as a GPU.

The counterpart of pynvml: https://rocm.docs.amd.com/projects/amdsmi, the Python API.
"""

from importlib import import_module
from itertools import takewhile
from typing import Any, Dict, List, Mapping, Optional, Sequence

# PCI device ids of cards with two dies, each of which ROCm lists as a GPU: MI250X, MI250 (pci.ids)
TWO_DIES = (0x7408, 0x740C)
NOT_TOLD = "N/A"


def load_amd_smi() -> Any:
    """Return amdsmi, initialized, or None if the package, its library or a GPU is missing."""
    try:
        amd = import_module("amdsmi")
    except (ImportError, OSError):
        return None
    try:
        amd.amdsmi_init()
    except amd.AmdSmiException:
        return None
    return amd


def ask(amd: Any, query: str, *arguments: Any) -> Any:
    """Return what `amdsmi_QUERY` returns; None if version, driver or device do not support it.

    `amd` is the amdsmi module, as in all functions here.
    """
    function = getattr(amd, f"amdsmi_{query}", None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except amd.AmdSmiException:
        return None
    return None if answer == NOT_TOLD else answer


def pick(answer: Any, *names: str) -> Any:
    """Return the first of the fields `names` that an answer of amdsmi has a value for, or None.

    Versions of amdsmi name some fields differently.
    """
    told = [answer[name] for name in names if answer and name in answer]
    return next((value for value in told if value not in (NOT_TOLD, "", None)), None)


def list_handles(amd: Any) -> List[Any]:
    """Return amdsmi's handles of all GPUs of the host, in HIP's order if AMD SMI reports that."""
    handles = ask(amd, "get_processor_handles") or []
    numbers = [pick(ask(amd, "get_gpu_enumeration_info", handle), "hip_id") for handle in handles]
    if any(number is None for number in numbers):
        return handles
    return [handles[index] for index in sorted(range(len(handles)), key=numbers.__getitem__)]


def find_handle(amd: Any, name: str) -> Any:
    """Return amdsmi's handle of the GPU with this index or UUID (ROCR_VISIBLE_DEVICES), or None."""
    handles = list_handles(amd)
    if name.isdigit():
        return handles[int(name)] if int(name) < len(handles) else None
    return next((handle for handle in handles if name in _list_uuids(amd, handle)), None)


def _list_uuids(amd: Any, handle: Any) -> List[str]:
    """Return the names that a GPU may have in ROCR_VISIBLE_DEVICES.

    The first is from its serial number, as before ROCm 6.4.
    """
    serial = str(pick(ask(amd, "get_gpu_asic_info", handle), "asic_serial") or "")
    told = pick(ask(amd, "get_gpu_enumeration_info", handle), "hip_uuid")
    return [f"GPU-{serial.lower().replace('0x', '', 1)}", str(told or "")]


def get_market_name(amd: Any, handle: Any) -> str:
    """Return a GPU's market name, with "GCD" added for one of a card's two dies; '' if unknown."""
    facts = ask(amd, "get_gpu_asic_info", handle)
    name = str(pick(facts, "market_name") or "")
    is_die = name and _parse_id(pick(facts, "device_id")) in TWO_DIES
    return f"{name} GCD" if is_die else name


def _parse_id(device_id: Any) -> int:
    """Return a device id, which some versions report in hexadecimal, as a number; 0 if missing."""
    return int(device_id, 16) if isinstance(device_id, str) else device_id or 0


def has_own_variables(environ: Mapping[str, str]) -> bool:
    """Return whether ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, AMD's variables, are set."""
    return "ROCR_VISIBLE_DEVICES" in environ or "HIP_VISIBLE_DEVICES" in environ


def list_visible(environ: Mapping[str, str], numbers: Sequence[str]) -> List[str]:
    """Return the GPUs that a process sees, in HIP's order, as indices or UUIDs.

    `numbers` are the indices of all the host's GPUs. HIP_VISIBLE_DEVICES (or else
    CUDA_VISIBLE_DEVICES) counts among the GPUs that ROCR_VISIBLE_DEVICES leaves, up to the first
    index out of range. A negative index ends either list (ROCm manual, "GPU isolation techniques").
    """
    left = split_names(environ.get("ROCR_VISIBLE_DEVICES"), numbers)
    told = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    names: Dict[str, None] = {}
    for name in split_names(told, [str(index) for index in range(len(left))]):
        if name.isdigit() and int(name) >= len(left):
            break
        names[left[int(name)] if name.isdigit() else name] = None
    return list(names)


def split_names(told: Optional[str], otherwise: Sequence[str]) -> List[str]:
    """Split a comma-separated list of GPUs up to the first negative number.

    Returns `otherwise` if the list is None.
    """
    if told is None:
        return list(otherwise)
    names = [name.strip() for name in told.split(",") if name.strip()]
    return list(takewhile(lambda name: not name.startswith("-"), names))


def choose_own(visible: Sequence[str], local_rank: int) -> Optional[str]:
    """Return a rank's visible GPU: the only one, or by local rank; None if there are too few."""
    index = 0 if len(visible) == 1 else local_rank
    return visible[index] if index < len(visible) else None


def find_device_uuid(local_rank: int, environ: Mapping[str, str]) -> str:
    """Return AMD SMI's UUID of the GPU that a rank uses in this `environ`, or '' if unknown."""
    amd = load_amd_smi()
    if amd is None:
        return ""
    numbers = [str(index) for index in range(len(list_handles(amd)))]
    own = choose_own(list_visible(environ, numbers), local_rank)
    handle = None if own is None else find_handle(amd, own)
    return "" if handle is None else ask(amd, "get_gpu_device_uuid", handle) or ""
