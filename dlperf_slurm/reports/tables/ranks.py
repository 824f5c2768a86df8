"""Step times of all ranks -> imbalance, who is slow, and what the others wait for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import find_median
from dlperf_slurm.stats.stragglers import (
    Machine,
    Repeat,
    SlowMachine,
    find_slow_machines,
    find_slowest,
)

# of a rank's steps, in percent
STEP_PERCENTILES = (50, 90, 99, 100)


@dataclass(frozen=True)
class RankTimes:
    """The steps of one device over all repeats that it was in, in which it had these ranks.

    `slowness` is its median step over that of the median rank, in the median repeat;
    `step_seconds` are percentiles of all its steps, in the order of STEP_PERCENTILES.
    """

    host: str
    local_rank: int
    device_name: str
    ranks: tuple[int, ...]
    repeats: int
    slowest_repeats: int
    slowness: float
    step_seconds: tuple[float, ...]


@dataclass(frozen=True)
class RankRow:
    """A case of several ranks; `ranks` from the slowest to the fastest.

    `imbalance` is the slowest rank's median step over the median rank's, `waiting_share` the part
    of a step that the ranks on average wait for its slowest one: 1 - mean over steps of (mean over
    ranks / maximum over ranks). Both are medians over the repeats. In inference nobody waits.
    """

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


def make_rank_tables(cases: Sequence[CaseOutcomes], footnotes: Footnotes) -> tuple[RankTable, ...]:
    """One table, or none when no case has step times of several ranks."""
    timed = {c.case.case_id: [_Repeat(o) for o in c.outcomes if _is_timed(o)] for c in cases}
    repeats = [repeat for found in timed.values() for repeat in found]
    if not repeats:
        return ()
    by_host = [_group_by_host(repeat.seconds) for repeat in repeats]
    devices = find_slow_machines([devices for hosts in by_host for devices in hosts.values()])
    blamed = {device.machine.host for device in devices}
    hosts = find_slow_machines([_find_host_seconds(hosts) for hosts in by_host])
    slow = (*(host for host in hosts if host.machine.host not in blamed), *devices)
    numbers = {one.machine: footnotes.number(describe_slow_machine(one)) for one in slow}
    rows = (_make_row(case_id, found, numbers) for case_id, found in timed.items() if found)
    return (RankTable(tuple(rows), slow),)


def _is_timed(outcome: Outcome) -> bool:
    seconds = outcome.rank_step_seconds
    return seconds is not None and len(seconds) > 1


class _Repeat:
    """One repeat's ranks by their device; `seconds` are those of its median step."""

    def __init__(self, outcome: Outcome) -> None:
        import numpy

        assert outcome.record is not None
        self.record: Record = outcome.record
        self.step_seconds: Any = outcome.rank_step_seconds
        medians = numpy.median(self.step_seconds, axis=1).tolist()
        self.machines = [Machine(rank.host, rank.local_rank) for rank in self.record.ranks]
        self.seconds = dict(zip(self.machines, medians))
        self.slowest = find_slowest(self.seconds)
        self.median_rank_seconds = find_median(medians)

    @property
    def imbalance(self) -> float:
        return max(map(self.find_slowness, self.machines))

    @property
    def waiting_share(self) -> float:
        import numpy

        slowest, mean = self.step_seconds.max(axis=0), self.step_seconds.mean(axis=0)
        # nobody waits in a step that took no time
        alike = numpy.ones_like(slowest)
        return float(1 - numpy.divide(mean, slowest, out=alike, where=slowest > 0).mean())

    def find_slowness(self, machine: Machine) -> float:
        # a clock that is too coarse for the steps tells no differences
        return self.seconds[machine] / self.median_rank_seconds if self.median_rank_seconds else 1.0


def _group_by_host(devices: Repeat) -> dict[Machine, dict[Machine, float]]:
    hosts: dict[Machine, dict[Machine, float]] = {}
    for device, seconds in devices.items():
        hosts.setdefault(Machine(device.host), {})[device] = seconds
    return hosts


def _find_host_seconds(hosts: Mapping[Machine, Repeat]) -> dict[Machine, float]:
    """A host is as slow as its median device: a single slow one is found among its host's."""
    return {host: find_median([*devices.values()]) for host, devices in hosts.items()}


def describe_slow_machine(slow: SlowMachine) -> str:
    is_host = slow.machine.local_rank is None
    kind, others = ("hosts", "the hosts") if is_host else ("devices", "its host's devices")
    return (
        f"{slow.machine} was the slowest of {others} in {slow.slowest_repeats} of {slow.repeats} "
        f"repeats, by {100 * slow.excess:.1f} % over the median of the others; by chance "
        f"p = {slow.p_value:.2g} (binomial, Holm over all {kind})"
    )


def _make_row(case_id: str, repeats: Sequence[_Repeat], numbers: Mapping[Machine, int]) -> RankRow:
    machines = sorted({machine for repeat in repeats for machine in repeat.machines})
    ranks = [_make_rank(machine, repeats) for machine in machines]
    is_training = repeats[0].record.case.axes.mode == TRAIN
    present = {Machine(machine.host) for machine in machines}.union(machines)
    return RankRow(
        case_id=case_id,
        repeats=len(repeats),
        imbalance=find_median([repeat.imbalance for repeat in repeats]),
        waiting_share=find_median([r.waiting_share for r in repeats]) if is_training else None,
        ranks=tuple(sorted(ranks, key=lambda rank: -rank.slowness)),
        footnotes=tuple(number for machine, number in numbers.items() if machine in present),
    )


def _make_rank(machine: Machine, repeats: Sequence[_Repeat]) -> RankTimes:
    import numpy

    own = [
        (repeat, repeat.machines.index(machine)) for repeat in repeats if machine in repeat.machines
    ]
    steps = numpy.concatenate([repeat.step_seconds[row] for repeat, row in own])
    results = [repeat.record.ranks[row] for repeat, row in own]
    return RankTimes(
        host=machine.host,
        local_rank=results[0].local_rank,
        device_name=results[0].device_name,
        ranks=tuple(sorted({result.rank for result in results})),
        repeats=len(own),
        slowest_repeats=sum(repeat.slowest == machine for repeat, _ in own),
        slowness=find_median([repeat.find_slowness(machine) for repeat, _ in own]),
        step_seconds=tuple(numpy.percentile(steps, STEP_PERCENTILES).tolist()),
    )
