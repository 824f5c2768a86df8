"""GPUs and the host -> samples, from one source each.

Power, clock, temperature, memory and utilization of GPUs come from NVML or AMD SMI; CPU and memory
counters of the host from psutil, CPU energy from powercap.
"""

import math
import os
import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Union, cast

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.record import HOST, NODE
from dlperf_slurm.worker import amd_smi
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.host import ROOT, list_folder, read_cpu_name, read_text
from dlperf_slurm.worker.nvml import (
    ask,
    find_handle,
    list_seen,
    list_visible,
    load_nvml,
)
from dlperf_slurm.worker.telemetry.series import (
    BUSY,
    CLOCK,
    ENERGY,
    MEMORY,
    POWER,
    POWER_LIMIT,
    STOLEN,
    TEMPERATURE,
    THROTTLE,
    TOTAL,
    UTILIZATION,
)

# the site's command that prints the energy or power of a node
ENERGY_VARIABLE = "DLPERF_SLURM_ENERGY_COMMAND"
COMMAND_SECONDS = 5.0
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(J|W|joules?|watts?)\b", re.I)
MILLI = 1e-3
MICRO = 1e-6
MIB = 2**20
# AMD's residency counters, which grow while the clock is throttled -> the bit of NVML's reasons
RESIDENCIES = {
    "ppt_residency_acc": 0x4,
    "prochot_residency_acc": 0x8,
    "socket_thm_residency_acc": 0x40,
    "vr_thm_residency_acc": 0x40,
    "hbm_thm_residency_acc": 0x40,
}


# nvmlEventTypeXidCriticalError
XID_EVENT = 8
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


class NvidiaSource:
    """An NVIDIA GPU."""

    def __init__(self, nvml: Any, handle: Any, device: int) -> None:
        self.device = device
        self.name = str(ask(nvml, "nvmlDeviceGetName", handle) or "")
        self._nvml = nvml
        self._handle = handle
        self._xids: "Counter[str]" = Counter()
        self._events = ask(nvml, "nvmlEventSetCreate")
        if self._events is not None:
            ask(nvml, "nvmlDeviceRegisterEvents", handle, XID_EVENT, self._events)

    def read(self) -> Dict[str, float]:
        """Take one sample; NaN for what NVML does not report."""
        use = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        clock = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        temperature = self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        return {
            ENERGY: _scale(self._ask("nvmlDeviceGetTotalEnergyConsumption"), MILLI),
            POWER: _scale(self._ask("nvmlDeviceGetPowerUsage"), MILLI),
            UTILIZATION: _scale(None if use is None else use.gpu, 0.01),
            CLOCK: _scale(clock),
            TEMPERATURE: _scale(temperature),
            MEMORY: _scale(None if memory is None else memory.used),
            THROTTLE: _scale(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")),
            POWER_LIMIT: _scale(self._ask("nvmlDeviceGetEnforcedPowerLimit"), MILLI),
        }

    def read_errors(self) -> Dict[str, int]:
        """Read the error counters that NVML reports, and the Xid errors since this was opened."""
        links = range(self._nvml.NVML_NVLINK_MAX_LINKS)
        # of the link layer: 0 are its replays, 1 its recoveries
        of_links = [
            [self._ask("nvmlDeviceGetNvLinkErrorCounter", link, kind) for link in links]
            for kind in (0, 1)
        ]
        told = {
            # error type, and counter since the driver was loaded
            "corrected ECC errors": self._ask("nvmlDeviceGetTotalEccErrors", 0, 0),
            "uncorrected ECC errors": self._ask("nvmlDeviceGetTotalEccErrors", 1, 0),
            "PCIe replays": self._ask("nvmlDeviceGetPcieReplayCounter"),
            "NVLink replays": sum(filter(None, of_links[0])),
            "NVLink recoveries": sum(filter(None, of_links[1])),
        }
        while self._events is not None:
            event = ask(self._nvml, "nvmlEventSetWait_v2", self._events, 0)
            if event is None:
                break
            self._xids[f"Xid {event.eventData}"] += 1
        return {**_drop_unknown(told), **self._xids}

    def _ask(self, query: str, *arguments: Any) -> Any:
        return ask(self._nvml, query, self._handle, *arguments)


class AmdSource:
    """An AMD GPU or GCD. On a card with two GCDs, the first one reports the power of both."""

    def __init__(self, amd: Any, handle: Any, device: int) -> None:
        self.device = device
        self.name = amd_smi.get_market_name(amd, handle)
        self._amd = amd
        self._handle = handle
        self._residencies: Dict[str, int] = {}

    def read(self) -> Dict[str, float]:
        """Take one sample; NaN for what AMD SMI does not report."""
        power = self._ask("get_power_info")
        clock = self._ask("get_clock_info", self._amd.AmdSmiClkType.GFX)
        temperature = self._ask(
            "get_temp_metric",
            self._amd.AmdSmiTemperatureType.HOTSPOT,
            self._amd.AmdSmiTemperatureMetric.CURRENT,
        )
        used = amd_smi.pick(self._ask("get_gpu_activity"), "gfx_activity")
        return {
            ENERGY: self._read_joules(),
            POWER: _scale(amd_smi.pick(power, "current_socket_power", "average_socket_power")),
            UTILIZATION: _scale(used, 0.01),
            CLOCK: _scale(amd_smi.pick(clock, "clk", "cur_clk")),
            TEMPERATURE: _scale(temperature),
            MEMORY: _scale(amd_smi.pick(self._ask("get_gpu_vram_usage"), "vram_used"), MIB),
            THROTTLE: self._read_throttle_bits(),
            POWER_LIMIT: _scale(amd_smi.pick(self._ask("get_power_cap_info"), "power_cap"), MICRO),
        }

    def read_errors(self) -> Dict[str, int]:
        """Read the error counters that AMD SMI reports."""
        ecc = self._ask("get_gpu_total_ecc_count")
        pcie = (self._ask("get_pcie_info") or {}).get("pcie_metric")
        told = {
            "corrected ECC errors": amd_smi.pick(ecc, "correctable_count"),
            "uncorrected ECC errors": amd_smi.pick(ecc, "uncorrectable_count"),
            "PCIe replays": amd_smi.pick(pcie, "pcie_replay_count"),
        }
        return _drop_unknown(told)

    def _read_joules(self) -> float:
        """Read the energy counter, whose resolution AMD SMI reports in microjoules."""
        counter = self._ask("get_energy_count")
        count = amd_smi.pick(counter, "energy_accumulator", "power")
        unit = amd_smi.pick(counter, "counter_resolution")
        # the counter of a card's second GCD stays 0
        return MICRO * count * unit if count and unit else math.nan

    def _read_throttle_bits(self) -> float:
        before, self._residencies = self._residencies, self._read_residencies()
        if not self._residencies:
            return math.nan
        bits = 0
        for name, value in self._residencies.items():
            if value > before.get(name, value):
                bits |= RESIDENCIES[name]
        return float(bits)

    def _read_residencies(self) -> Dict[str, int]:
        metrics = self._ask("get_gpu_metrics_info")
        told = {name: amd_smi.pick(metrics, name) for name in RESIDENCIES}
        return {name: value for name, value in told.items() if value is not None}

    def _ask(self, query: str, *arguments: Any) -> Any:
        return amd_smi.ask(self._amd, query, self._handle, *arguments)


def _drop_unknown(told: Mapping[str, Any]) -> Dict[str, int]:
    return {name: int(count) for name, count in told.items() if count is not None}


def _scale(value: Any, factor: float = 1.0) -> float:
    return math.nan if value is None else factor * float(value)


def open_devices(named: Mapping[int, str]) -> Iterator[Union[NvidiaSource, AmdSource]]:
    """Open the GPU of each local rank; GPUs unknown to NVML or AMD SMI are left out.

    `named` maps a local rank to its GPU's index or UUID.
    """
    if not named:
        return
    nvml = load_nvml()
    amd = amd_smi.load_amd_smi() if nvml is None else None
    for local_rank, name in named.items():
        if nvml is not None:
            handle = find_handle(nvml, name)
            if handle is not None:
                yield NvidiaSource(nvml, handle, local_rank)
        elif amd is not None:
            handle = amd_smi.find_handle(amd, name)
            if handle is not None:
                yield AmdSource(amd, handle, local_rank)


def choose_devices(case: Case, rank_info: RankInfo, environ: Mapping[str, str]) -> Dict[int, str]:
    """Choose the GPUs that this rank samples: local rank -> index or UUID.

    The first rank of a host samples all GPUs; if not all are visible to it, each rank samples its
    own.
    """
    if case.device != "cuda":
        return {}
    visible = list_visible_devices(case, environ)
    if len(visible) >= case.devices_per_node:
        return dict(enumerate(visible)) if rank_info.local_rank == 0 else {}
    own = amd_smi.choose_own(visible, rank_info.local_rank)
    return {} if own is None else {rank_info.local_rank: own}


def list_visible_devices(case: Case, environ: Mapping[str, str]) -> List[str]:
    """List the devices visible to ranks, at most as many as there are ranks on the host."""
    nvml = load_nvml()
    if nvml is not None:
        return list_seen(nvml, environ)[: case.devices_per_node]
    numbers = [str(number) for number in range(case.devices_per_node)]
    # Slurm may set AMD's variables also on nodes with NVIDIA GPUs
    list_names = amd_smi.list_visible if amd_smi.has_own_variables(environ) else list_visible
    return list_names(environ, numbers)[: case.devices_per_node]


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
        """Take one sample; NaN for energy that is not readable."""
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
        """Read the error counters of the InfiniBand and RoCE ports."""
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
        """Take one sample; NaN if the counter cannot be read."""
        # "214527 J 1571234567890 us"
        joules = read_text(self._counter).partition(" ")[0]
        return {ENERGY: float(joules) if joules else math.nan}

    def read_errors(self) -> Dict[str, int]:
        """Return none, as there are no error counters."""
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
        """Take what the command has printed since the last sample; NaN for none."""
        now, text, process = time.monotonic(), "", self._process
        is_due = now > self._started + COMMAND_SECONDS
        if process is not None and (is_due or process.poll() is not None):
            # what was printed longer ago, as before the window, is of another time
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
        """Return none, as there are no error counters."""
        return {}


def _read_printed(process: "subprocess.Popen[bytes]") -> str:
    """Read what a process has printed, without waiting for its children."""
    output = cast(IO[bytes], process.stdout)
    os.set_blocking(output.fileno(), False)
    return (output.read() or b"").decode("utf-8", "replace")


def open_host(
    environ: Mapping[str, str], root: Path = ROOT
) -> Iterator[Union[HostSource, CraySource, CommandSource]]:
    """Yield the sources of a host: its CPUs and memory, if psutil is installed, and the node."""
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
