"""The GPUs that a rank samples -> power, clock, temperature, memory, utilization and errors.

By NVML or AMD SMI.
"""

import math
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Mapping, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import amd_smi
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import ask, find_handle, list_seen, list_visible, load_nvml
from dlperf_slurm.worker.telemetry.series import (
    CLOCK,
    ENERGY,
    MEMORY,
    POWER,
    POWER_LIMIT,
    TEMPERATURE,
    THROTTLE,
    UTILIZATION,
)

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
        """Take one sample, by column such as POWER (watts); NaN for what NVML does not report."""
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
        """Read NVML's error counters by name ("PCIe replays"), Xid errors since the opening."""
        links = range(self._nvml.NVML_NVLINK_MAX_LINKS)
        # error counters of the NVLink data link layer: 0 counts replays, 1 recoveries
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
        """Take one sample, by column such as POWER (watts); NaN for what is not reported."""
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
        """Read the error counters that AMD SMI reports, by name such as "PCIe replays"."""
        ecc = self._ask("get_gpu_total_ecc_count")
        pcie = (self._ask("get_pcie_info") or {}).get("pcie_metric")
        told = {
            "corrected ECC errors": amd_smi.pick(ecc, "correctable_count"),
            "uncorrected ECC errors": amd_smi.pick(ecc, "uncorrectable_count"),
            "PCIe replays": amd_smi.pick(pcie, "pcie_replay_count"),
        }
        return _drop_unknown(told)

    def _read_joules(self) -> float:
        """Read the energy counter, in joules; NaN if AMD SMI does not report it."""
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
    find: Callable[[Any, str], Any] = find_handle
    make: Callable[[Any, Any, int], Union[NvidiaSource, AmdSource]] = NvidiaSource
    driver = load_nvml()
    if driver is None:
        driver, find, make = amd_smi.load_amd_smi(), amd_smi.find_handle, AmdSource
    for local_rank, name in named.items():
        handle = None if driver is None else find(driver, name)
        if handle is not None:
            yield make(driver, handle, local_rank)


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
    """List visible GPUs, as indices or UUIDs, at most as many as the case has ranks per host."""
    nvml = load_nvml()
    if nvml is not None:
        return list_seen(nvml, environ)[: case.devices_per_node]
    numbers = [str(number) for number in range(case.devices_per_node)]
    # Slurm may set AMD's variables also on nodes with NVIDIA GPUs
    list_names = amd_smi.list_visible if amd_smi.has_own_variables(environ) else list_visible
    return list_names(environ, numbers)[: case.devices_per_node]
