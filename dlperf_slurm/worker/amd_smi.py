"""AMD SMI through amdsmi -> its answers on GPUs, each a GCD where a card has two of them.

As pynvml's: https://rocm.docs.amd.com/projects/amdsmi, the Python API.
"""

from importlib import import_module
from typing import Any, Dict, List, Mapping, Sequence

# PCI device ids of cards with two dies, which ROCm shows as a GPU each: MI250X and MI250 (pci.ids)
TWO_DIES = (0x7408, 0x740C)
NOT_TOLD = "N/A"


def load_amd_smi() -> Any:
    """The module amdsmi, initialized; None where the package, its library or a GPU is not there."""
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
    """What `amdsmi_QUERY` answers; None for what this version, driver or device does not tell."""
    function = getattr(amd, f"amdsmi_{query}", None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except amd.AmdSmiException:
        return None
    return None if answer == NOT_TOLD else answer


def pick(answer: Any, *names: str) -> Any:
    """The first of these fields of an answer that is told; versions name some of them otherwise."""
    told = [answer[name] for name in names if answer and name in answer]
    return next((value for value in told if value not in (NOT_TOLD, "", None)), None)


def list_handles(amd: Any) -> List[Any]:
    """All GPUs of the host, in the order of HIP's numbers where AMD SMI tells them."""
    handles = ask(amd, "get_processor_handles") or []
    numbers = [pick(ask(amd, "get_gpu_enumeration_info", handle), "hip_id") for handle in handles]
    if any(number is None for number in numbers):
        return handles
    return [handles[index] for index in sorted(range(len(handles)), key=numbers.__getitem__)]


def find_handle(amd: Any, name: str) -> Any:
    """The GPU of this number or UUID, as ROCR_VISIBLE_DEVICES names it; None if there is none."""
    handles = list_handles(amd)
    if name.isdigit():
        return handles[int(name)] if int(name) < len(handles) else None
    return next((handle for handle in handles if name in _list_uuids(amd, handle)), None)


def _list_uuids(amd: Any, handle: Any) -> List[str]:
    """Its names in ROCR_VISIBLE_DEVICES, which before ROCm 6.4 follow from its serial number."""
    serial = str(pick(ask(amd, "get_gpu_asic_info", handle), "asic_serial") or "")
    told = pick(ask(amd, "get_gpu_enumeration_info", handle), "hip_uuid")
    return [f"GPU-{serial.lower().replace('0x', '', 1)}", str(told or "")]


def name_device(amd: Any, handle: Any) -> str:
    """Its name on the market, with the word GCD for one of two dies of a card."""
    facts = ask(amd, "get_gpu_asic_info", handle)
    name = str(pick(facts, "market_name") or "")
    is_die = name and _parse_id(pick(facts, "device_id")) in TWO_DIES
    return f"{name} GCD" if is_die else name


def _parse_id(device_id: Any) -> int:
    """A number, which some versions tell in hexadecimal digits; 0 where it is not told."""
    return int(device_id, 16) if isinstance(device_id, str) else device_id or 0


def is_told_apart(environ: Mapping[str, str]) -> bool:
    """Whether a variable of AMD's alone says which GPUs a process sees."""
    return "ROCR_VISIBLE_DEVICES" in environ or "HIP_VISIBLE_DEVICES" in environ


def list_visible(environ: Mapping[str, str], numbers: Sequence[str]) -> List[str]:
    """Numbers (of the host's `numbers`) or UUIDs of the GPUs that a process sees, in its order.

    HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its place, counts among what
    ROCR_VISIBLE_DEVICES has left, up to the first name that is none of these (ROCm's manual, "GPU
    isolation techniques").
    """
    left = _split(environ.get("ROCR_VISIBLE_DEVICES"), numbers)
    told = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    names: Dict[str, None] = {}
    for name in _split(told, [str(index) for index in range(len(left))]):
        if name.isdigit() and int(name) >= len(left):
            break
        names[left[int(name)] if name.isdigit() else name] = None
    return list(names)


def _split(told: Any, otherwise: Sequence[str]) -> List[str]:
    if told is None:
        return list(otherwise)
    return [name.strip() for name in told.split(",") if name.strip()]


def find_device_uuid(local_rank: int, environ: Mapping[str, str]) -> str:
    """That of the GPU which a rank's adapter takes; empty if it is not known."""
    amd = load_amd_smi()
    if amd is None:
        return ""
    numbers = [str(index) for index in range(len(list_handles(amd)))]
    visible = list_visible(environ, numbers)
    index = 0 if len(visible) == 1 else local_rank
    handle = find_handle(amd, visible[index]) if index < len(visible) else None
    return "" if handle is None else ask(amd, "get_gpu_device_uuid", handle) or ""
