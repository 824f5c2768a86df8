"""Samples of a host, as columns by device -> one Telemetry summary per device."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

from dlperf_slurm.contract.host_noise import CpuUse
from dlperf_slurm.contract.record import DeviceState, Telemetry

# commands of a rank to the sampling process, one byte each, and the answer READY
START = b"s"
END = b"e"
STOP = b"q"
READY = b"ready\n"

# columns; a sample that could not be taken is NaN
SECONDS = "seconds"
ENERGY = "energy_joules"
POWER = "power_watts"
UTILIZATION = "utilization"
BUSY = "cpu_busy_seconds"
TOTAL = "cpu_total_seconds"
STOLEN = "cpu_stolen_seconds"
CLOCK = "clock_mhz"
TEMPERATURE = "temperature_celsius"
MEMORY = "memory_bytes"
THROTTLE = "throttle_bits"
POWER_LIMIT = "power_limit_watts"

# Bits of nvmlClocksEventReasons*, without bit 0, GPU idle.
THROTTLE_REASONS = {
    0x2: "application clock setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
    0x100: "display clock setting",
}


@dataclass(frozen=True)
class DeviceSeries:
    """The samples of one device, or of its host, during the measured steps.

    The columns, named by the constants above, are equally long. SECONDS is the host's monotonic
    clock; ENERGY, BUSY, STOLEN (included in BUSY) and TOTAL are counters. `errors` has the error
    counters that grew, and by how much.
    """

    device: int
    name: str
    columns: Dict[str, List[float]]
    errors: Dict[str, int] = field(default_factory=dict)

    def list_known(self, column: str) -> List[float]:
        """Return the values of a column that are not NaN; empty if there is no such column."""
        return [value for value in self.columns.get(column, []) if not math.isnan(value)]


@dataclass(frozen=True)
class HostSamples:
    """All series of one sampling process; `problem` says why series are missing.

    `cpu_use` is the CPU use of the host during the measured steps, set if the process samples the
    host.
    """

    host: str
    interval_seconds: float = 0.0
    cpu_seconds: float = 0.0
    series: Tuple[DeviceSeries, ...] = ()
    problem: str = ""
    cpu_use: Optional[CpuUse] = None


def summarize_samples(samples: Sequence[HostSamples]) -> Tuple[Telemetry, ...]:
    """Summarize each device's or host's series, in the order of ranks; hosts precede devices."""
    return tuple(_summarize(one, series) for one in samples for series in one.series)


def _summarize(samples: HostSamples, series: DeviceSeries) -> Telemetry:
    """Make the Telemetry of one device or host from all of its samples."""
    energy_joules, mean_power_watts = _find_energy(series)
    return Telemetry(
        host=samples.host,
        device=series.device,
        name=series.name,
        samples=len(series.columns[SECONDS]),
        interval_seconds=samples.interval_seconds,
        cpu_seconds=samples.cpu_seconds,
        energy_joules=energy_joules,
        mean_power_watts=mean_power_watts,
        mean_utilization=_find_utilization(series),
        mean_clock_mhz=_find_mean(series.list_known(CLOCK)),
        least_clock_mhz=min(series.list_known(CLOCK), default=0.0),
        peak_temperature_celsius=max(series.list_known(TEMPERATURE), default=0.0),
        peak_memory_bytes=int(max(series.list_known(MEMORY), default=0.0)),
        throttle_reasons=_name_reasons(series.list_known(THROTTLE)),
        stolen_share=_find_stolen_share(series),
        at_start=_find_state(series, 0),
        at_end=_find_state(series, -1),
        errors=series.errors,
    )


def _find_state(series: DeviceSeries, place: int) -> DeviceState:
    """Return the state of a device in its first (`place` 0) or last (`place` -1) sample."""
    clock, limit, bits = (
        (series.list_known(name) or [0.0])[place] for name in (CLOCK, POWER_LIMIT, THROTTLE)
    )
    return DeviceState(clock, limit, list_throttle_reasons(int(bits)))


def _find_energy(series: DeviceSeries) -> Tuple[float, float]:
    """Compute joules and mean watts from the counter, else from power over time; 0 if unknown."""
    counted = _list_pairs(series, ENERGY)
    if len(counted) > 1:
        seconds, joules = (last - first for first, last in zip(counted[0], counted[-1]))
        return joules, joules / seconds
    power = _list_pairs(series, POWER)
    if len(power) < 2:
        return 0.0, _find_mean(series.list_known(POWER))
    # the trapezoidal rule, since the samples at the window's ends are closer than the interval
    joules = sum(
        (later - earlier) * (before + after) / 2
        for (earlier, before), (later, after) in zip(power, power[1:])
    )
    return joules, joules / (power[-1][0] - power[0][0])


def _list_pairs(series: DeviceSeries, column: str) -> List[Tuple[float, float]]:
    """List (seconds, value) of the samples of a column that are not NaN; [] without that column."""
    values = series.columns.get(column, [])
    return [pair for pair in zip(series.columns[SECONDS], values) if pair[1] == pair[1]]


def _find_utilization(series: DeviceSeries) -> float:
    """Compute the mean utilization, 0 ... 1: of a host from CPU counters, of a GPU from samples."""
    busy, total = series.list_known(BUSY), series.list_known(TOTAL)
    if len(total) > 1 and total[-1] > total[0]:
        return (busy[-1] - busy[0]) / (total[-1] - total[0])
    return _find_mean(series.list_known(UTILIZATION))


def _find_stolen_share(series: DeviceSeries) -> float:
    busy, stolen = series.list_known(BUSY), series.list_known(STOLEN)
    if len(stolen) < 2 or busy[-1] <= busy[0]:
        return 0.0
    return (stolen[-1] - stolen[0]) / (busy[-1] - busy[0])


def _find_mean(values: List[float]) -> float:
    return statistics.mean(values) if values else 0.0


def _name_reasons(bits: List[float]) -> Tuple[str, ...]:
    """Return the names of the throttle reasons in any sample; `bits` has NVML's bits of each."""
    seen = 0
    for value in bits:
        seen |= int(value)
    return list_throttle_reasons(seen)


def list_throttle_reasons(bits: int) -> Tuple[str, ...]:
    """List the names of the throttle reasons in NVML's bits, such as "power cap"."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
