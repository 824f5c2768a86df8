"""A frame of cases -> the imbalance of their ranks, who is slow, and what the others wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.rank_times import RankSpread, RankTimes
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.stats.stragglers import Machine, Repeat, SlowMachine, find_slow_machines

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class RankRow:
    """A case of several ranks; the figures are those of its RankSpread."""

    case_id: str
    repeats: int
    imbalance: float
    waiting_share: Optional[float]
    ranks: tuple[RankTimes, ...]
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class RankTable:
    """The cases of a run with several ranks, and who was slowest in more repeats than by chance.

    Hosts are held against each other, devices against those of their host; a host with a slow
    device is not named for itself.
    """

    rows: tuple[RankRow, ...]
    slow_machines: tuple[SlowMachine, ...]


def make_rank_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[RankTable, ...]:
    """One table, or none when no case has step times of several ranks."""
    spreads = {row.case_id: row.rank_spread for row in list_rows(frame) if row.rank_spread}
    if not spreads:
        return ()
    by_host = [_group_by_host(repeat) for spread in spreads.values() for repeat in spread.repeats]
    devices = find_slow_machines([devices for hosts in by_host for devices in hosts.values()])
    blamed = {device.machine.host for device in devices}
    hosts = find_slow_machines([_find_host_seconds(hosts) for hosts in by_host])
    slow = (*(host for host in hosts if host.machine.host not in blamed), *devices)
    numbers = {one.machine: footnotes.number(describe_slow_machine(one)) for one in slow}
    rows = (_make_row(case_id, spread, numbers) for case_id, spread in spreads.items())
    return (RankTable(tuple(rows), slow),)


def _group_by_host(devices: Repeat) -> dict[Machine, dict[Machine, float]]:
    hosts: dict[Machine, dict[Machine, float]] = {}
    for device, seconds in devices.items():
        hosts.setdefault(Machine(device.host), {})[device] = seconds
    return hosts


def _find_host_seconds(hosts: Mapping[Machine, Repeat]) -> dict[Machine, float]:
    """A host is as slow as its median device: a single slow one is found among its host's."""
    return {host: compute_median([*devices.values()]) for host, devices in hosts.items()}


def describe_slow_machine(slow: SlowMachine) -> str:
    is_host = slow.machine.local_rank is None
    kind, others = ("hosts", "the hosts") if is_host else ("devices", "its host's devices")
    return (
        f"{slow.machine} was the slowest of {others} in {slow.slowest_repeats} of {slow.repeats} "
        f"repeats, by {100 * slow.excess:.1f} % over the median of the others; by chance "
        f"p = {slow.p_value:.2g} (binomial, Holm over all {kind})"
    )


def _make_row(case_id: str, spread: RankSpread, numbers: Mapping[Machine, int]) -> RankRow:
    machines = {machine for repeat in spread.repeats for machine in repeat}
    present = {Machine(machine.host) for machine in machines}.union(machines)
    return RankRow(
        case_id=case_id,
        repeats=len(spread.repeats),
        imbalance=spread.imbalance,
        waiting_share=spread.waiting_share,
        ranks=spread.ranks,
        footnotes=tuple(number for machine, number in numbers.items() if machine in present),
    )
