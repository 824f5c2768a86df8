"""What Linux tells about this process: the CPU's name, the peak of its resident memory."""

import platform
import resource
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc/self")


def read_cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def reset_peak_resident() -> None:
    """Start a new peak (proc_pid_clear_refs(5), 5); without the right to, the old one stands."""
    with suppress(OSError):
        (PROC / "clear_refs").write_text("5")


def read_peak_resident_bytes() -> int:
    """VmHWM of proc_pid_status(5), or getrusage's peak, which no reset reaches."""
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
