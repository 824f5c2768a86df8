"""Linux's /proc -> the CPU's name and flags and the peak of this process's resident memory."""

import os
import platform
import resource
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc/self")
CPU_INFO = Path("/proc/cpuinfo")


def read_cpu_name() -> str:
    """Return the CPU's model name as Linux reports it, else the architecture ("x86_64")."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def has_cpu_flag(flag: str) -> bool:
    """Return whether the CPU has a flag such as "avx512bw"; True if Linux does not say."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return True
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not flags or flag in flags.split()


def keep_to_cpus(count: int, local_rank: int) -> None:
    """Bind this process to `count` CPUs of its own, unless the launcher has bound it already.

    For frameworks that use more threads than they are set to; call this before the threads start.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) > count:
        first = local_rank * count
        os.sched_setaffinity(0, {allowed[i % len(allowed)] for i in range(first, first + count)})


def reset_peak_resident() -> None:
    """Reset the peak of resident memory (proc_pid_clear_refs(5), value 5), if permitted."""
    with suppress(OSError):
        (PROC / "clear_refs").write_text("5")


def read_peak_resident_bytes() -> int:
    """Return the peak of resident memory: VmHWM of proc_pid_status(5), or else of getrusage(2).

    The peak of getrusage cannot be reset.
    """
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
