"""NVML through pynvml (the package nvidia-ml-py) -> the module, ready to be asked, or nothing."""

from importlib import import_module
from typing import Any


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
    """What NVML answers; None for what this driver, device or user may not be asked."""
    function = getattr(nvml, query, None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except nvml.NVMLError:
        return None
    # earlier pynvml answers in bytes
    return answer.decode() if isinstance(answer, bytes) else answer


def find_handle(nvml: Any, name: str) -> Any:
    """The GPU, or instance of one, that CUDA_VISIBLE_DEVICES names so; None if NVML has none.

    NVML numbers GPUs by their place on the bus, as CUDA does in the order PCI_BUS_ID, which the job
    script asks for.
    """
    if name.isdigit():
        return ask(nvml, "nvmlDeviceGetHandleByIndex", int(name))
    return ask(nvml, "nvmlDeviceGetHandleByUUID", name)
