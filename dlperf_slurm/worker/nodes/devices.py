"""`nvidia-smi -q -x` -> the GPUs of a job on its node, and their problems.

Uses the driver's own program and not pynvml, which the host's Python may not have.
"""

import re
from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from xml.etree import ElementTree

from dlperf_slurm.worker.nodes.commands import MAX_REASON_CHARACTERS, run_command

QUERY = ("nvidia-smi", "-q", "-x")
# the query has no UUIDs of MIG instances
LIST = ("nvidia-smi", "-L")
# throttle reasons that indicate a problem; idling and the power limit do not
_HELD_DOWN = re.compile(
    r"clocks_(?:throttle|event)_reason_"
    r"(hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)$"
)
# newer drivers have one counter per kind of memory, older ones a total of double-bit errors
_UNCORRECTABLE = re.compile(r"volatile/(?:\w+_uncorrectable\w*|double_bit/total)$")
_AWAITED = re.compile(
    r"(?:remapped_rows/remapped_row_(?:pending|failure)|retired_pages/pending_(?:retirement|blacklist))$"
)
# CUDA's Multi-Process Service, which shares a GPU between processes of one job
_MPS = "nvidia-cuda-mps"


class DeviceError(Exception):
    """A failed query of nvidia-smi or amd-smi; the message says how it failed."""


class Gpu(NamedTuple):
    """A GPU or MIG instance: name such as "GPU 3", and its values by their path in the XML.

    `ids` are its names in CUDA_VISIBLE_DEVICES, beside its number.
    """

    name: str
    ids: Tuple[str, ...]
    values: Mapping[str, str]
    processes: Tuple[str, ...]


def query_gpus(seconds: float, environ: Mapping[str, str]) -> List[Gpu]:
    """Ask nvidia-smi for this job's GPUs on this node: those in CUDA_VISIBLE_DEVICES.

    A call may take `seconds`. Raises DeviceError if one fails.
    """
    gpus = read_gpus(call_driver(QUERY, seconds))
    if any(" instance " in gpu.name for gpu in gpus):
        uuids = re.findall(r"\(UUID: (MIG-[^)]+)\)", call_driver(LIST, seconds))
        instances = (number for number, gpu in enumerate(gpus) if " instance " in gpu.name)
        for number, uuid in zip(instances, uuids):
            gpus[number] = gpus[number]._replace(ids=(uuid, *gpus[number].ids))
    return choose_visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"))


def call_driver(command: Sequence[str], seconds: float) -> str:
    """Return output and errors of nvidia-smi or amd-smi; DeviceError if it fails or is too slow."""
    name = command[0]
    try:
        ended = run_command(command, seconds)
    except OSError as error:
        raise DeviceError(f"{name} cannot be started: {error.strerror}") from error
    if ended.exit_code is None:
        raise DeviceError(f"{name} did not respond within {seconds:g} s")
    if ended.exit_code:
        raise DeviceError(f"{name} failed with exit code {ended.exit_code}: {ended.last_line}")
    return ended.output


def read_gpus(text: str) -> List[Gpu]:
    """Parse the output of nvidia-smi; MIG instances are returned in place of their GPU.

    Raises DeviceError if the output is not XML.
    """
    start = text.find("<nvidia_smi_log")
    try:
        root = ElementTree.fromstring(text[max(start, 0) :])
    except ElementTree.ParseError as error:
        raise DeviceError(f"nvidia-smi printed invalid XML: {error}") from error
    gpus = []
    for index, element in enumerate(root.findall("gpu")):
        values = dict(_list_values(element, ""))
        uuid = values.get("uuid", "")
        processes = list(element.iter("process_info"))
        instances = element.findall("mig_devices/mig_device")
        if not instances:
            gpus.append(Gpu(f"GPU {index}", (uuid,), values, _name_processes(processes)))
        for number, instance in enumerate(instances):
            place = _find_place(instance)
            own = [info for info in processes if _find_place(info) == place]
            ids = (f"MIG-{uuid}/{'/'.join(place)}", uuid)
            # values that the instance does not have itself are those of its GPU
            of_both = {**values, **dict(_list_values(instance, ""))}
            name = f"GPU {index} instance {number}"
            gpus.append(Gpu(name, ids, of_both, _name_processes(own)))
    return gpus


def _find_place(element: ElementTree.Element) -> Tuple[str, str]:
    """Return the ids of the GPU instance and compute instance (MIG) in an XML element."""
    ids = (element.findtext(name, "") for name in ("gpu_instance_id", "compute_instance_id"))
    first, second = (text.strip() for text in ids)
    return first, second


def _name_processes(processes: Sequence[ElementTree.Element]) -> Tuple[str, ...]:
    return tuple(filter(None, map(_name_process, processes)))


def _list_values(element: ElementTree.Element, path: str) -> Iterator[Tuple[str, str]]:
    for child in element:
        own = f"{path}{child.tag}"
        if len(child):
            yield from _list_values(child, f"{own}/")
        else:
            yield own, (child.text or "").strip()


def _name_process(info: ElementTree.Element) -> str:
    """Return the name of a compute process; "" for a graphics process and the MPS server."""
    name = info.findtext("process_name", "").strip().rpartition("/")[2]
    if "C" not in info.findtext("type", "C") or name.startswith(_MPS):
        return ""
    return name or f"process {info.findtext('pid', '?').strip()}"


def choose_visible(gpus: List[Gpu], visible: Optional[str]) -> List[Gpu]:
    """Select the GPUs in CUDA_VISIBLE_DEVICES, by index or UUID; all if it is not set.

    A UUID may be cut short. CUDA sees nothing behind an entry that is no device (CUDA C++
    Programming Guide, "CUDA Environment Variables").
    """
    if visible is None:
        return gpus
    found: List[Gpu] = []
    for name in (name.strip() for name in visible.split(",")):
        if name.isdigit():
            fitting = gpus[int(name) : int(name) + 1]
        else:
            is_id = name.startswith(("GPU-", "MIG-"))
            fitting = [gpu for gpu in gpus if is_id and any(i.startswith(name) for i in gpu.ids)]
        if not fitting:
            break
        found.append(fitting[0])
    return found


def find_ecc_problem(gpu: Gpu) -> str:
    """Describe uncorrectable ECC errors or pending recovery of a GPU; "" if there are none."""
    errors = sum(
        int(value)
        for path, value in gpu.values.items()
        if _UNCORRECTABLE.search(path) and value.isdigit()
    )
    if errors:
        return f"{gpu.name} has {errors} uncorrectable ECC errors"
    awaited = [
        path.rpartition("/")[2]
        for path, value in gpu.values.items()
        if _AWAITED.search(path) and value == "Yes"
    ]
    if awaited:
        return f"{gpu.name} has {' and '.join(awaited)}"
    action = gpu.values.get("gpu_recovery_action", "None")
    return "" if action in ("None", "N/A") else f"{gpu.name} requires a recovery action: {action}"


def find_clock_problem(gpu: Gpu) -> str:
    """Describe throttling or reduced application clocks of a GPU; "" if there are none."""
    reasons = []
    for path, value in gpu.values.items():
        found = _HELD_DOWN.search(path)
        if found is not None and value == "Active":
            reasons.append(found[1])
    if reasons:
        return f"clocks of {gpu.name} are throttled: {', '.join(reasons)}"
    now = read_number(gpu, "applications_clocks/graphics_clock")
    default = read_number(gpu, "default_applications_clocks/graphics_clock")
    if 0 < now < default:
        return f"the clocks of {gpu.name} are set to {now} MHz, below the default of {default} MHz"
    return ""


def find_memory_problem(gpu: Gpu, needed_mib: int) -> str:
    """Describe too little free memory of a GPU; "" if at least `needed_mib` MiB are free."""
    free = read_number(gpu, "fb_memory_usage/free")
    if free >= needed_mib:
        return ""
    return f"{gpu.name} has {free} MiB of free memory; required: {needed_mib} MiB"


def find_process_problem(gpu: Gpu) -> str:
    """Describe the compute processes on a GPU; "" if there are none."""
    names = ", ".join(gpu.processes)[:MAX_REASON_CHARACTERS]
    return f"{gpu.name} is in use by {names}" if names else ""


def read_number(gpu: Gpu, path: str) -> int:
    """Return the integer before its unit at an XML path such as "fb_memory_usage/free"; else 0."""
    number = re.match(r"\d+(?= |x|$)", gpu.values.get(path, ""))
    return int(number[0]) if number else 0
