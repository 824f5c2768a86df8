"""A protocol -> those of its settings that a case has a use for."""

from collections.abc import Callable, Mapping
from typing import Union

from dlperf_slurm.contract.axes import WORKER, Axes
from dlperf_slurm.matrix.tables import Protocol

# by their names in a matrix
Settings = Mapping[str, Union[int, float]]


def _has_steps(axes: Axes, epochs: int) -> bool:
    """A training to accuracy is measured over all of its steps."""
    return not epochs


def _is_ours(axes: Axes, epochs: int) -> bool:
    """Our worker runs the case: nothing watches what another script does."""
    return axes.script == WORKER


def _is_searched(axes: Axes, epochs: int) -> bool:
    return axes.is_largest_batch


# settings that some cases have no use for, and which cases have one
USES: Mapping[str, Callable[[Axes, int], bool]] = {
    "warmup_steps": _has_steps,
    "measured_steps": _has_steps,
    "batch_size_step": _is_searched,
    "memory_limit_mib_per_device": _is_ours,
    "telemetry_interval_seconds": _is_ours,
    "stall_seconds": _is_ours,
}


def is_used(setting: str, axes: Axes, epochs: int) -> bool:
    """Whether a setting of the protocol means something for a case."""
    return setting not in USES or USES[setting](axes, epochs)


def list_settings(protocol: Protocol, axes: Axes, epochs: int) -> Settings:
    """The settings of a case, without those that it has no use for, or that are left out."""
    return {
        name: value
        for name, value in protocol.model_dump().items()
        if value is not None and is_used(name, axes, epochs)
    }
