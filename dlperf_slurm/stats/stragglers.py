"""Step times of hosts and devices by repeat -> the ones that are slowest beyond chance."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from dlperf_slurm.stats.median import CONFIDENCE, compute_median
from dlperf_slurm.stats.multiple_testing import adjust_by_holm, compute_excess_chance

# A machine that is slower by less, as a ratio less 1, is not reported.
MIN_EXCESS = 0.02


class Machine(NamedTuple):
    """A host, or the device of one rank on a host."""

    host: str
    local_rank: Optional[int] = None

    def __str__(self) -> str:
        return self.host if self.local_rank is None else f"{self.host} local rank {self.local_rank}"


# one repeat: the seconds per step on each machine
Repeat = Mapping[Machine, float]


@dataclass(frozen=True)
class SlowMachine:
    """A machine that was the slowest in more repeats than chance explains.

    `slowest_repeats` of its `repeats` are those in which it was. `excess` is how much longer its
    step took than the median step of the other machines, as a ratio less 1 (0.05 is 5 %), in the
    median repeat. `p_value` is adjusted for the number of machines.
    """

    machine: Machine
    slowest_repeats: int
    repeats: int
    excess: float
    p_value: float


def find_slow_machines(repeats: Sequence[Repeat]) -> tuple[SlowMachine, ...]:
    """Return the machines that were the slowest of a repeat more often than chance explains.

    They must also be slower than the others by MIN_EXCESS. Only repeats on two or more machines
    count. By chance, each machine of a repeat is equally likely to be the slowest; the count
    follows a Poisson binomial distribution, because repeats may differ in their number of machines.
    P-values are adjusted by Holm's method over all machines. The others are compared again without
    those that were found, as two slow ones hide each other.
    """
    found: list[SlowMachine] = []
    rest = list(repeats)
    while more := _find_slowest_machines([repeat for repeat in rest if len(repeat) > 1]):
        found += more
        names = {slow.machine for slow in more}
        rest = [{m: repeat[m] for m in repeat if m not in names} for repeat in rest]
    return tuple(sorted(found, key=lambda slow: slow.machine))


def _find_slowest_machines(contests: Sequence[Repeat]) -> list[SlowMachine]:
    """Return the machines that were the slowest of a repeat significantly often, in one pass."""
    chances: defaultdict[Machine, list[float]] = defaultdict(list)
    for repeat in contests:
        chance = 1 / len(repeat)
        for machine in repeat:
            chances[machine].append(chance)
    hits = Counter(map(find_slowest, contests))
    p_values = adjust_by_holm(
        [compute_excess_chance(hits[machine], chances[machine]) for machine in chances]
    )
    return [
        SlowMachine(machine, hits[machine], len(chances[machine]), excess, p_value)
        for machine, p_value in zip(chances, p_values)
        if p_value <= 1 - CONFIDENCE
        for excess in [_compute_excess(machine, contests)]
        if excess >= MIN_EXCESS
    ]


def find_slowest(repeat: Repeat) -> Optional[Machine]:
    """Return the machine with the longest step of a repeat; None if several share that time."""
    longest = max(repeat.values())
    slowest = [machine for machine, seconds in repeat.items() if seconds == longest]
    return slowest[0] if len(slowest) == 1 else None


def _compute_excess(machine: Machine, repeats: Sequence[Repeat]) -> float:
    """Compute how much longer a machine's step takes than the others', as a ratio less 1.

    The others are represented by their median; the result is that of the median repeat. A repeat in
    which the others took no time counts as 0.
    """
    excesses = []
    for repeat in repeats:
        if machine in repeat:
            others = compute_median([repeat[other] for other in repeat if other != machine])
            excesses.append(repeat[machine] / others - 1 if others else 0.0)
    return compute_median(excesses)
