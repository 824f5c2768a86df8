"""Simulated repeats -> how often 95 % intervals of a speedup cover the true one, by method.

Noise is added to times: a repeat takes 1 unit plus its noise, and both true medians are 1. The
second case has as much noise as the first, or several times as much. No framework runs here.
"""

from collections.abc import Callable
from typing import Any

import numpy

from dlperf_slurm.stats.fligner_policello import count_needed_values, is_refused
from dlperf_slurm.stats.median import CONFIDENCE, compute_median_interval, count_needed_samples

SEED = 2020
TRIALS = 4000
REPEATS = (4, 5, 6, 7, 10, 20, 40)
SPREADS = (1, 4, 10)
SCALE = 0.005

# a generator and a shape -> the noise of the repeats, in units of SCALE
Noise = Callable[[numpy.random.Generator, tuple[int, int]], Any]
NOISES: dict[str, Noise] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "exponential": lambda random, shape: random.standard_exponential(shape),
    "log-normal": lambda random, shape: random.lognormal(0, 1, shape),
    "one in five stalls": lambda random, shape: (
        random.standard_normal(shape) + 5 * (random.random(shape) < 0.2)
    ),
}
# with a fifth above all others, the median is the normal distribution's quantile 0.5 / 0.8
MEDIANS = {
    "normal": 0.0,
    "exponential": 0.6931,
    "log-normal": 1.0,
    "one in five stalls": 0.3186,
}


def draw_times(noise: str, random: numpy.random.Generator, repeats: int, factor: float) -> Any:
    """Draw times [trials, repeats] whose true median is 1."""
    excess = NOISES[noise](random, (TRIALS, repeats)) - MEDIANS[noise]
    return 1 + SCALE * factor * excess


def cover_by_rank_sum(first: Any, second: Any) -> Any:
    """Return whether the exact rank-sum test does not reject: bool [trials]."""
    count = first.shape[1]
    chances = numpy.zeros((count + 1, count * count + 1))
    chances[0, 0] = 1
    # the j-th smallest of the second sample has 0 to `count` values of the first one below it
    for below in range(count + 1):
        for chosen in range(1, count + 1):
            chances[chosen, below:] += chances[chosen - 1, : count * count + 1 - below]
    tail = (chances[count] / chances[count].sum()).cumsum()
    refused = int((2 * tail <= 1 - CONFIDENCE).sum())
    wins = (second[:, None, :] > first[:, :, None]).sum(axis=(1, 2))
    return (wins >= refused) & (wins <= count * count - refused)


def cover_by_placements(first: Any, second: Any) -> Any:
    """Apply the test that `compare` and the tables use."""
    if first.shape[1] < count_needed_values():
        return None
    return ~is_refused(first, second)


def cover_by_both_medians(first: Any, second: Any) -> Any:
    """Compare 97.5 % intervals of both medians, which is valid for any two distributions."""
    if first.shape[1] < count_needed_samples(0.975):
        return None
    found = []
    for a, b in zip(first.tolist(), second.tolist()):
        of_a, of_b = compute_median_interval(a, 0.975), compute_median_interval(b, 0.975)
        found.append(of_a and of_b and of_b.low <= of_a.high and of_a.low <= of_b.high)
    return numpy.array(found, dtype=bool)


METHODS = {
    "rank-sum": cover_by_rank_sum,
    "Fligner-Policello, and either median": cover_by_placements,
    "both medians": cover_by_both_medians,
}


def measure_coverage(noise: str, spread: float, repeats: int) -> list[str]:
    """Return the share of trials whose interval covers the true ratio, 1, by method."""
    random = numpy.random.default_rng(SEED)
    first = draw_times(noise, random, repeats, 1)
    second = draw_times(noise, random, repeats, spread)
    covered = [method(first, second) for method in METHODS.values()]
    return ["none" if one is None else f"{one.mean():.3f}" for one in covered]


def main() -> None:
    """Print a Markdown table of coverage."""
    print(f"seed {SEED}, {TRIALS} pairs each\n")
    print("| noise | spread of the second | repeats | " + " | ".join(METHODS) + " |")
    print("|---|---|---|" + "---|" * len(METHODS))
    for noise in NOISES:
        for spread in SPREADS:
            for repeats in REPEATS:
                cells = measure_coverage(noise, spread, repeats)
                print(f"| {noise} | {spread} x | {repeats} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
