"""A record -> the time that its devices waited for training data, if known."""

from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE
from dlperf_slurm.contract.record import Record
from dlperf_slurm.worker.clock import HostClock


def is_wait_known(record: Record) -> bool:
    """Return whether the time that a rank's host waited for data is idle time of its device.

    It is if the host synchronizes with the device after each batch: steps are timed by the host's
    clock, without gradient accumulation. True as well for data on the device, with a wait of 0.
    """
    is_awaited = record.clock.name == HostClock.name and record.case.axes.gradient_accumulation == 1
    return is_awaited or record.case.axes.data == ON_DEVICE


def compute_rate_without_stalls(record: Record) -> Optional[float]:
    """Return the throughput in samples/s if ranks never waited for data; None if unknown."""
    return record.computed_samples_per_s if _has_wait_time(record) else None


def compute_stalled_share(record: Record) -> Optional[float]:
    """Return the share of the measured time that a rank waited for data; None if unknown.

    The share, 0 to 1, is that of the rank that waited longest.
    """
    if not _has_wait_time(record):
        return None
    return max(rank.data_wait_seconds / rank.window_seconds for rank in record.ranks)


def _has_wait_time(record: Record) -> bool:
    """Return whether the time waiting for data is known; external scripts' logs have none."""
    return record.case.log_format is None and is_wait_known(record)
