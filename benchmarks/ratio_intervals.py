"""Simulated repeats -> how often 95 % intervals of a speedup cover the true one, by method.

Noise is of times: a repeat takes 1 unit and what its noise adds. Both cases have the same noise but
for the last one, whose second case has four times as much. No framework runs here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy

from dlperf_slurm.stats.median import compute_median_interval
from dlperf_slurm.stats.placements import compute_ratio_interval

SEED = 2020
TRIALS = 4000
RESAMPLES = 1000
REPEATS = (3, 4, 5, 6, 7, 10)
SCALE = 0.02

# a generator and a shape -> the repeats' excess times, in units of SCALE
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
    """Times [trials, repeats] whose true median is 1."""
    excess = NOISES[noise](random, (TRIALS, repeats)) - MEDIANS[noise]
    return 1 + SCALE * factor * excess


def find_pair_ratios(first: Any, second: Any, random: numpy.random.Generator) -> Iterator[Any]:
    """The interval that the rank-sum test does not refuse."""
    for a, b in zip(first.tolist(), second.tolist()):
        yield compute_ratio_interval(a, b)


def find_bootstrap(first: Any, second: Any, random: numpy.random.Generator) -> Iterator[Any]:
    """Percentiles of the ratio of medians of resamples."""
    count = first.shape[1]
    for a, b in zip(first, second):
        drawn = random.integers(0, count, (2, RESAMPLES, count))
        ratios = numpy.median(b[drawn[1]], axis=1) / numpy.median(a[drawn[0]], axis=1)
        yield tuple(numpy.percentile(ratios, (2.5, 97.5)))


def find_both_medians(first: Any, second: Any, random: numpy.random.Generator) -> Iterator[Any]:
    """From intervals of both medians, each at 97.5 %: holds for any two distributions."""
    for a, b in zip(first.tolist(), second.tolist()):
        of_a, of_b = compute_median_interval(a, 0.975), compute_median_interval(b, 0.975)
        yield of_a and of_b and (of_b.low / of_a.high, of_b.high / of_a.low)


METHODS = {
    "rank-sum": find_pair_ratios,
    "bootstrap": find_bootstrap,
    "both medians": find_both_medians,
}


def measure_coverage(method: str, noise: str, repeats: int, factor: float) -> str:
    """Share of intervals that cover the true ratio, which is 1, and their mean width."""
    random = numpy.random.default_rng(SEED)
    first = draw_times(noise, random, repeats, 1)
    second = draw_times(noise, random, repeats, factor)
    found = [interval for interval in METHODS[method](first, second, random) if interval]
    if not found:
        return "none"
    bounds = numpy.array([i if isinstance(i, tuple) else (i.low, i.high) for i in found])
    coverage = ((bounds[:, 0] <= 1) & (bounds[:, 1] >= 1)).mean()
    return f"{coverage:.3f}, {(bounds[:, 1] - bounds[:, 0]).mean():.3f}"


def main() -> None:
    """Print a Markdown table of coverage and mean width."""
    print(f"seed {SEED}, {TRIALS} pairs each, noise {SCALE:.0%}\n")
    print("| noise | repeats | " + " | ".join(METHODS) + " |")
    print("|---|---|" + "---|" * len(METHODS))
    for noise, factor in [*((name, 1) for name in NOISES), ("normal", 4), ("exponential", 4)]:
        label = noise if factor == 1 else f"{noise}, four times as much in one"
        for repeats in REPEATS:
            cells = [measure_coverage(method, noise, repeats, factor) for method in METHODS]
            print(f"| {label} | {repeats} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
