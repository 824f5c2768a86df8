"""The host and its node -> samples: CPUs and memory by psutil, energy of CPUs by powercap.

The energy of the whole node comes from Cray's counters or a command of the site.
"""

import math
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Union, cast

from dlperf_slurm.contract.case import ENERGY_VARIABLE
from dlperf_slurm.contract.record import HOST, NODE
from dlperf_slurm.worker.host import ROOT, list_folder, read_cpu_name, read_text
from dlperf_slurm.worker.telemetry.series import BUSY, ENERGY, MEMORY, POWER, STOLEN, TOTAL

COMMAND_SECONDS = 5.0
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(J|W|joules?|watts?)\b", re.I)
MICRO = 1e-6
# counters of the InfiniBand and RoCE ports (Documentation/ABI/stable/sysfs-class-infiniband)
_PORT_ERRORS = (
    "counters/link_downed",
    "counters/link_error_recovery",
    "counters/port_rcv_errors",
    "counters/symbol_error",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
)


class HostSource:
    """The CPUs and memory of the host, including the use by all processes.

    CPU clocks are not sampled: reading a clock interrupts its CPU, which may disturb a rank.
    """

    device = HOST

    def __init__(self, psutil: Any, root: Path = ROOT) -> None:
        self.name = read_cpu_name()
        self._psutil = psutil
        self._energy = EnergyCounter(root)
        self._ports = list_folder(root / "sys/class/infiniband", "*/ports/*")

    def read(self) -> Dict[str, float]:
        """Take one sample, by column such as MEMORY (bytes); NaN for unreadable energy."""
        times = self._psutil.cpu_times()
        # guest time is already included in user time (proc_stat(5))
        total = times.user + times.nice + times.system + times.idle + times.iowait
        total += times.irq + times.softirq + times.steal
        return {
            BUSY: total - times.idle - times.iowait,
            TOTAL: total,
            STOLEN: times.steal,
            MEMORY: float(self._psutil.virtual_memory().used),
            ENERGY: self._energy.read_joules(),
        }

    def read_errors(self) -> Dict[str, int]:
        """Read the error counters of the InfiniBand and RoCE ports, by name "PORT COUNTER"."""
        counters = {
            f"{port.parents[1].name}/{port.name} {path.partition('/')[2]}": _read_number(
                port / path
            )
            for port in self._ports
            for path in _PORT_ERRORS
        }
        return {name: int(count) for name, count in counters.items() if count == count}


class CraySource:
    """The energy of the whole node by Cray's power management counters."""

    device = NODE
    name = "node"

    def __init__(self, counter: Path) -> None:
        self._counter = counter

    def read(self) -> Dict[str, float]:
        """Take one sample of the node: {ENERGY: joules}; NaN if the counter cannot be read."""
        # "214527 J 1571234567890 us"
        joules = read_text(self._counter).partition(" ")[0]
        return {ENERGY: float(joules) if joules else math.nan}

    def read_errors(self) -> Dict[str, int]:
        """Return {}: there are no error counters."""
        return {}


class CommandSource:
    """The energy or power of the whole node, as the site's command prints it: "5120 J", "350 W".

    A sample does not wait for the command, which runs every COMMAND_SECONDS and may take as long.
    """

    device = NODE
    name = "node"

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._started = -math.inf

    def read(self) -> Dict[str, float]:
        """Return {ENERGY: joules, POWER: watts} as the command printed since the last sample.

        NaN for a value that it did not print. Starts the command again when it is due.
        """
        now, text, process = time.monotonic(), "", self._process
        is_due = now > self._started + COMMAND_SECONDS
        if process is not None and (is_due or process.poll() is not None):
            # discard output of a command that started too long ago, maybe before the window
            text, self._process = "" if is_due else _read_printed(process), None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if is_due:
            self._started = now
            self._process = subprocess.Popen(
                ["bash", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        found = _AMOUNT.search(text)
        number, unit = found.groups() if found else ("nan", "")
        return {
            ENERGY: float(number) if unit[:1] in ("J", "j") else math.nan,
            POWER: float(number) if unit[:1] in ("W", "w") else math.nan,
        }

    def read_errors(self) -> Dict[str, int]:
        """Return {}: there are no error counters."""
        return {}


def _read_printed(process: "subprocess.Popen[bytes]") -> str:
    """Return what an ended process has printed, without waiting for its children."""
    output = cast(IO[bytes], process.stdout)
    os.set_blocking(output.fileno(), False)
    return (output.read() or b"").decode("utf-8", "replace")


def open_host(
    environ: Mapping[str, str], root: Path = ROOT
) -> Iterator[Union[HostSource, CraySource, CommandSource]]:
    """Yield sources: CPUs and memory if psutil is installed, energy by ENERGY_VARIABLE or Cray."""
    try:
        import psutil
    except ImportError:
        pass
    else:
        yield HostSource(psutil, root)
    counter = root / "sys/cray/pm_counters/energy"
    if environ.get(ENERGY_VARIABLE):
        yield CommandSource(environ[ENERGY_VARIABLE])
    elif counter.exists():
        yield CraySource(counter)


class EnergyCounter:
    """The energy of all CPU packages and their memory, from the kernel's powercap (Intel and AMD).

    Counters wrap at their range; since Linux 5.10 only root may be able to read them. The zones of
    cores are parts of packages, and "psys" includes other parts of the machine.
    """

    def __init__(self, root: Path = ROOT) -> None:
        zones = list_folder(root / "sys/class/powercap", "intel-rapl:*")
        names = {zone: read_text(zone / "name") for zone in zones}
        self._zones = [z for z in zones if names[z].startswith("package") or names[z] == "dram"]
        self._ranges = [_read_number(zone / "max_energy_range_uj") for zone in self._zones]
        self._latest = self._read()
        self._joules = 0.0 if self._zones else math.nan

    def _read(self) -> List[float]:
        return [_read_number(zone / "energy_uj") for zone in self._zones]

    def read_joules(self) -> float:
        """Return the joules since creation; NaN if not readable. Call at least once per wrap."""
        before, self._latest = self._latest, self._read()
        for first, last, wrap in zip(before, self._latest, self._ranges):
            self._joules += MICRO * (last - first + (wrap if last < first else 0.0))
        return self._joules


def _read_number(path: Path) -> float:
    try:
        return float(read_text(path))
    except ValueError:
        return math.nan
