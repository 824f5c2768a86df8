"""Outcomes -> tables of what cases took: memory, power, clocks, and samples per joule."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.record import HOST, Record, Telemetry
from dlperf_slurm.results.cases import find_unit
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import find_median

# as many devices as are named one by one
MAX_NAMED_DEVICES = 3

WITH_VALIDATIONS = (
    "use, power and clocks are of the training with its validations, throughput is without them: "
    "samples per joule are unknown"
)


@dataclass(frozen=True)
class ResourceRow:
    """One case, medians over its repeats; None for what no repeat tells.

    `peak_memory_bytes` is the most that any rank took in any repeat, `power_watts` what all devices
    drew together, or the CPUs of all hosts where these are the devices. `samples_per_joule` is None
    of a training to accuracy, whose power is also that of its validations. `clock_mhz` is the mean
    over devices and window, `least_clock_mhz` the lowest sample of all.
    """

    case_id: str
    peak_memory_bytes: Optional[int]
    utilization: Optional[float]
    power_watts: Optional[float]
    samples_per_joule: Optional[float]
    clock_mhz: Optional[float]
    least_clock_mhz: Optional[float]
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class ResourceTable:
    """The cases of one model of which anything is known; `unit` is that of samples per joule."""

    model: str
    unit: str
    rows: tuple[ResourceRow, ...]


def make_resource_tables(
    cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> tuple[ResourceTable, ...]:
    """One table per model, in the order of the matrix; none for logs that tell nothing of this."""
    models: dict[str, list[CaseOutcomes]] = {}
    for outcomes in cases:
        if any(map(_tells, outcomes.records)):
            models.setdefault(outcomes.case.model, []).append(outcomes)
    return tuple(
        ResourceTable(
            model=model,
            unit=find_unit(model).replace("/s", "/J"),
            rows=tuple(_make_row(outcomes, footnotes) for outcomes in group),
        )
        for model, group in models.items()
    )


def _tells(record: Record) -> bool:
    return bool(record.telemetry) or any(rank.peak_memory_bytes for rank in record.ranks)


def _make_row(outcomes: CaseOutcomes, footnotes: Footnotes) -> ResourceRow:
    records = outcomes.records
    powers = [(record, power) for record in records for power in [find_power_watts(record)]]
    measured = [(record, power) for record, power in powers if power]
    watched = [_list_watched(record) for record in records]
    texts = [*_describe_throttling(watched), *_describe_missing(records)]
    if any(record.epochs and seen for record, seen in zip(records, watched)):
        texts.append(WITH_VALIDATIONS)
    return ResourceRow(
        case_id=outcomes.case.case_id,
        peak_memory_bytes=max(r.peak_memory_bytes for record in records for r in record.ranks)
        or None,
        utilization=_find_middle(_average(w, "mean_utilization") for w in watched),
        power_watts=_find_middle(power for _, power in measured),
        samples_per_joule=_find_middle(
            record.samples_per_s / power for record, power in measured if not record.epochs
        ),
        clock_mhz=_find_middle(_average(w, "mean_clock_mhz") for w in watched),
        least_clock_mhz=min(
            (t.least_clock_mhz for w in watched for t in w if t.least_clock_mhz), default=None
        ),
        footnotes=tuple(footnotes.number(text) for text in texts),
    )


def find_power_watts(record: Record) -> float:
    """What all devices of a case drew together, on average; 0 unless each of them tells."""
    watched = _list_watched(record)
    expected = record.case.nodes if record.case.device == "cpu" else record.case.world_size
    if len(watched) != expected or not all(one.mean_power_watts for one in watched):
        return 0.0
    return sum(one.mean_power_watts for one in watched)


def _list_watched(record: Record) -> list[Telemetry]:
    """Of the devices; of the hosts where the devices are their CPUs."""
    is_cpu = record.case.device == "cpu"
    return [one for one in record.telemetry if (one.device == HOST) == is_cpu]


def _average(watched: Sequence[Telemetry], name: str) -> float:
    values = [value for one in watched for value in [getattr(one, name)] if value]
    return sum(values) / len(values) if values else 0.0


def _find_middle(values: Iterable[float]) -> Optional[float]:
    """The median of those that are known."""
    known = [value for value in values if value]
    return find_median(known) if known else None


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
