"""Two readings of /proc -> where the time of all CPUs went: to the run, to others, to neither.

Counters of the whole machine also have what cannot be seen: processes of other users, where the
system hides them, or of other containers. Sources: proc_stat(5), proc_pid_stat(5).
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Set, Tuple

from dlperf_slurm.contract.surroundings import CpuUse, Neighbour

PROC = Path("/proc")
INIT = 1
KERNEL_THREADS = 2

# the kernel counts in hundredths of a second
SHORTEST_SECONDS = 0.2
MAX_NEIGHBOURS = 5
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Process:
    """A process: its name, its parent, and the ticks that it and its ended children took."""

    name: str
    parent: int
    ticks: int


@dataclass(frozen=True)
class Reading:
    """The counters at a moment: ticks of all CPUs together, and all processes that can be seen.

    `worked` is what processes and the kernel's threads took; interrupts are in `total` alone.
    """

    seconds: float
    total: int
    worked: int
    stolen: int
    processes: Dict[int, Process]


def read_proc(proc: Path = PROC) -> Reading:
    """Raises OSError where the system does not tell."""
    fields = (proc / "stat").read_text(encoding="ascii").split(None, 11)[1:9]
    user, nice, system, idle, iowait, irq, softirq, stolen = map(int, fields)
    worked = user + nice + system
    total = worked + idle + iowait + irq + softirq + stolen
    return Reading(time.monotonic(), total, worked, stolen, _read_processes(proc))


def _read_processes(proc: Path) -> Dict[int, Process]:
    processes = {}
    for name in os.listdir(str(proc)):
        process = _read_process(proc / name) if name.isdigit() else None
        if process is not None:
            processes[int(name)] = process
    return processes


def _read_process(folder: Path) -> Optional[Process]:
    """None for a process that has ended, or may not be looked at."""
    try:
        name, fields = read_stat(folder)
    except OSError:
        return None
    return Process(name, int(fields[1]), sum(map(int, fields[11:15])))


def read_stat(folder: Path) -> Tuple[str, List[str]]:
    """Return a process's name and its fields from the third on: state, parent and so on.

    `folder` is that of the process in /proc. Raises OSError for one that has ended.
    """
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    # the name stands in parentheses, and may have some itself
    head, _, rest = text.rpartition(")")
    return head.partition("(")[2], rest.split()


def divide_time(first: Reading, last: Reading, launcher: int) -> Optional[CpuUse]:
    """Where the time between two readings went, for the run whose processes this one started.

    None of too short a time to tell.
    """
    total = last.total - first.total
    if last.seconds - first.seconds < SHORTEST_SECONDS or total <= 0:
        return None
    own = list_own(last.processes, launcher)
    kernel = list_descendants(last.processes, {KERNEL_THREADS})
    spent = _list_spent(first, last)
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
        own_share=_limit(own_ticks / total),
        other_share=_limit(others / total),
        stolen_share=_limit((last.stolen - first.stolen) / total),
        neighbours=tuple(Neighbour(name, _limit(by_name[name] / total)) for name in busiest),
    )


def _limit(share: float) -> float:
    """Counters that are read one after the other may be off by a little."""
    return min(1.0, max(0.0, share))


def _list_spent(first: Reading, last: Reading) -> Dict[int, int]:
    """The ticks between two readings by process; those of children count where they ended."""
    spent = {}
    for pid, process in last.processes.items():
        earlier = first.processes.get(pid)
        spent[pid] = process.ticks - (earlier.ticks if earlier else 0)
    for pid, process in first.processes.items():
        # its parent has all of its ticks now, of which these are not of this time
        if pid not in last.processes and process.parent in spent:
            spent[process.parent] -= process.ticks
    return spent


def find_launcher(rank: int, processes: Mapping[int, Process]) -> int:
    """The process that started a rank, and the others of its host; the rank itself without one."""
    parent = processes[rank].parent if rank in processes else INIT
    return parent if parent > INIT else rank


def list_own(processes: Mapping[int, Process], launcher: int) -> Set[int]:
    """The run's processes: what its launcher has started, and who started that one."""
    own = list_descendants(processes, {launcher})
    pid = launcher
    while pid in processes and pid > INIT:
        own.add(pid)
        pid = processes[pid].parent
    return own


def list_descendants(processes: Mapping[int, Process], roots: Set[int]) -> Set[int]:
    """These processes, and all that they have started, themselves or through others."""
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
    """Where the time of all CPUs goes, from when it is made."""

    def __init__(self) -> None:
        self._first = try_to_read()

    def finish(self, pid: int, is_rank: bool = True) -> Optional[CpuUse]:
        """What the run took that this process is a rank of, or has started itself.

        None where the system does not tell.
        """
        last = try_to_read()
        if self._first is None or last is None:
            return None
        launcher = find_launcher(pid, last.processes) if is_rank else pid
        return divide_time(self._first, last, launcher)


def try_to_read() -> Optional[Reading]:
    """The counters now; None where the system does not tell."""
    try:
        return read_proc()
    except (OSError, ValueError):
        return None
