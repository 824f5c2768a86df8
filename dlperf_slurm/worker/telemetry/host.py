"""A host's counters -> samples of its CPUs, memory and CPU energy; psutil and powercap."""

import math
from pathlib import Path
from typing import Any, Dict, Iterator

from dlperf_slurm.contract.record import HOST
from dlperf_slurm.worker.host import read_cpu_name
from dlperf_slurm.worker.telemetry.series import BUSY, ENERGY, MEMORY, STOLEN, TOTAL

ROOT = Path("/")
MICRO = 1e-6


class HostSource:
    """CPUs and memory, with whatever runs on them.

    Their clocks are left alone: to read one interrupts its CPU, which may be a measuring one.
    """

    device = HOST

    def __init__(self, psutil: Any, root: Path = ROOT) -> None:
        self.name = read_cpu_name()
        self._psutil = psutil
        self._energy = EnergyCounter(root)

    def read(self) -> Dict[str, float]:
        """One sample; NaN for energy that may not be read."""
        times = self._psutil.cpu_times()
        # guests' time is in user's already (proc_stat(5))
        total = times.user + times.nice + times.system + times.idle + times.iowait
        total += times.irq + times.softirq + times.steal
        return {
            BUSY: total - times.idle - times.iowait,
            TOTAL: total,
            STOLEN: times.steal,
            MEMORY: float(self._psutil.virtual_memory().used),
            ENERGY: self._energy.read_joules(),
        }


def open_host() -> Iterator[HostSource]:
    """The host; nothing without psutil."""
    try:
        import psutil
    except ImportError:
        return
    yield HostSource(psutil)


class EnergyCounter:
    """Joules of all CPU packages and their memory, by the kernel's powercap (Intel and AMD).

    Counters begin again at their range; from Linux 5.10 on they may be root's only to read.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._zones = [
            _Zone(path)
            for path in sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
            if _is_counted(path)
        ]

    def read_joules(self) -> float:
        """Since it was made, if called at least once per range; NaN where it cannot be read."""
        return sum(zone.read_joules() for zone in self._zones) if self._zones else math.nan


class _Zone:
    def __init__(self, path: Path) -> None:
        self._counter = path / "energy_uj"
        self._range = _read_number(path / "max_energy_range_uj")
        self._latest = _read_number(self._counter)
        self._joules = 0.0

    def read_joules(self) -> float:
        now = _read_number(self._counter)
        wrapped = self._range if now < self._latest else 0.0
        self._joules += MICRO * (now - self._latest + wrapped)
        self._latest = now
        return self._joules


def _is_counted(zone: Path) -> bool:
    """Packages and the memory beside them; cores are in packages, and all is in "psys"."""
    try:
        name = (zone / "name").read_text(encoding="ascii").strip()
    except OSError:
        return False
    return name.startswith("package") or name == "dram"


def _read_number(path: Path) -> float:
    try:
        return float(path.read_text(encoding="ascii"))
    except OSError:
        return math.nan
