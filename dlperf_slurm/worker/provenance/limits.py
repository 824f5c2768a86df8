"""This process -> what it may use: resource limits, memory and CPUs of its cgroup."""

import resource
from pathlib import Path
from typing import Dict, Iterator, List

from dlperf_slurm.worker.provenance.files import ROOT, read_text

MIB = 2**20
NONE = "none"

# cgroup v1 has no word for "no limit" but the largest number of pages
_UNLIMITED_BYTES = 2**60


def describe_limits(root: Path = ROOT) -> Dict[str, str]:
    """Limits of getrlimit(2), soft of hard, and the tightest of all cgroups above (cgroups(7))."""
    limits = {
        f"limit_{name.lower()}": _format_limit(getattr(resource, f"RLIMIT_{name}"))
        for name in ("MEMLOCK", "NOFILE", "STACK")
    }
    memory = [*_list_memory_limits(root)]
    cpus = [*_list_cpu_limits(root)]
    return {
        **limits,
        "cgroup_memory_mib": f"{min(memory) // MIB}" if memory else NONE,
        "cgroup_cpus": f"{min(cpus):.2f}" if cpus else NONE,
    }


def _format_limit(kind: int) -> str:
    soft, hard = (
        "unlimited" if value == resource.RLIM_INFINITY else str(value)
        for value in resource.getrlimit(kind)
    )
    return soft if soft == hard else f"{soft} of {hard}"


def _list_memory_limits(root: Path) -> Iterator[int]:
    for folder in _list_cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = read_text(folder / name)
            if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
                yield int(limit)


def _list_cpu_limits(root: Path) -> Iterator[float]:
    """Quota over period, both in microseconds: so many CPUs at once."""
    for folder in _list_cgroups(root, "cpu"):
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
        quota = quota or read_text(folder / "cpu.cfs_quota_us")
        period = period or read_text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _list_cgroups(root: Path, controller: str) -> List[Path]:
    """This process' cgroup and those above it, of v2 and of v1; some may not be visible here."""
    mount = root / "sys/fs/cgroup"
    folders = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, relative = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount
        path = top / relative.lstrip("/")
        folders += [path, *(above for above in path.parents if top in (above, *above.parents))]
    return folders
