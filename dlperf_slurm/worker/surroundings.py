"""A host before any rank works -> what else it does; with its window, what stands beside a record.

Nobody is waited for and nothing is refused: whoever reads the figures is told.
"""

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.surroundings import (
    CpuUse,
    GpuBefore,
    HostSurroundings,
    Surroundings,
)
from dlperf_slurm.worker.cpu_use import CpuWatch
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.nvml import ask, find_handle, load_nvml
from dlperf_slurm.worker.telemetry.series import name_reasons
from dlperf_slurm.worker.telemetry.sources import choose_devices

# long enough for counters in hundredths of a second
LOOK_SECONDS = 0.5
PROC = Path("/proc")


def look_around(case: Case, placement: Placement, world: Any) -> Optional[HostSurroundings]:
    """What this rank's host and GPUs do before the case; None for a rank that has none to watch.

    The first rank of a host looks while all ranks wait, and says on standard error what it finds.
    All ranks call it.
    """
    if case.telemetry_interval_seconds <= 0:
        return None
    spaces = world.exchange((placement.host, find_process_space()))
    gpus = tuple(look_at_gpus(choose_devices(case, placement, os.environ)))
    surroundings = None
    if placement.local_rank == 0:
        # where ranks cannot see each other, each would take the others for strangers
        can_tell = len({space for host, space in spaces if host == placement.host}) == 1
        use = watch_cpus() if can_tell else None
        surroundings = HostSurroundings(
            placement.host, os.getloadavg()[0], before=_tell(use), gpus=gpus
        )
    elif gpus:
        surroundings = HostSurroundings(placement.host, 0.0, gpus=gpus)
    if surroundings is not None:
        for line in describe_noise(surroundings):
            print(f"before the measurement: {line}", file=sys.stderr, flush=True)
    world.barrier()
    return surroundings


def find_process_space() -> str:
    """The namespace of processes that this one can see; empty where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def watch_cpus(is_rank: bool = True) -> Optional[CpuUse]:
    """Where the time of all CPUs goes from now on; None where the system does not tell."""
    watch = CpuWatch()
    time.sleep(LOOK_SECONDS)
    return watch.finish(os.getpid(), is_rank)


def look_at_gpus(named: Mapping[int, str]) -> Iterator[GpuBefore]:
    """Who uses these GPUs, by local rank, and what holds their clocks down."""
    nvml = load_nvml() if named else None
    if nvml is None:
        return
    for local_rank, name in named.items():
        handle = find_handle(nvml, name)
        if handle is not None:
            others = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
            bits = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
            names = tuple(_name_process(process.pid) for process in others)
            yield GpuBefore(local_rank, names, name_reasons(bits))


def _name_process(pid: int) -> str:
    """Its name; its number where it is another container's, or may not be looked at."""
    try:
        return (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"


def _tell(use: Optional[CpuUse]) -> Tuple[CpuUse, ...]:
    return () if use is None else (use,)


def gather_surroundings(
    case: Case, world: Any, before: Optional[HostSurroundings], window: Optional[CpuUse]
) -> Surroundings:
    """The surroundings of all hosts on rank 0, none elsewhere; all ranks call it."""
    # where the CPUs could not be told apart before, they cannot in the window
    whole = before and replace(before, window=_tell(window) if before.before else ())
    hosts = unite_hosts([one for one in world.gather(whole) if one is not None])
    return Surroundings(case.run_id, case.case_id, case.repeat, case.attempt, tuple(hosts))


def unite_hosts(told: List[HostSurroundings]) -> List[HostSurroundings]:
    """One for each host, in the order of the ranks, with the GPUs that its other ranks watched."""
    united: Dict[str, HostSurroundings] = {}
    for one in told:
        first = united.get(one.host)
        united[one.host] = replace(first, gpus=first.gpus + one.gpus) if first else one
    return list(united.values())


def describe_here() -> Iterator[str]:
    """What is not quiet about this machine, before this process starts a run on it."""
    use = watch_cpus(is_rank=False)
    host = HostSurroundings(socket.gethostname(), os.getloadavg()[0], _tell(use))
    return describe_noise(host)


def describe_noise(one: HostSurroundings) -> Iterator[str]:
    """What is not quiet about a host before a measurement, a line for each."""
    for use in one.before:
        if use.has_neighbours:
            yield (
                f"{one.host} is not quiet: {describe_others(use)}, load average "
                f"{one.load_average:.1f}"
            )
        if not use.is_quiet and not use.has_neighbours:
            yield f"{one.host} is not quiet: a hypervisor takes {use.stolen_share:.0%} of its CPUs"
    for gpu in one.gpus:
        where = f"GPU {gpu.device} of {one.host}"
        if gpu.other_processes:
            yield f"{where} is in use by {', '.join(gpu.other_processes)}"
        if gpu.throttle_reasons:
            yield f"{where} has its clocks held down: {', '.join(gpu.throttle_reasons)}"


def describe_others(use: CpuUse) -> str:
    """How much of the CPUs others take, and who, as far as that could be seen."""
    names = ", ".join(f"{one.name} {one.cpu_share:.0%}" for one in use.neighbours)
    plural = "CPUs" if use.cpus > 1 else "CPU"
    return f"other processes take {use.other_share:.0%} of its {use.cpus} {plural}" + (
        f" ({names})" if names else ""
    )
