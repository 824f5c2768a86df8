"""A frame of cases -> the imbalance of their ranks, who is slow, and what the others wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.reports.cells import MILLISECONDS, SHARE, Cell, Column, Number, Table, tabulate
from dlperf_slurm.reports.tables import make_count_cell
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.rank_times import STEP_PERCENTILES, RankSpread, RankTimes
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.stats.stragglers import Machine, Repeat, SlowMachine, find_slow_machines

if TYPE_CHECKING:
    from pandas import DataFrame

# of ranks, as many as one would look at
SHOWN_SLOW_RANKS = 3


@dataclass(frozen=True)
class RankRow:
    """A case of several ranks, with the numbers of its footnotes."""

    case_id: str
    spread: RankSpread
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
    marks = tuple(number for machine, number in numbers.items() if machine in present)
    return RankRow(case_id, spread, marks)


def tabulate_ranks(table: RankTable) -> Table:
    """One row per case of several ranks: who was slow."""
    words: list[Column[RankRow]] = [
        Column("case", lambda row: row.case_id),
        Column("slowest rank", _name_slowest),
    ]
    figures: list[Column[RankRow]] = [
        Column("slowest in", lambda row: _count_slowest(row.spread.ranks[0])),
        Column("imbalance", lambda row: row.spread.imbalance, Number(".3f")),
        Column("waiting", lambda row: row.spread.waiting_share, SHARE, "none"),
    ]
    caption = (
        "imbalance: the slowest rank's median step over the median rank's; waiting: 1 - "
        "mean over ranks / slowest rank, averaged over steps; medians over repeats. Ranks that "
        "meet within a step, as in an all-reduce, wait there: there may be more of both"
    )
    return tabulate("ranks", words, figures, table.rows, caption)


def _name_slowest(row: RankRow) -> Cell:
    slowest = row.spread.ranks[0]
    return Cell(f"{_name_rank(slowest)} on {slowest.host}", notes=row.footnotes)


def _name_rank(times: RankTimes) -> str:
    """The device of one host had these ranks in different repeats."""
    return " or ".join(map(str, times.ranks))


def _count_slowest(times: RankTimes) -> Cell:
    return make_count_cell(times.slowest_repeats, times.repeats)


def tabulate_rank_times(table: RankTable) -> Table:
    """The slowest ranks of each case and the fastest, with percentiles of their steps."""
    words: list[Column[tuple[str, RankTimes]]] = [
        Column("case", lambda row: row[0]),
        Column("rank", lambda row: _name_rank(row[1])),
        Column("host", lambda row: row[1].host),
        Column("device", lambda row: row[1].device_name),
    ]
    figures: list[Column[tuple[str, RankTimes]]] = [
        Column("slowest in", lambda row: _count_slowest(row[1])),
        Column("of the median rank", lambda row: row[1].slowness, Number(".3f")),
        *(_make_step_column(index) for index in range(len(STEP_PERCENTILES))),
    ]
    rows = [
        (row.case_id, times)
        for row in table.rows
        for times in (*row.spread.ranks[:-1][:SHOWN_SLOW_RANKS], row.spread.ranks[-1])
    ]
    caption = (
        f"up to {SHOWN_SLOW_RANKS} slowest ranks of each case and the fastest; "
        "percentiles of the steps of all repeats. The JSON report has every rank"
    )
    return tabulate("step times by rank", words, figures, rows, caption)


def _make_step_column(index: int) -> Column[tuple[str, RankTimes]]:
    header = f"{STEP_PERCENTILES[index]} % ms"
    return Column(header, lambda row: row[1].step_seconds[index], MILLISECONDS)
