"""A record -> how long its devices waited for data, where that is known."""

from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE
from dlperf_slurm.contract.record import Record
from dlperf_slurm.worker.clock import HostClock


def is_wait_known(record: Record) -> bool:
    """Whether a device has nothing to do while its host waits for data.

    Steps by the host's clock end when the device is done, those by other clocks need not; nor does
    the device's work on a batch that is not the last of its step.
    """
    is_awaited = record.clock.name == HostClock.name and record.case.axes.gradient_accumulation == 1
    return is_awaited or record.case.axes.data == ON_DEVICE


def find_computed_rate(record: Record) -> Optional[float]:
    """The throughput without the time that ranks waited for data; None where that is not known."""
    return record.computed_samples_per_s if _tells_waiting(record) else None


def find_waiting_share(record: Record) -> Optional[float]:
    """How much of its window the rank that waited longest for data stood still, where known."""
    if not _tells_waiting(record):
        return None
    return max(rank.data_wait_seconds / rank.window_seconds for rank in record.ranks)


def _tells_waiting(record: Record) -> bool:
    """Logs of other people's scripts say nothing of waiting."""
    return record.case.log_format is None and is_wait_known(record)
