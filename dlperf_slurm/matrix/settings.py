"""The protocol of a case (repeats, steps, ...) -> the settings that apply to the case."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST, WORKER, Axes

if TYPE_CHECKING:
    from dlperf_slurm.matrix.tables import Protocol

# setting name -> value
Settings = Mapping[str, Union[int, float]]

# the settings that a manifest has as fields of a case, not in its protocol
OWN_SETTINGS = ("repeats", "blocks")
# the least values of the others, as matrix.tables.Protocol has them; it would import pydantic
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


def _has_steps(axes: Axes, epochs: int) -> bool:
    """Return whether a case measures a number of steps: always, unless it trains to accuracy.

    Training to accuracy, with `epochs` above 0, measures all steps.
    """
    return not epochs


def _is_ours(axes: Axes, epochs: int) -> bool:
    """Return whether our worker runs a case; external scripts have no telemetry or watchdog."""
    return axes.script == WORKER


def _has_free_steps(axes: Axes, epochs: int) -> bool:
    """Return whether a case can measure more steps than planned, to last its least seconds.

    It cannot if it trains to accuracy (`epochs` above 0), in an external script, or with data
    loaders, which are opened for a number of steps.
    """
    return not epochs and axes.script == WORKER and axes.data in (ON_DEVICE, ON_HOST)


def _is_searched(axes: Axes, epochs: int) -> bool:
    """Return whether the job searches for the batch size of the case."""
    return axes.is_largest_batch


# settings that apply only to some cases, with the condition
USES: Mapping[str, Callable[[Axes, int], bool]] = {
    "warmup_steps": _has_steps,
    "measured_steps": _has_steps,
    "min_warmup_seconds": _has_free_steps,
    "min_measured_seconds": _has_free_steps,
    "batch_size_step": _is_searched,
    "memory_limit_mib_per_device": _is_ours,
    "telemetry_interval_seconds": _is_ours,
    "stall_seconds": _is_ours,
}


def is_used(setting: str, axes: Axes, epochs: int) -> bool:
    """Return whether a protocol setting such as "warmup_steps" applies to a case.

    `epochs` is above 0 if the case trains to accuracy.
    """
    return setting not in USES or USES[setting](axes, epochs)


def list_settings(protocol: "Protocol", axes: Axes, epochs: int) -> Settings:
    """Return the protocol's settings that apply to a case and have a value.

    `epochs` is above 0 if the case trains to accuracy.
    """
    return {
        name: value
        for name, value in protocol.model_dump().items()
        if value is not None and is_used(name, axes, epochs)
    }


def find_least_seconds(protocol: "Protocol", axes: Axes, epochs: int) -> Mapping[str, float]:
    """Return how many seconds the warm-up and the measured steps must last at least.

    By field name of Case; 0 where the setting does not apply, as in training to an accuracy.
    """
    names = ("min_warmup_seconds", "min_measured_seconds")
    return {name: getattr(protocol, name) * is_used(name, axes, epochs) for name in names}
