"""Simulated batches -> the bias of their percentiles, by the number of batches.

A percentile of few batches is interpolated among the slowest of them, and is below the true one. No
framework runs here.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy

SEED = 2020
TRIALS = 4000
PERCENTILES = (90, 95, 99)
# expected number of batches that are slower than the true percentile
SLOWER = (1, 2, 5, 10, 20)


class Tail(NamedTuple):
    """A distribution of batch times, as its quantile function."""

    name: str
    find_time: Callable[[Any], Any]


def find_normal(shares: Any) -> Any:
    """Return quantiles of the standard normal distribution."""
    return numpy.vectorize(NormalDist().inv_cdf)(shares)


TAILS = (
    Tail("normal, 5 %", lambda shares: 1 + 0.05 * find_normal(shares)),
    Tail("exponential, 20 %", lambda shares: 1 - 0.2 * numpy.log1p(-shares)),
    Tail("log-normal, sigma 0.5", lambda shares: numpy.exp(0.5 * find_normal(shares))),
    Tail("Pareto, index 3", lambda shares: (1 - shares) ** (-1 / 3)),
)


def measure_bias(tail: Tail, percent: int, batches: int) -> float:
    """Return the relative bias of the median trial's percentile."""
    shares = numpy.random.default_rng(SEED).random((TRIALS, batches))
    found = numpy.percentile(tail.find_time(shares), percent, axis=1)
    return float(numpy.median(found) / tail.find_time(percent / 100) - 1)


def main() -> None:
    """Print a Markdown table of biases."""
    print(f"seed {SEED}, {TRIALS} sets of batches each\n")
    print("| percentile | batches | slower than it | " + " | ".join(t.name for t in TAILS) + " |")
    print("|---|---|---|" + "---|" * len(TAILS))
    for percent in PERCENTILES:
        for slower in SLOWER:
            batches = 100 * slower // (100 - percent)
            cells = [f"{100 * measure_bias(tail, percent, batches):.1f} %" for tail in TAILS]
            print(f"| {percent} % | {batches} | {slower} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
