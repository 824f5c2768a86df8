"""python -m dlperf_slurm.worker.telemetry: what a rank says on standard input -> samples as JSON.

A process of its own, as a thread would take turns with the Python of the rank that measures.
"""

import argparse
import json
import os
import resource
import select
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

from dlperf_slurm.worker.cpu_use import CpuWatch, read_stat
from dlperf_slurm.worker.telemetry.series import (
    END,
    READY,
    SECONDS,
    START,
    STOP,
    HostSamples,
    Series,
)
from dlperf_slurm.worker.telemetry.sources import open_devices, open_host

PROC = Path("/proc")
LEAST_PRIORITY = 19


class RankGoneError(EOFError):
    """The rank ended, or closed its end of the pipe."""


class Samples:
    """What all sources told so far, and when."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources = sources
        self._taken: List[List[Dict[str, float]]] = [[] for _ in sources]

    def take(self) -> None:
        for source, taken in zip(self._sources, self._taken):
            taken.append({SECONDS: time.monotonic(), **source.read()})

    def list_series(self) -> Iterator[Series]:
        for source, taken in zip(self._sources, self._taken):
            columns = {name: [sample[name] for sample in taken] for name in taken[0]}
            yield Series(source.device, source.name, columns)


def main(arguments: Sequence[str]) -> int:
    """Sample from START to END, print the samples at STOP; 1 when the rank goes before that."""
    options = parse_arguments(arguments)
    stay_out_of_the_way(os.getppid())
    devices = {int(rank): gpu for rank, _, gpu in (d.partition("=") for d in options.device)}
    sources = [*(open_host() if options.is_host else ()), *open_devices(devices)]
    # what a first reading prepares is not the window's
    Samples(sources).take()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    try:
        samples = sample_window(sources, options.host, options.interval, options.is_host)
    except RankGoneError:
        return 1
    json.dump(asdict(samples), sys.stdout)
    return 0


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
    """The children of its parent (proc_pid_stat(5), proc_tid_children(5)); none on old kernels."""
    try:
        parent = read_stat(proc / str(pid))[1][1]
        lists = proc.glob(f"{parent}/task/*/children")
        children = [path.read_text(encoding="ascii") for path in lists]
    except OSError:
        return []
    return [int(child) for text in children for child in text.split()]


def sample_window(
    sources: Sequence[Any], host: str, interval_seconds: float, is_host: bool
) -> HostSamples:
    """One sample at START, one per interval, one at END; returns at STOP.

    Raises RankGoneError.
    """
    samples = Samples(sources)
    hear(START)
    cpu_seconds = read_cpu_seconds()
    samples.take()
    watch = CpuWatch() if is_host else None
    due = time.monotonic() + interval_seconds
    while not hear(END, due):
        samples.take()
        due += interval_seconds
    samples.take()
    cpu_use = watch.finish(os.getppid()) if watch else None
    cpu_seconds = read_cpu_seconds() - cpu_seconds
    hear(STOP)
    series = tuple(samples.list_series())
    return HostSamples(host, interval_seconds, cpu_seconds, series, cpu_use=cpu_use)


def hear(word: bytes, due: Optional[float] = None) -> bool:
    """Wait for this word of the rank; False when it has not come by `due`, a monotonic time.

    Raises RankGoneError.
    """
    timeout = None if due is None else max(0.0, due - time.monotonic())
    if not select.select([sys.stdin], [], [], timeout)[0]:
        return False
    heard = os.read(sys.stdin.fileno(), 1)
    if heard != word:
        raise RankGoneError(f"heard {heard!r} in place of {word!r}")
    return True


def read_cpu_seconds() -> float:
    """The CPU time of this process since its start, in user and system mode."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Sources are given by the rank: it knows which devices its host's ranks drive."""
    parser = argparse.ArgumentParser(prog="python -m dlperf_slurm.worker.telemetry")
    parser.add_argument("host")
    parser.add_argument("--interval", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--is-host", action="store_true", help="sample CPUs and memory")
    parser.add_argument("--device", action="append", default=[], metavar="LOCAL_RANK=GPU")
    return parser.parse_args(list(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
