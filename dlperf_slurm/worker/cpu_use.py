"""Two readings of /proc -> the shares of all CPU time: the run, other processes, the hypervisor.

The machine-wide counters also include processes that are not visible: of other users under
hidepid, or of other containers. Sources: proc_stat(5), proc_pid_stat(5).
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Set

from dlperf_slurm.contract.host_noise import CpuUse, OtherProcess
from dlperf_slurm.worker.host import read_stat

PROC = Path("/proc")
INIT = 1
KERNEL_THREADS = 2

# the kernel counts in ticks, usually 1/100 s
SHORTEST_SECONDS = 0.2
MAX_NEIGHBOURS = 5
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Process:
    """A process: name, parent PID, and the ticks used by itself and its ended children."""

    name: str
    parent: int
    ticks: int


@dataclass(frozen=True)
class CpuCounters:
    """The counters at one time: ticks summed over all CPUs, and all visible processes by PID.

    `worked` is user, nice and system time; interrupts are only in `total`.
    """

    seconds: float
    total: int
    worked: int
    stolen: int
    processes: Dict[int, Process]


def read_proc(proc: Path = PROC) -> CpuCounters:
    """Read the CPU counters of the host and of all visible processes; `proc` is /proc.

    Raises OSError if that fails, or ValueError for unexpected content.
    """
    fields = (proc / "stat").read_text(encoding="ascii").split(None, 11)[1:9]
    user, nice, system, idle, iowait, irq, softirq, stolen = map(int, fields)
    worked = user + nice + system
    total = worked + idle + iowait + irq + softirq + stolen
    return CpuCounters(time.monotonic(), total, worked, stolen, read_processes(proc))


def read_processes(proc: Path = PROC) -> Dict[int, Process]:
    """Read name, parent and CPU ticks of all visible processes, by PID; `proc` is /proc."""
    processes = {}
    for pid in filter(str.isdigit, os.listdir(str(proc))):
        # it may have ended meanwhile
        with suppress(OSError):
            name, fields = read_stat(proc / pid)
            processes[int(pid)] = Process(name, int(fields[1]), sum(map(int, fields[11:15])))
    return processes


def divide_time(first: CpuCounters, last: CpuCounters, launcher: int) -> Optional[CpuUse]:
    """Compute CPU time shares, 0 ... 1, between two readings; `launcher` is the run's root process.

    Returns None if the readings are less than SHORTEST_SECONDS apart.
    """
    total = last.total - first.total
    if last.seconds - first.seconds < SHORTEST_SECONDS or total <= 0:
        return None
    own = list_run_pids(last.processes, launcher)
    kernel = list_descendants(last.processes, {KERNEL_THREADS})
    spent = _count_ticks(first, last)
    own_ticks = sum(spent.get(one, 0) for one in own)
    kernel_ticks = sum(spent.get(one, 0) for one in kernel)
    others = last.worked - first.worked - own_ticks - kernel_ticks
    by_name: Dict[str, int] = {}
    for one, ticks in spent.items():
        if ticks > 0 and one not in own and one not in kernel:
            name = last.processes[one].name
            by_name[name] = by_name.get(name, 0) + ticks
    by_name = {name: ticks for name, ticks in by_name.items() if ticks >= LEAST_SHARE * total}
    busiest = sorted(by_name, key=lambda name: (-by_name[name], name))[:MAX_NEIGHBOURS]
    return CpuUse(
        seconds=last.seconds - first.seconds,
        cpus=os.cpu_count() or 1,
        run_share=_limit(own_ticks / total),
        other_share=_limit(others / total),
        stolen_share=_limit((last.stolen - first.stolen) / total),
        other_processes=tuple(
            OtherProcess(name, _limit(by_name[name] / total)) for name in busiest
        ),
    )


def _limit(share: float) -> float:
    """Limit a share to 0 ... 1: counters are read one after the other, so sums may be inexact."""
    return min(1.0, max(0.0, share))


def _count_ticks(first: CpuCounters, last: CpuCounters) -> Dict[int, int]:
    """Return the CPU ticks used between two readings, by PID.

    Those of a child that ended count for its parent.
    """
    spent = {}
    for pid, process in last.processes.items():
        earlier = first.processes.get(pid)
        spent[pid] = process.ticks - (earlier.ticks if earlier else 0)
    for pid, process in first.processes.items():
        # the parent now includes all ticks of this child, also those before the first reading
        if pid not in last.processes and process.parent in spent:
            spent[process.parent] -= process.ticks
    return spent


def find_launcher(rank: int, processes: Mapping[int, Process]) -> int:
    """Return the PID of the parent of the host's ranks, or if that is init, the rank's own.

    `rank` is the PID of one of these ranks.
    """
    parent = processes[rank].parent if rank in processes else INIT
    return parent if parent > INIT else rank


def list_run_pids(processes: Mapping[int, Process], launcher: int) -> Set[int]:
    """Return the PIDs that belong to the run: the launcher with its descendants and ancestors."""
    own = list_descendants(processes, {launcher})
    pid = launcher
    while pid in processes and pid > INIT:
        own.add(pid)
        pid = processes[pid].parent
    return own


def list_descendants(processes: Mapping[int, Process], roots: Set[int]) -> Set[int]:
    """List the given PIDs and all their descendants."""
    children: Dict[int, List[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: Set[int] = set()
    remaining = list(roots)
    while remaining:
        pid = remaining.pop()
        if pid not in found:
            found.add(pid)
            remaining += children.get(pid, [])
    return found


class CpuWatch:
    """A measurement of the use of all CPUs that starts when the object is created."""

    def __init__(self) -> None:
        self._first = try_to_read()

    def finish(self, pid: int, is_rank: bool = True) -> Optional[CpuUse]:
        """Compute the shares of CPU time since the start, for the run to which `pid` belongs.

        `pid` is a rank, or with `is_rank` False the root process of the run. Returns None if /proc
        cannot be read or the time was too short.
        """
        last = try_to_read()
        if self._first is None or last is None:
            return None
        launcher = find_launcher(pid, last.processes) if is_rank else pid
        return divide_time(self._first, last, launcher)


def try_to_read() -> Optional[CpuCounters]:
    """Read the CPU counters of the host now; None if /proc cannot be read."""
    try:
        return read_proc()
    except (OSError, ValueError):
        return None
