"""What else a repeat's hosts did, before it and in its window, and how long it took to come there.

The file lies beside the record, of which it says the case, the repeat and the attempt.
"""

import dataclasses
import json
from pathlib import Path
from typing import Tuple

from dlperf_slurm.contract.phases import Phase
from dlperf_slurm.files.writing import write_file

SURROUNDINGS_FILE = "surroundings.json"

# of the time of all CPUs of a host: from here on it is worth naming what others took
MIN_OTHER_SHARE = 0.05
MIN_STOLEN_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """Processes of one name that are not the run's; `cpu_share` is of the time of all CPUs."""

    name: str
    cpu_share: float


@dataclasses.dataclass(frozen=True)
class CpuUse:
    """Where the time of a host's CPUs went over `seconds`, as shares of all of it.

    `own_share` is of the run's processes, `other_share` of those that are not, `stolen_share` what
    a hypervisor gave to others; the rest is the kernel's own, or idle. `neighbours` are those of
    the others that could be seen, the busiest first.
    """

    seconds: float
    cpus: int
    own_share: float
    other_share: float
    stolen_share: float
    neighbours: Tuple[Neighbour, ...] = ()

    @property
    def has_neighbours(self) -> bool:
        """Whether processes that are not the run's took a share worth naming."""
        return self.other_share >= MIN_OTHER_SHARE

    @property
    def is_quiet(self) -> bool:
        """Whether nobody else took a share of the CPUs worth naming."""
        return not self.has_neighbours and self.stolen_share < MIN_STOLEN_SHARE


@dataclasses.dataclass(frozen=True)
class GpuBefore:
    """A GPU before any rank had used it: by whom it was, and what held its clocks down."""

    device: int
    other_processes: Tuple[str, ...] = ()
    throttle_reasons: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class HostSurroundings:
    """What else a host did; `before` and `window` are empty where that cannot be told.

    `load_average` is the kernel's over one minute, before the repeat.
    """

    host: str
    load_average: float
    before: Tuple[CpuUse, ...] = ()
    gpus: Tuple[GpuBefore, ...] = ()
    window: Tuple[CpuUse, ...] = ()


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The surroundings of one attempt at a repeat, on all of its hosts.

    `phases` are those of its rank 0.
    """

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    hosts: Tuple[HostSurroundings, ...]
    phases: Tuple[Phase, ...] = ()


def write_surroundings(folder: Path, surroundings: Surroundings) -> None:
    """Write them as `write_file` does, and raise as it does."""
    text = json.dumps(dataclasses.asdict(surroundings), indent=1, sort_keys=True) + "\n"
    write_file(folder / SURROUNDINGS_FILE, text.encode())
