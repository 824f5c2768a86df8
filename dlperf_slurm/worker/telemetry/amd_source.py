"""An AMD GPU -> samples of what it does, in the columns of NVML's."""

import math
from typing import Any, Dict

from dlperf_slurm.worker.amd_smi import ask, name_device, pick
from dlperf_slurm.worker.telemetry.series import (
    CLOCK,
    ENERGY,
    MEMORY,
    POWER,
    TEMPERATURE,
    THROTTLE,
    UTILIZATION,
)

MICRO = 1e-6
MIB = 2**20
# what has grown since the last reading has held the clock down meanwhile; the bits are NVML's
RESIDENCIES = {
    "ppt_residency_acc": 0x4,
    "prochot_residency_acc": 0x8,
    "socket_thm_residency_acc": 0x40,
    "vr_thm_residency_acc": 0x40,
    "hbm_thm_residency_acc": 0x40,
}


class AmdSource:
    """One GPU, or GCD. Of a card with two GCDs the first tells the power of both."""

    def __init__(self, amd: Any, handle: Any, device: int) -> None:
        self.device = device
        self.name = name_device(amd, handle)
        self._amd = amd
        self._handle = handle
        self._residencies: Dict[str, int] = {}

    def read(self) -> Dict[str, float]:
        """One sample; NaN for what AMD SMI does not tell of this GPU, or not now."""
        power = self._ask("get_power_info")
        clock = self._ask("get_clock_info", self._amd.AmdSmiClkType.GFX)
        temperature = self._ask(
            "get_temp_metric",
            self._amd.AmdSmiTemperatureType.HOTSPOT,
            self._amd.AmdSmiTemperatureMetric.CURRENT,
        )
        used = pick(self._ask("get_gpu_activity"), "gfx_activity")
        return {
            ENERGY: self._read_joules(),
            POWER: _scale(pick(power, "current_socket_power", "average_socket_power")),
            UTILIZATION: _scale(used, 0.01),
            CLOCK: _scale(pick(clock, "clk", "cur_clk")),
            TEMPERATURE: _scale(temperature),
            MEMORY: _scale(pick(self._ask("get_gpu_vram_usage"), "vram_used"), MIB),
            THROTTLE: self._read_throttle_bits(),
        }

    def _read_joules(self) -> float:
        """The GPU's counter, which tells its own unit, of microjoules."""
        counter = self._ask("get_energy_count")
        count = pick(counter, "energy_accumulator", "power")
        unit = pick(counter, "counter_resolution")
        # the second GCD of a card counts nothing
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
        told = {name: pick(metrics, name) for name in RESIDENCIES}
        return {name: value for name, value in told.items() if value is not None}

    def _ask(self, query: str, *arguments: Any) -> Any:
        return ask(self._amd, query, self._handle, *arguments)


def _scale(value: Any, factor: float = 1.0) -> float:
    return math.nan if value is None else factor * float(value)
