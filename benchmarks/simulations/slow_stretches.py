"""Simulated step times -> how often a slow stretch is reported, if there is one and if not.

A step takes 1 unit plus noise from an autoregressive process of first order. No framework runs
here.
"""

from typing import Any

import numpy

from dlperf_slurm.stats.step_times import find_slow_stretch

SEED = 2020
SERIES = 400
COUNTS = (100, 400)
MEMORIES = (0.0, 0.5, 0.8, 0.9, 0.95)
DEVIATIONS = (0.01, 0.03, 0.05)


def draw_steps(count: int, memory: float, deviation: float) -> Any:
    """Draw step times [series, steps] of a machine without a slow stretch."""
    noise = numpy.random.default_rng(SEED).standard_normal((SERIES, count))
    levels = noise.copy()
    for i in range(1, count):
        levels[:, i] = memory * levels[:, i - 1] + (1 - memory**2) ** 0.5 * noise[:, i]
    return numpy.exp(deviation * levels)


def slow_down(steps: Any, first: float, last: float, factor: float) -> Any:
    """Multiply the steps between two fractions of the window by a factor."""
    changed = steps.copy()
    count = steps.shape[1]
    changed[:, round(first * count) : round(last * count)] *= factor
    return changed


def measure_share(steps: Any) -> float:
    """Return the share of series in which a slow stretch is found."""
    return float(numpy.mean([find_slow_stretch(one) is not None for one in steps.tolist()]))


def main() -> None:
    """Print a Markdown table of false positive rate and power."""
    print(f"seed {SEED}, {SERIES} series each\n")
    print("| steps | memory | deviation | none | first fifth, 20 % | last tenth, 30 % "
          "| middle fifth, 20 % |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for count in COUNTS:
        for memory in MEMORIES:
            for deviation in DEVIATIONS:
                sound = draw_steps(count, memory, deviation)
                cells = [
                    measure_share(sound),
                    *(measure_share(slow_down(sound, *change))
                      for change in ((0, 0.2, 1.2), (0.9, 1, 1.3), (0.4, 0.6, 1.2))),
                ]  # fmt: skip
                shown = " | ".join(f"{cell:.3f}" for cell in cells)
                print(f"| {count} | {memory} | {deviation:.0%} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
