"""Step times of all ranks of a case -> imbalance, who is slow, and what the others wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.stats.stragglers import Machine, Repeat, find_slowest

# of a rank's steps, in percent
STEP_PERCENTILES = (50, 90, 99, 100)

# a device is the same object in all repeats: between processes it is then sent once
_find_machine = lru_cache(maxsize=2**16)(Machine)


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
class RankSpread:
    """How far apart the ranks of a case are; `ranks` from the slowest to the fastest.

    `imbalance` is the slowest rank's median step over the median rank's, `waiting_share` the part
    of a step that the ranks on average wait for its slowest one: 1 - mean over steps of (mean over
    ranks / maximum over ranks). Both are medians over the repeats. In inference nobody waits.
    `repeats` have the median step of each device, in seconds.
    """

    repeats: tuple[Repeat, ...]
    imbalance: float
    waiting_share: Optional[float]
    ranks: tuple[RankTimes, ...]

    @property
    def slowest(self) -> RankTimes:
        return self.ranks[0]


def find_rank_spread(outcomes: CaseOutcomes) -> Optional[RankSpread]:
    """The spread over ranks; None for a case without step times of several ranks."""
    repeats = [_Repeat(outcome) for outcome in outcomes.outcomes if _is_timed(outcome)]
    if not repeats:
        return None
    places: dict[Machine, list[_Place]] = {}
    for repeat in repeats:
        for row, machine in enumerate(repeat.seconds):
            places.setdefault(machine, []).append((repeat, row))
    percentiles = _find_percentiles(places)
    ranks = [_make_rank(machine, places[machine], percentiles[machine]) for machine in places]
    is_training = repeats[0].record.case.axes.mode == TRAIN
    return RankSpread(
        repeats=tuple(repeat.seconds for repeat in repeats),
        imbalance=compute_median([repeat.imbalance for repeat in repeats]),
        waiting_share=compute_median([r.waiting_share for r in repeats]) if is_training else None,
        ranks=tuple(sorted(ranks, key=_order)),
    )


def _is_timed(outcome: Outcome) -> bool:
    seconds = outcome.rank_step_seconds
    return seconds is not None and len(seconds) > 1


class _Repeat:
    """One repeat's ranks by their device; `seconds` are those of its median step.

    `slowness` is by row what that is over the median rank's.
    """

    def __init__(self, outcome: Outcome) -> None:
        import numpy

        assert outcome.record is not None
        self.record: Record = outcome.record
        self.step_seconds: Any = outcome.rank_step_seconds
        # half of the time of numpy.median
        ascending, count = numpy.sort(self.step_seconds, axis=1), self.step_seconds.shape[1]
        medians = ((ascending[:, (count - 1) // 2] + ascending[:, count // 2]) / 2).tolist()
        machines = [_find_machine(rank.host, rank.local_rank) for rank in self.record.ranks]
        self.seconds = dict(zip(machines, medians))
        self.slowest = find_slowest(self.seconds)
        usual = compute_median(medians)
        # a clock that is too coarse for the steps tells no differences
        self.slowness = [seconds / usual if usual else 1.0 for seconds in medians]
        self.imbalance = max(self.slowness)

    @property
    def waiting_share(self) -> float:
        import numpy

        slowest, mean = self.step_seconds.max(axis=0), self.step_seconds.mean(axis=0)
        # nobody waits in a step that took no time
        alike = numpy.ones_like(slowest)
        return float(1 - numpy.divide(mean, slowest, out=alike, where=slowest > 0).mean())


# a repeat, and the row that a device has in its times
_Place = tuple[_Repeat, int]


def _find_percentiles(places: Mapping[Machine, Sequence[_Place]]) -> dict[Machine, list[float]]:
    """STEP_PERCENTILES of all steps of each device, at once of those with the same repeats."""
    import numpy

    found: dict[Machine, list[float]] = {}
    alike: dict[tuple[int, ...], list[Machine]] = {}
    for machine, own in places.items():
        alike.setdefault(tuple(id(repeat) for repeat, _ in own), []).append(machine)
    for machines in alike.values():
        # by repeat, the rows of all machines
        rows = zip(*([place for _, place in places[machine]] for machine in machines))
        repeats = [repeat for repeat, _ in places[machines[0]]]
        steps = [repeat.step_seconds[[*own]] for repeat, own in zip(repeats, rows)]
        values = numpy.percentile(numpy.concatenate(steps, axis=1), STEP_PERCENTILES, axis=1)
        found.update(zip(machines, values.T.tolist()))
    return found


def _make_rank(machine: Machine, own: Sequence[_Place], percentiles: Sequence[float]) -> RankTimes:
    results = [repeat.record.ranks[row] for repeat, row in own]
    return RankTimes(
        host=machine.host,
        local_rank=results[0].local_rank,
        device_name=results[0].device_name,
        ranks=tuple(sorted({result.rank for result in results})),
        repeats=len(own),
        slowest_repeats=sum(repeat.slowest == machine for repeat, _ in own),
        slowness=compute_median([repeat.slowness[row] for repeat, row in own]),
        step_seconds=tuple(percentiles),
    )


def _order(rank: RankTimes) -> tuple[float, str, int]:
    """The key of an order from the slowest rank to the fastest, then by place."""
    return -rank.slowness, rank.host, rank.local_rank
