"""GPUs by number or UUID -> samples of their power, clock, temperature, memory and use; NVML."""

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.nvml import ask, find_handle, load_nvml
from dlperf_slurm.worker.telemetry.series import (
    CLOCK,
    ENERGY,
    MEMORY,
    POWER,
    TEMPERATURE,
    THROTTLE,
    UTILIZATION,
)

MILLI = 1e-3


class DeviceSource:
    """One GPU."""

    def __init__(self, nvml: Any, handle: Any, device: int) -> None:
        self.device = device
        self.name = str(ask(nvml, "nvmlDeviceGetName", handle) or "")
        self._nvml = nvml
        self._handle = handle

    def read(self) -> Dict[str, float]:
        """One sample; NaN for what NVML does not tell of this GPU, or not now."""
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
        }

    def _ask(self, query: str, *arguments: Any) -> Any:
        return ask(self._nvml, query, self._handle, *arguments)


def _scale(value: Optional[float], factor: float = 1.0) -> float:
    return math.nan if value is None else factor * value


def open_devices(named: Mapping[int, str]) -> Iterator[DeviceSource]:
    """The GPU that each local rank drives; those that NVML does not know are left out."""
    nvml = load_nvml() if named else None
    if nvml is None:
        return
    for local_rank, name in named.items():
        handle = find_handle(nvml, name)
        if handle is not None:
            yield DeviceSource(nvml, handle, local_rank)


def choose_devices(case: Case, placement: Placement, environ: Mapping[str, str]) -> Dict[int, str]:
    """The GPUs that this rank has to watch, as CUDA_VISIBLE_DEVICES names them, by local rank.

    The first rank of a host watches all, unless each rank sees its own only.
    """
    if case.device != "cuda":
        return {}
    visible = _list_visible(case, environ)
    if len(visible) >= case.devices_per_node:
        return dict(enumerate(visible)) if placement.local_rank == 0 else {}
    return {placement.local_rank: visible[0]} if visible else {}


def _list_visible(case: Case, environ: Mapping[str, str]) -> List[str]:
    """At most as many as there are ranks on the host."""
    numbers: Sequence[str] = [str(number) for number in range(case.devices_per_node)]
    told = environ.get("CUDA_VISIBLE_DEVICES")
    names = numbers if told is None else [name.strip() for name in told.split(",")]
    return [name for name in names if name][: case.devices_per_node]
