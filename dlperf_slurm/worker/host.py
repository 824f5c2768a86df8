"""Files of /proc and /sys -> text; the CPU's name and flags; this process's peak of memory."""

import os
import platform
import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Tuple

ROOT = Path("/")
PROC = Path("/proc/self")


def read_text(path: Path) -> str:
    """Read a file without surrounding white space; "" if it is not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        # also for existing files: reading the speed of an interface that is down gives EINVAL
        return ""


def list_folder(path: Path, pattern: str = "*") -> List[Path]:
    """List the matching entries of a folder, sorted by name; empty if there is no folder."""
    return sorted(path.glob(pattern)) if path.is_dir() else []


def read_stat(folder: Path) -> Tuple[str, List[str]]:
    """Return the name of a process and its fields from the third on: state, parent and so on.

    `folder` is the process's folder in /proc. Raises OSError if the process has ended.
    """
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    # the name is in parentheses, and may contain parentheses itself
    head, _, rest = text.rpartition(")")
    return head.partition("(")[2], rest.split()


def read_memory_kib(name: str, root: Path = ROOT) -> int:
    """Return a value of /proc/meminfo in KiB, by name such as "MemAvailable"; 0 if unknown."""
    found = re.search(rf"^{name}: +([0-9]+) kB", read_text(root / "proc/meminfo"), re.M)
    return int(found[1]) if found else 0


def read_cpu_fields(root: Path = ROOT) -> Dict[str, str]:
    """Return the first processor's fields, name -> text (proc_cpuinfo(5)); {} if unknown."""
    first = read_text(root / "proc/cpuinfo").split("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def read_cpu_name(root: Path = ROOT) -> str:
    """Return the CPU's model name as Linux reports it, else the architecture ("x86_64")."""
    return read_cpu_fields(root).get("model name") or platform.machine()


def has_cpu_flag(flag: str) -> bool:
    """Return whether the CPU has a flag such as "avx512bw"; True if Linux does not say."""
    flags = read_cpu_fields().get("flags", "").split()
    return not flags or flag in flags


def keep_to_cpus(count: int, local_rank: int) -> None:
    """Bind this process to `count` CPUs by `local_rank`, unless the launcher has bound it already.

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
    found = re.search(r"^VmHWM:\s*([0-9]+)", read_text(PROC / "status"), re.M)
    kib = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib * 1024
