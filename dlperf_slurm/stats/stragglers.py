"""Who was how slow in which repeat -> the hosts and devices that are slowest beyond chance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from dlperf_slurm.stats.median import CONFIDENCE, compute_median
from dlperf_slurm.stats.rank_sum import adjust_by_holm, compute_excess_chance

# a machine that is slower by less is as good as the others: what is worth naming elsewhere too
MIN_EXCESS = 0.02


class Machine(NamedTuple):
    """A host, or the device of one of its ranks."""

    host: str
    local_rank: Optional[int] = None

    def __str__(self) -> str:
        return self.host if self.local_rank is None else f"{self.host} local rank {self.local_rank}"


# seconds of a step on each machine, in one repeat
Repeat = Mapping[Machine, float]


@dataclass(frozen=True)
class SlowMachine:
    """A machine that was the slowest in more repeats than chance explains.

    `excess` is how much longer its step was than that of the median of the others, as a ratio less
    1, in the median repeat. `p_value` is adjusted for the number of machines that were looked at.
    """

    machine: Machine
    slowest_repeats: int
    repeats: int
    excess: float
    p_value: float


def find_slow_machines(repeats: Sequence[Repeat]) -> tuple[SlowMachine, ...]:
    """Of repeats on two machines or more, where by chance any of them is the slowest.

    How often one is the slowest is then Poisson binomial, as its repeats may be on other numbers of
    machines. The adjustment is Holm's, over all machines that were in any repeat.
    """
    chances: dict[Machine, list[float]] = {}
    contests = [repeat for repeat in repeats if len(repeat) > 1]
    for repeat in contests:
        for machine in repeat:
            chances.setdefault(machine, []).append(1 / len(repeat))
    hits = Counter(map(find_slowest, contests))
    p_values = adjust_by_holm(
        [compute_excess_chance(hits[machine], chances[machine]) for machine in chances]
    )
    found = [
        SlowMachine(machine, hits[machine], len(chances[machine]), excess, p_value)
        for machine, p_value in zip(chances, p_values)
        if p_value <= 1 - CONFIDENCE
        for excess in [_compute_excess(machine, contests)]
        if excess >= MIN_EXCESS
    ]
    return tuple(sorted(found, key=lambda slow: slow.machine))


def find_slowest(repeat: Repeat) -> Optional[Machine]:
    """Whose step took longer than that of any other one."""
    longest = max(repeat.values())
    slowest = [machine for machine, seconds in repeat.items() if seconds == longest]
    return slowest[0] if len(slowest) == 1 else None


def _compute_excess(machine: Machine, repeats: Sequence[Repeat]) -> float:
    """Over the median of the others; those took no time only where nobody did."""
    excesses = []
    for repeat in repeats:
        if machine in repeat:
            others = compute_median([repeat[other] for other in repeat if other != machine])
            excesses.append(repeat[machine] / others - 1 if others else 0.0)
    return compute_median(excesses)
