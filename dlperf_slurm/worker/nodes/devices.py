"""`nvidia-smi -q -x` -> the GPUs that a job has on its node, as far as its checks ask.

By the driver's own program, not through pynvml: the host's Python need not have it.
"""

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple
from xml.etree import ElementTree

from dlperf_slurm.worker.nodes.lines import MAX_REASON_CHARACTERS, run_command

QUERY = ("nvidia-smi", "-q", "-x")
# why clocks are held down by something that is wrong; what is idle, or at its power limit, is well
_HELD_DOWN = re.compile(
    r"clocks_(?:throttle|event)_reason_"
    r"(hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)$"
)
# newer drivers name counters by memory, former ones have a sum of double-bit errors
_UNCORRECTABLE = re.compile(r"volatile/(?:\w+_uncorrectable\w*|double_bit/total)$")
_AWAITED = re.compile(
    r"(?:remapped_rows/remapped_row_(?:pending|failure)|retired_pages/pending_(?:retirement|blacklist))$"
)
# shares a GPU between processes of one job
_MPS = "nvidia-cuda-mps"


class DeviceError(Exception):
    """The driver does not tell about its GPUs; the message says how it failed."""


class Gpu(NamedTuple):
    """A GPU by its name, "GPU 3", and its values by their path in the XML."""

    name: str
    uuid: str
    values: Mapping[str, str]
    processes: Tuple[str, ...]


def query_gpus(seconds: float, environ: Mapping[str, str]) -> List[Gpu]:
    """The GPUs of this job on this node; raises DeviceError where the driver does not tell."""
    try:
        ended = run_command(QUERY, seconds)
    except OSError as error:
        raise DeviceError(f"nvidia-smi cannot be started: {error.strerror}") from error
    if ended.exit_code is None:
        raise DeviceError(f"nvidia-smi did not answer within {seconds:g} s")
    if ended.exit_code:
        raise DeviceError(f"nvidia-smi failed with exit code {ended.exit_code}: {ended.last_line}")
    return choose_visible(read_gpus(ended.output), environ.get("CUDA_VISIBLE_DEVICES"))


def read_gpus(text: str) -> List[Gpu]:
    """All GPUs of the driver's answer; raises DeviceError for one that is not XML."""
    start = text.find("<nvidia_smi_log")
    try:
        root = ElementTree.fromstring(text[max(start, 0) :])
    except ElementTree.ParseError as error:
        raise DeviceError(f"nvidia-smi answered what is not XML: {error}") from error
    gpus = []
    for index, element in enumerate(root.findall("gpu")):
        values = dict(_list_values(element, ""))
        processes = tuple(
            name for name in (_name_process(info) for info in element.iter("process_info")) if name
        )
        gpus.append(Gpu(f"GPU {index}", values.get("uuid", ""), values, processes))
    return gpus


def _list_values(element: ElementTree.Element, path: str) -> Iterator[Tuple[str, str]]:
    for child in element:
        own = f"{path}{child.tag}"
        if len(child):
            yield from _list_values(child, f"{own}/")
        else:
            yield own, (child.text or "").strip()


def _name_process(info: ElementTree.Element) -> str:
    """A process that computes; empty for one that only draws, and for the server of MPS."""
    name = info.findtext("process_name", "").strip().rpartition("/")[2]
    if "C" not in info.findtext("type", "C") or name.startswith(_MPS):
        return ""
    return name or f"process {info.findtext('pid', '?').strip()}"


def choose_visible(gpus: List[Gpu], visible: Optional[str]) -> List[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, by number or UUID; all where it is not set.

    A number that the driver does not have any more is missing from the answer.
    """
    if visible is None:
        return gpus
    by_name: Dict[str, Gpu] = {str(index): gpu for index, gpu in enumerate(gpus)}
    by_name.update((gpu.uuid, gpu) for gpu in gpus)
    names = [name.strip() for name in visible.split(",")]
    return [by_name[name] for name in names if name in by_name]


def find_ecc_problem(gpu: Gpu) -> str:
    """What is wrong with its memory; empty if nothing is."""
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
    return "" if action in ("None", "N/A") else f"{gpu.name} asks for recovery: {action}"


def find_clock_problem(gpu: Gpu) -> str:
    """What holds its clocks down; empty if nothing does that should not."""
    reasons = []
    for path, value in gpu.values.items():
        found = _HELD_DOWN.search(path)
        if found is not None and value == "Active":
            reasons.append(found[1])
    if reasons:
        return f"{gpu.name} has its clocks held down: {', '.join(reasons)}"
    now = _read_number(gpu, "applications_clocks/graphics_clock")
    default = _read_number(gpu, "default_applications_clocks/graphics_clock")
    if 0 < now < default:
        return f"{gpu.name} has its clocks set to {now} MHz, below its default of {default} MHz"
    return ""


def find_memory_problem(gpu: Gpu, needed_mib: int) -> str:
    """Why its memory is too little; empty if it is not."""
    free = _read_number(gpu, "fb_memory_usage/free")
    return f"{gpu.name} has {free} MiB free, not {needed_mib}" if free < needed_mib else ""


def find_process_problem(gpu: Gpu) -> str:
    """Who uses it; empty if nobody does."""
    names = ", ".join(gpu.processes)[:MAX_REASON_CHARACTERS]
    return f"{gpu.name} is in use by {names}" if names else ""


def _read_number(gpu: Gpu, path: str) -> int:
    """A whole number before its unit; 0 where the GPU has none."""
    number = gpu.values.get(path, "").partition(" ")[0]
    return int(number) if number.isdigit() else 0
