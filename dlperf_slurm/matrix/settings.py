"""The protocol of a case (repeats, steps, ...) -> the settings that apply to the case."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Union

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST, WORKER, Axes

if TYPE_CHECKING:
    from dlperf_slurm.matrix.tables import Protocol

# setting name -> value
Settings = Mapping[str, Union[int, float]]

# the settings that a manifest has as fields of a case, not in its protocol
OWN_SETTINGS = ("repeats", "blocks")
# minimum of each other setting, as in matrix.tables.Protocol, which would import pydantic
LEAST_VALUES: Mapping[str, int] = {
    "warmup_steps": 0,
    "measured_steps": 1,
    "min_warmup_seconds": 0,
    "min_measured_seconds": 0,
    "shuffle_seed": 0,
    "seed": 0,
    "batch_size_step": 1,
    "memory_limit_mib_per_device": 1,
    "telemetry_interval_seconds": 0,
    "stall_seconds": 0,
}
# all settings, in the order of matrix.tables.Protocol
SETTINGS = (*OWN_SETTINGS, *LEAST_VALUES)


_STEPS = ("warmup_steps", "measured_steps")
_LEAST_SECONDS = ("min_warmup_seconds", "min_measured_seconds")
# external scripts have no telemetry or watchdog
_OF_WORKER = ("memory_limit_mib_per_device", "telemetry_interval_seconds", "stall_seconds")
# settings that apply only to some cases
CONDITIONAL = (*_STEPS, *_LEAST_SECONDS, "batch_size_step", *_OF_WORKER)


def is_used(setting: str, axes: Axes, epochs: int) -> bool:
    """Return whether a protocol setting such as "warmup_steps" applies to a case.

    `epochs` is above 0 if the case trains to accuracy, which measures all steps.
    """
    if setting in _STEPS:
        return not epochs
    if setting in _LEAST_SECONDS:
        # data loaders are opened for a number of steps
        has_free_steps = axes.script == WORKER and axes.data in (ON_DEVICE, ON_HOST)
        return not epochs and has_free_steps
    if setting == "batch_size_step":
        return axes.is_largest_batch
    return setting not in _OF_WORKER or axes.script == WORKER


def list_settings(protocol: "Protocol", axes: Axes, epochs: int) -> Settings:
    """Return the protocol's settings that apply to a case and have a value, by name."""
    return {
        name: value
        for name, value in protocol.model_dump().items()
        if value is not None and is_used(name, axes, epochs)
    }


def find_least_seconds(protocol: "Protocol", axes: Axes, epochs: int) -> Mapping[str, float]:
    """Return how many seconds the warm-up and the measured steps must last at least.

    Keys are field names of Case; 0 where a setting does not apply, as in training to an accuracy.
    """
    return {name: getattr(protocol, name) * is_used(name, axes, epochs) for name in _LEAST_SECONDS}
