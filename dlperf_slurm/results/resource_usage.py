"""Records of a case -> its resource usage: memory, power, clocks, and notes on them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional

from dlperf_slurm.contract.axes import WORKER
from dlperf_slurm.contract.record import HOST, NODE, DeviceState, Record, Telemetry
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.results.footnotes import FootnoteTemplate, Note

# NVML's power and utilization are averages over up to this time
AVERAGED_SECONDS = 1.0
# a change of the clock in the window from which it is reported
MIN_CLOCK_CHANGE = 0.05
# more devices than this are counted instead of listed
MAX_NAMED_DEVICES = 3
MAX_NAMED_ERRORS = 8

WITH_VALIDATIONS = (
    "samples per joule are unknown: power was measured during training and validation, but "
    "throughput during training only"
)

UNKNOWN_PEAK_MEMORY = (
    "peak memory of some ranks is unknown: the framework's allocator does not count memory, or, "
    "for mxnet and oneflow, NVML does not report the memory of processes (docs/gpu.md)"
)


def is_usage_known(record: Record) -> bool:
    """Return whether a record has telemetry (power, utilization) or peak memory."""
    return bool(record.telemetry or compute_peak_memory(record))


def list_usage_notes(records: Sequence[Record]) -> list[Note]:
    """Return notes on throttling, changed clocks, errors, and missing or mixed telemetry."""
    watched = [one for record in records for one in list_telemetry(record)]
    is_mixed = any(record.epochs and list_telemetry(record) for record in records)
    return [
        *_describe_throttling(watched),
        *_describe_state_changes(watched),
        *_describe_errors(records),
        *_describe_averages(records),
        *_describe_missing(records),
        *([UNKNOWN_PEAK_MEMORY] if any(map(_is_peak_memory_unknown, records)) else []),
        *([WITH_VALIDATIONS] if is_mixed else []),
    ]


def _is_peak_memory_unknown(record: Record) -> bool:
    """Return whether any rank that should report its peak of memory does not.

    Ranks of the worker on GPUs should, logs of external scripts never. False if no usage is known.
    """
    return (
        record.case.device == "cuda"
        and is_usage_known(record)
        and record.case.axes.script == WORKER
        and not all(rank.peak_memory_bytes for rank in record.ranks)
    )


def compute_peak_memory(record: Record) -> Optional[int]:
    """Return the largest peak memory of any rank, in bytes; None if unknown."""
    return max((rank.peak_memory_bytes for rank in record.ranks), default=0) or None


def compute_power_watts(record: Record) -> float:
    """Return the summed mean power of all devices in watts; 0 unless each reports its power."""
    watched = list_telemetry(record)
    expected = record.case.nodes if record.case.device == "cpu" else record.case.world_size
    if len(watched) != expected or not all(one.mean_power_watts for one in watched):
        return 0.0
    return sum(one.mean_power_watts for one in watched)


def list_telemetry(record: Record) -> list[Telemetry]:
    """Return the telemetry of a record's devices: of GPUs, or of the hosts for a run on CPUs."""
    is_cpu = record.case.device == "cpu"
    return [
        one for one in record.telemetry if one.device != NODE and (one.device == HOST) == is_cpu
    ]


def compute_node_power_watts(record: Record) -> float:
    """Return the summed mean power of all nodes in watts; 0 unless each reports its power."""
    watts = [one.mean_power_watts for one in record.telemetry if one.device == NODE]
    return sum(watts) if len(watts) == record.case.nodes and all(watts) else 0.0


def _describe_throttling(watched: Sequence[Telemetry]) -> Iterator[str]:
    """Yield a note on why clocks were throttled, and on which devices, if any were.

    `watched` has the telemetry of the devices of all repeats.
    """
    total = len({(one.host, one.device) for one in watched})
    held: dict[str, dict[tuple[str, int], None]] = {}
    for one in watched:
        for reason in one.throttle_reasons:
            held.setdefault(reason, {})[one.host, one.device] = None
    texts = [f"{reason} ({_name_devices([*found], total)})" for reason, found in held.items()]
    if texts:
        yield f"clocks were throttled: {', '.join(texts)}"


def _describe_state_changes(watched: Sequence[Telemetry]) -> Iterator[str]:
    """Describe clocks, power limits and throttle reasons that changed during the measured steps.

    Between the first and the last sample; clocks only if by more than MIN_CLOCK_CHANGE. `watched`
    has the telemetry of the devices of all repeats.
    """
    total = len({(one.host, one.device) for one in watched})
    for what, describe in _STATES.items():
        found: dict[tuple[str, int], str] = {}
        for one in watched:
            start, end = describe(one.at_start), describe(one.at_end)
            mhz = (one.at_start.clock_mhz, one.at_end.clock_mhz)
            is_small = what == "clock" and abs(mhz[1] - mhz[0]) <= MIN_CLOCK_CHANGE * mhz[0]
            if start != end and not is_small:
                found[one.host, one.device] = f"from {start} to {end}"
        if found:
            which = _name_devices(list(found), total)
            yield f"{what} changed during the measured steps: {[*found.values()][-1]} ({which})"


def _describe_errors(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note on error counters of devices and hosts that grew during repeats, if any."""
    grown: Counter[tuple[str, str]] = Counter()
    for one in (one for record in records for one in record.telemetry):
        place = one.host if one.device == HOST else f"{one.host} device {one.device}"
        for name, count in one.errors.items():
            grown[name, place] += count
    if grown:
        texts = [f"{name} by {count} ({place})" for (name, place), count in grown.most_common()]
        yield f"error counters grew during the repeats: {list_some(texts, MAX_NAMED_ERRORS)}"


# what may change within a window -> its text
_STATES: Mapping[str, Callable[[DeviceState], str]] = {
    "clock": lambda state: f"{state.clock_mhz:.0f} MHz",
    "power limit": lambda state: f"{state.power_limit_watts:.0f} W",
    "throttle reasons": lambda state: " and ".join(state.throttle_reasons) or "none",
}


def _describe_averages(records: Sequence[Record]) -> Iterator[FootnoteTemplate]:
    """Yield a note if the measured steps were shorter than the time that NVML averages over."""
    sampled = [r for r in records if any(one.device not in (HOST, NODE) for one in r.telemetry)]
    shortest = min((record.window_seconds for record in sampled), default=AVERAGED_SECONDS)
    if shortest < AVERAGED_SECONDS:
        yield FootnoteTemplate(
            "power and utilization include time before the measured steps, which lasted {:.2f} s: "
            f"drivers average power and utilization over up to {AVERAGED_SECONDS:.0f} s",
            (shortest,),
        )


def _name_devices(found: Sequence[tuple[str, int]], total: int) -> str:
    """Return the names of devices, given as (host, device), or if many "12 of 16 devices"."""
    if len(found) > MAX_NAMED_DEVICES:
        return f"{len(found)} of {total} devices"
    return ", ".join(f"{host} device {device}" for host, device in found)


def _describe_missing(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note for each reason why repeats have no telemetry, if it is known."""
    problems: dict[str, list[str]] = {}
    for record in records:
        if "telemetry" in record.platform:
            repeats = problems.setdefault(record.platform["telemetry"], [])
            repeats.append(str(record.case.repeat))
    for problem, repeats in problems.items():
        yield f"no telemetry in repeat {', '.join(repeats)}: {problem}"
