"""The sampling process -> to CPUs on which no rank measures, where it may run on such."""

import os
from contextlib import suppress
from pathlib import Path
from typing import List, Set

PROC = Path("/proc")
LEAST_PRIORITY = 19


def stay_out_of_the_way(rank_pid: int, proc: Path = PROC) -> None:
    """Have the least priority, and leave the CPUs of all ranks beside `rank_pid`.

    The kernel keeps a job within its own CPUs; where ranks take all of these, it stays.
    """
    os.nice(LEAST_PRIORITY)
    free = set(range(os.cpu_count() or 1)) - find_busy_cpus(rank_pid, proc)
    if free:
        # EINVAL: none of them is the job's
        with suppress(OSError):
            os.sched_setaffinity(0, free)


def find_busy_cpus(rank_pid: int, proc: Path = PROC) -> Set[int]:
    """Where this host's ranks may run: what one launcher's process has started beside that one."""
    busy = set()
    for pid in {rank_pid, *_list_siblings(rank_pid, proc)}:
        # another rank may have ended by now
        with suppress(ProcessLookupError):
            busy |= os.sched_getaffinity(pid)
    return busy


def _list_siblings(pid: int, proc: Path) -> List[int]:
    """By proc_pid_stat(5) and proc_tid_children(5); none on kernels without the latter."""
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # behind the name of the program, which may have anything in it: state, then parent
        parent = stat.rpartition(")")[2].split()[1]
        lists = proc.glob(f"{parent}/task/*/children")
        children = [path.read_text(encoding="ascii") for path in lists]
    except OSError:
        return []
    return [int(child) for text in children for child in text.split()]
