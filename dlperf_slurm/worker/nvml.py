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
