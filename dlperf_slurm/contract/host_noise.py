"""Other load on the hosts of an attempt, and the durations of its phases: a sidecar file."""

import dataclasses
from typing import Tuple

from dlperf_slurm.contract.phases import Phase

HOST_NOISE_FILE = "host_noise.json"

# shares of the time of all CPUs of a host, from which other load is reported
MIN_OTHER_SHARE = 0.05
MIN_STOLEN_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class OtherProcess:
    """Processes of one name outside the run; `cpu_share` is of the time of all CPUs."""

    name: str
    cpu_share: float


@dataclasses.dataclass(frozen=True)
class CpuUse:
    """CPU use of a host over `seconds`, as shares of the time of all its CPUs.

    `run_share` is for the run's processes, `other_share` for all others, `stolen_share` the steal
    time of the hypervisor; the rest is the kernel's own or idle time. `other_processes` lists the
    visible ones, busiest first.
    """

    seconds: float
    cpus: int
    run_share: float
    other_share: float
    stolen_share: float
    other_processes: Tuple[OtherProcess, ...] = ()

    @property
    def has_other_processes(self) -> bool:
        """Whether processes outside the run used enough CPU time to report."""
        return self.other_share >= MIN_OTHER_SHARE

    @property
    def is_quiet(self) -> bool:
        """Whether neither other processes nor the hypervisor took enough CPU time to report."""
        return not self.has_other_processes and self.stolen_share < MIN_STOLEN_SHARE


@dataclasses.dataclass(frozen=True)
class GpuState:
    """A GPU before any rank uses it: other processes on it, and why its clocks are throttled."""

    device: int
    other_processes: Tuple[str, ...] = ()
    throttle_reasons: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class HostNoise:
    """Other load on a host, before a repeat and during its measured steps (`window`).

    Tuples are empty if unknown. `load_average` is the kernel's one-minute average before the
    repeat.
    """

    host: str
    load_average: float
    before: Tuple[CpuUse, ...] = ()
    gpus: Tuple[GpuState, ...] = ()
    window: Tuple[CpuUse, ...] = ()


@dataclasses.dataclass(frozen=True)
class NoiseReport:
    """Other load on all hosts of one attempt, and the phases of its rank 0."""

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    hosts: Tuple[HostNoise, ...]
    phases: Tuple[Phase, ...] = ()
