"""What a host's sampling process saw, as it hands it over: columns of samples by device."""

import math
from dataclasses import dataclass
from typing import Dict, List, Tuple

# what a rank says to the process, a byte each, and what it hears back
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


@dataclass(frozen=True)
class Series:
    """Samples of one device, or of its host, between the window's start and end.

    Columns are equally long, by the names above. SECONDS is the host's monotonic clock; ENERGY,
    BUSY, STOLEN (a part of BUSY) and TOTAL are counters.
    """

    device: int
    name: str
    columns: Dict[str, List[float]]

    def list_known(self, column: str) -> List[float]:
        """The samples of a column that could be taken; none of a column that is not there."""
        return [value for value in self.columns.get(column, []) if not math.isnan(value)]


@dataclass(frozen=True)
class HostSamples:
    """All series of one sampling process; `problem` says why there are none, if there should be."""

    host: str
    interval_seconds: float = 0.0
    cpu_seconds: float = 0.0
    series: Tuple[Series, ...] = ()
    problem: str = ""
