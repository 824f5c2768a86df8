"""Records of a case -> what it took: memory, power, clocks, and samples per joule."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.record import HOST, Record, Telemetry
from dlperf_slurm.stats.median import find_median

# as many devices as are named one by one
MAX_NAMED_DEVICES = 3

WITH_VALIDATIONS = (
    "use, power and clocks are of the training with its validations, throughput is without them: "
    "samples per joule are unknown"
)


@dataclass(frozen=True)
class Usage:
    """What a case took, medians over its repeats; None for what no repeat tells.

    `peak_memory_bytes` is the most that any rank took in any repeat, `power_watts` what all devices
    drew together, or the CPUs of all hosts where these are the devices. `samples_per_joule` is None
    of a training to accuracy, whose power is also that of its validations. `clock_mhz` is the mean
    over devices and window, `least_clock_mhz` the lowest sample of all.
    """

    peak_memory_bytes: Optional[int] = None
    utilization: Optional[float] = None
    power_watts: Optional[float] = None
    samples_per_joule: Optional[float] = None
    clock_mhz: Optional[float] = None
    least_clock_mhz: Optional[float] = None


def find_usage(records: Sequence[Record]) -> Usage:
    """All of it is None for records that tell nothing of it, as those of logs."""
    powers = [(record, power) for record in records for power in [find_power_watts(record)]]
    measured = [(record, power) for record, power in powers if power]
    watched = [_list_watched(record) for record in records]
    return Usage(
        peak_memory_bytes=find_peak_memory(records),
        utilization=_find_middle(_average(w, "mean_utilization") for w in watched),
        power_watts=_find_middle(power for _, power in measured),
        samples_per_joule=_find_middle(
            record.samples_per_s / power for record, power in measured if not record.epochs
        ),
        clock_mhz=_find_middle(_average(w, "mean_clock_mhz") for w in watched),
        least_clock_mhz=min(
            (t.least_clock_mhz for w in watched for t in w if t.least_clock_mhz), default=None
        ),
    )


def is_usage_known(records: Sequence[Record]) -> bool:
    """Whether any record tells anything of what its case took."""
    return any(
        record.telemetry or any(rank.peak_memory_bytes for rank in record.ranks)
        for record in records
    )


def list_usage_notes(records: Sequence[Record]) -> list[str]:
    """What held clocks down, why repeats have no samples, and of what else these are."""
    watched = [_list_watched(record) for record in records]
    is_mixed = any(record.epochs and seen for record, seen in zip(records, watched))
    return [
        *_describe_throttling(watched),
        *_describe_missing(records),
        *([WITH_VALIDATIONS] if is_mixed else []),
    ]


def find_peak_memory(records: Sequence[Record]) -> Optional[int]:
    """The most bytes that any rank took; None where none tells."""
    taken = (rank.peak_memory_bytes for record in records for rank in record.ranks)
    return max(taken, default=0) or None


def find_power_watts(record: Record) -> float:
    """What all devices of a case drew together, on average; 0 unless each of them tells."""
    watched = _list_watched(record)
    expected = record.case.nodes if record.case.device == "cpu" else record.case.world_size
    if len(watched) != expected or not all(one.mean_power_watts for one in watched):
        return 0.0
    return sum(one.mean_power_watts for one in watched)


def _list_watched(record: Record) -> list[Telemetry]:
    """The telemetry of the devices; that of the hosts where the devices are their CPUs."""
    is_cpu = record.case.device == "cpu"
    return [one for one in record.telemetry if (one.device == HOST) == is_cpu]


def _average(watched: Sequence[Telemetry], name: str) -> float:
    values = [value for one in watched for value in [getattr(one, name)] if value]
    return sum(values) / len(values) if values else 0.0


def _find_middle(values: Iterable[float]) -> Optional[float]:
    """The median of those that are known."""
    return find_median(value or None for value in values)


def _describe_throttling(watched: Sequence[Sequence[Telemetry]]) -> Iterator[str]:
    """What held clocks down in any repeat, and of which devices."""
    devices = list(dict.fromkeys((one.host, one.device) for w in watched for one in w))
    held: dict[str, list[tuple[str, int]]] = {}
    for one in (one for w in watched for one in w):
        for reason in one.throttle_reasons:
            held.setdefault(reason, []).append((one.host, one.device))
    texts = [
        f"{reason} ({_name_devices(list(dict.fromkeys(found)), len(devices))})"
        for reason, found in held.items()
    ]
    if texts:
        yield f"clocks were held down: {', '.join(texts)}"


def _name_devices(found: Sequence[tuple[str, int]], total: int) -> str:
    if len(found) > MAX_NAMED_DEVICES:
        return f"{len(found)} of {total} devices"
    return ", ".join(f"{host} device {device}" for host, device in found)


def _describe_missing(records: Sequence[Record]) -> Iterator[str]:
    """Why repeats have no telemetry, where that is known."""
    problems: dict[str, list[str]] = {}
    for record in records:
        if "telemetry" in record.platform:
            repeats = problems.setdefault(record.platform["telemetry"], [])
            repeats.append(str(record.case.repeat))
    for problem, repeats in problems.items():
        yield f"not sampled in repeat {', '.join(repeats)}: {problem}"
