"""A host before and during the measured steps -> the CPU and GPU use of other processes on it.

Noise does not delay or refuse a measurement: it is only reported.
"""

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.host_noise import CpuUse, GpuState, HostNoise, NoiseReport
from dlperf_slurm.worker.cpu_use import CpuWatch
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.host import read_text
from dlperf_slurm.worker.nvml import ask, find_handle, find_process_space, load_nvml
from dlperf_slurm.worker.telemetry.gpu_sources import choose_devices
from dlperf_slurm.worker.telemetry.series import list_throttle_reasons

# long enough for counters with a resolution of 1/100 s
LOOK_SECONDS = 0.5
PROC = Path("/proc")


def probe_host(case: Case, rank_info: RankInfo, world: Any) -> Optional[HostNoise]:
    """Measure the use of this rank's host and GPUs by other processes, before the case begins.

    The first rank of each host samples the CPUs while all ranks wait, and also the GPUs if it sees
    all; otherwise each rank looks at its own GPU. Noise is printed to standard error. None for a
    rank with nothing to report, and without telemetry. Collective: all ranks must call this.
    """
    if case.telemetry_interval_seconds <= 0:
        return None
    spaces = world.exchange((rank_info.host, find_process_space()))
    gpus = tuple(probe_gpus(choose_devices(case, rank_info, os.environ)))
    noise = None
    if rank_info.local_rank == 0:
        # in different PID namespaces, a rank would count the other ranks as foreign processes
        can_tell = len({space for host, space in spaces if host == rank_info.host}) == 1
        use = watch_cpus() if can_tell else None
        noise = HostNoise(rank_info.host, os.getloadavg()[0], before=_tell(use), gpus=gpus)
    elif gpus:
        noise = HostNoise(rank_info.host, 0.0, gpus=gpus)
    if noise is not None:
        for line in describe_noise(noise):
            print(f"before the measurement: {line}", file=sys.stderr, flush=True)
    world.barrier()
    return noise


def watch_cpus(is_rank: bool = True) -> Optional[CpuUse]:
    """Measure the use of all CPUs for LOOK_SECONDS; None if /proc cannot be read.

    This process is a rank of the run, or with `is_rank` False the run's root process.
    """
    watch = CpuWatch()
    time.sleep(LOOK_SECONDS)
    return watch.finish(os.getpid(), is_rank)


def probe_gpus(named: Mapping[int, str]) -> Iterator[GpuState]:
    """Yield the compute processes and clock throttle reasons of each GPU; nothing without NVML.

    `named` maps the local rank that uses a GPU to the GPU's index or UUID.
    """
    nvml = load_nvml() if named else None
    if nvml is None:
        return
    for local_rank, name in named.items():
        handle = find_handle(nvml, name)
        if handle is not None:
            others = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
            bits = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
            # of a process in another PID namespace only its number is known
            names = tuple(
                read_text(PROC / str(process.pid) / "comm") or f"process {process.pid}"
                for process in others
            )
            yield GpuState(local_rank, names, list_throttle_reasons(bits))


def _tell(use: Optional[CpuUse]) -> Tuple[CpuUse, ...]:
    return () if use is None else (use,)


def gather_noise(
    case: Case, world: Any, before: Optional[HostNoise], window: Optional[CpuUse]
) -> NoiseReport:
    """Gather the reports of other load on all hosts to rank 0; the report is empty elsewhere.

    `before` is this rank's result of `probe_host`, `window` the CPU use during the measured steps.
    All ranks must call this.
    """
    # CPU use that could not be attributed before the window cannot be attributed in it either
    whole = before and replace(before, window=_tell(window) if before.before else ())
    hosts = merge_hosts([one for one in world.gather(whole) if one is not None])
    return NoiseReport(case.run_id, case.case_id, case.repeat, case.attempt, tuple(hosts))


def merge_hosts(told: List[HostNoise]) -> List[HostNoise]:
    """Merge the ranks' reports of other load to one per host, in rank order, with all GPUs."""
    united: Dict[str, HostNoise] = {}
    for one in told:
        first = united.get(one.host)
        united[one.host] = replace(first, gpus=first.gpus + one.gpus) if first else one
    return list(united.values())


def describe_local_load() -> Iterator[str]:
    """Yield lines on other load on this machine, to warn before a run; none if it is quiet."""
    use = watch_cpus(is_rank=False)
    host = HostNoise(socket.gethostname(), os.getloadavg()[0], _tell(use))
    return describe_noise(host)


def describe_noise(one: HostNoise) -> Iterator[str]:
    """Yield a line for each kind of other load on a host before a measurement, none without."""
    for use in one.before:
        if use.has_other_processes:
            yield (
                f"{one.host} has other load: {describe_others(use)}, load average "
                f"{one.load_average:.1f}"
            )
        if not use.is_quiet and not use.has_other_processes:
            stolen = f"a hypervisor takes {use.stolen_share:.0%} of its CPU time (steal)"
            yield f"{one.host} has other load: {stolen}"
    for gpu in one.gpus:
        where = f"GPU {gpu.device} of {one.host}"
        if gpu.other_processes:
            yield f"{where} is used by other processes: {', '.join(gpu.other_processes)}"
        if gpu.throttle_reasons:
            yield f"clocks of {where} are throttled: {', '.join(gpu.throttle_reasons)}"


def describe_others(use: CpuUse) -> str:
    """Describe others' CPU use, such as "other processes use 12% of its 64 CPUs (python 10%)"."""
    names = ", ".join(f"{one.name} {one.cpu_share:.0%}" for one in use.other_processes)
    plural = "CPUs" if use.cpus > 1 else "CPU"
    return f"other processes use {use.other_share:.0%} of its {use.cpus} {plural}" + (
        f" ({names})" if names else ""
    )
