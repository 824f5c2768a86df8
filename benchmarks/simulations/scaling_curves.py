"""Simulated repeats -> how often all intervals of a scaling curve cover, individually or jointly.

A curve has four topologies and one baseline, whose repeats all its speedups share. Noise is that of
`ratio_intervals.py`; the four have as much as the baseline, or several times as much.
"""

import numpy
from ratio_intervals import REPEATS, SEED, SPREADS, TRIALS, draw_times

from dlperf_slurm.stats.fligner_policello import count_needed_values, is_refused
from dlperf_slurm.stats.median import CONFIDENCE

POINTS = 4
SHOWN_NOISES = ("normal", "exponential")
# of an individual interval, and of a joint one (Bonferroni)
CONFIDENCES = (CONFIDENCE, 1 - (1 - CONFIDENCE) / POINTS)


def measure_coverage(noise: str, spread: float, repeats: int) -> list[str]:
    """Return the share of curves with all speedups within their intervals, by confidence."""
    random = numpy.random.default_rng(SEED)
    baseline = draw_times(noise, random, repeats, 1)
    points = [draw_times(noise, random, repeats, spread) for _ in range(POINTS)]
    cells = []
    for confidence in CONFIDENCES:
        if repeats < count_needed_values(confidence):
            cells.append("none")
            continue
        missed = numpy.zeros(TRIALS, dtype=bool)
        for times in points:
            missed |= is_refused(baseline, times, confidence)
        cells.append(f"{1 - missed.mean():.3f}")
    return cells


def main() -> None:
    """Print a Markdown table of coverage."""
    print(f"seed {SEED}, {TRIALS} curves of {POINTS} speedups each\n")
    print("| noise | spread of the others | repeats | each by itself | together |")
    print("|---|---|---|---|---|")
    for noise in SHOWN_NOISES:
        for spread in SPREADS:
            for repeats in (*REPEATS[:4], 8, *REPEATS[4:]):
                cells = measure_coverage(noise, spread, repeats)
                print(f"| {noise} | {spread} x | {repeats} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
