"""python -m dlperf_slurm.worker.telemetry: commands on standard input -> samples as JSON.

A separate process, since a thread would compete for the GIL of the measuring rank.
"""

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

from dlperf_slurm.worker.cpu_use import CpuWatch, read_processes
from dlperf_slurm.worker.telemetry.gpu_sources import open_devices
from dlperf_slurm.worker.telemetry.series import (
    END,
    READY,
    SECONDS,
    START,
    STOP,
    DeviceSeries,
    HostSamples,
)
from dlperf_slurm.worker.telemetry.sources import open_host

PROC = Path("/proc")
LEAST_PRIORITY = 19


class RankGoneError(EOFError):
    """A rank that ended or closed its end of the pipe."""


class TelemetrySamples:
    """The samples of all sources so far, with their times, and the growth of error counters."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources = sources
        self._errors = [source.read_errors() for source in sources]
        self._taken: List[List[Dict[str, float]]] = [[] for _ in sources]

    def take(self) -> None:
        for source, taken in zip(self._sources, self._taken):
            taken.append({SECONDS: time.monotonic(), **source.read()})

    def list_series(self) -> Iterator[DeviceSeries]:
        for source, taken, before in zip(self._sources, self._taken, self._errors):
            columns = {name: [sample[name] for sample in taken] for name in taken[0]}
            errors = {
                name: count - before.get(name, 0)
                for name, count in source.read_errors().items()
                if count > before.get(name, 0)
            }
            yield DeviceSeries(source.device, source.name, columns, errors)


def main(arguments: Sequence[str]) -> int:
    """Sample from START to END and print the samples at STOP; return 1 if the rank ends earlier.

    The arguments are HOST, and as JSON the interval in seconds, whether to sample CPUs and memory,
    and the devices, {LOCAL_RANK: GPU}.
    """
    host, (interval_seconds, is_host, devices) = arguments[0], map(json.loads, arguments[1:])
    lower_priority(os.getppid())
    named = {int(rank): gpu for rank, gpu in devices.items()}
    sources = [*(open_host(os.environ) if is_host else ()), *open_devices(named)]
    # a first reading, so that drivers are initialized before the window
    TelemetrySamples(sources).take()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    try:
        samples = sample_window(sources, host, interval_seconds, is_host)
    except RankGoneError:
        return 1
    json.dump(asdict(samples), sys.stdout)
    return 0


def lower_priority(rank_pid: int) -> None:
    """Take the lowest priority, and move to CPUs that no rank of this host may use.

    `rank_pid` is one of these ranks. If the ranks may use all CPUs of the job, the affinity stays:
    the kernel enforces the cpuset.
    """
    os.nice(LEAST_PRIORITY)
    free = set(range(os.cpu_count() or 1)) - find_busy_cpus(rank_pid)
    if free:
        # EINVAL: none of these CPUs belongs to the job
        with suppress(OSError):
            os.sched_setaffinity(0, free)


def find_busy_cpus(rank_pid: int, proc: Path = PROC) -> Set[int]:
    """Return the CPUs that the ranks of this host may use: `rank_pid` and its siblings."""
    processes = read_processes(proc)
    own = processes.get(rank_pid)
    siblings = [pid for pid, one in processes.items() if own and one.parent == own.parent]
    busy = set()
    for pid in {rank_pid, *siblings}:
        # a sibling may have ended meanwhile
        with suppress(ProcessLookupError):
            busy |= os.sched_getaffinity(pid)
    return busy


def sample_window(
    sources: Sequence[Any], host: str, interval_seconds: float, is_host: bool
) -> HostSamples:
    """Take one sample at START, one per interval and one at END; return them at STOP.

    START, END and STOP are commands of the rank on standard input. `sources` are devices and host
    (`read`, `read_errors`); `is_host` adds the host's CPU use. Raises RankGoneError.
    """
    samples = TelemetrySamples(sources)
    await_command(START)
    cpu_seconds = read_cpu_seconds()
    samples.take()
    watch = CpuWatch() if is_host else None
    due = time.monotonic() + interval_seconds
    while not await_command(END, due):
        samples.take()
        due += interval_seconds
    samples.take()
    cpu_use = watch.finish(os.getppid()) if watch else None
    cpu_seconds = read_cpu_seconds() - cpu_seconds
    await_command(STOP)
    series = tuple(samples.list_series())
    return HostSamples(host, interval_seconds, cpu_seconds, series, cpu_use=cpu_use)


def await_command(word: bytes, due: Optional[float] = None) -> bool:
    """Wait until the rank sends the command `word`; return False if it does not by time `due`.

    `due` is a monotonic time, None for no limit. Raises RankGoneError if the rank has ended.
    """
    timeout = None if due is None else max(0.0, due - time.monotonic())
    if not select.select([sys.stdin], [], [], timeout)[0]:
        return False
    heard = os.read(sys.stdin.fileno(), 1)
    if heard != word:
        raise RankGoneError(f"received {heard!r} instead of {word!r}")
    return True


def read_cpu_seconds() -> float:
    """Return the user and system CPU time of this process together, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
