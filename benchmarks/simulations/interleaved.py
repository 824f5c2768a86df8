"""Simulated runs in turns on a machine that drifts -> level and power of paired and unpaired tests.

Turns are A, B, A, B ... Normal noise; the machine slows down evenly from the first repeat to the
last. First columns: the power of the paired test that a dry run states. No framework runs here.
"""

import numpy

from dlperf_slurm.results.significance import FASTER, SLOWER, decide
from dlperf_slurm.stats.power import compute_power
from dlperf_slurm.stats.signed_rank import remove_drift

SEED = 2020
TRIALS = 1000
DRIFTS = (0.0, 0.03)
RATIOS = (1.0, 0.99, 0.97)


def count_verdicts(noise: float, repeats: int, drift: float, ratio: float) -> list[float]:
    """Return the shares of verdicts "faster" or "slower": unpaired, paired."""
    random = numpy.random.default_rng(SEED)
    found = numpy.zeros(2)
    for _ in range(TRIALS):
        speeds = 1 - drift * numpy.linspace(0, 1, 2 * repeats)
        speeds *= numpy.exp(noise * random.standard_normal(2 * repeats))
        pair = (speeds[::2].tolist(), (ratio * speeds[1::2]).tolist())
        verdicts = (
            decide([pair], None, 0.02)[0],
            decide([remove_drift(*pair)], None, 0.02, is_paired=True)[0],
        )
        found += [one.verdict in (FASTER, SLOWER) for one in verdicts]
    return (found / TRIALS).tolist()


def main() -> None:
    """Print a Markdown table: each cell has the share of the unpaired and of the paired test."""
    names = [f"stated, {1 - r:.0%}" for r in RATIOS[1:]]
    names += [f"B {1 - r:.0%} slower, {d:.0%} drift" for r in RATIOS for d in DRIFTS]
    print(f"seed {SEED}, {TRIALS} pairs of runs each; unpaired, paired\n")
    print("| noise | repeats | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    for noise in (0.005, 0.01):
        for repeats in (6, 7, 12):
            shares = [
                count_verdicts(noise, repeats, drift, ratio) for ratio in RATIOS for drift in DRIFTS
            ]
            said = [compute_power(repeats, noise, 1 - r, is_paired=True) for r in RATIOS[1:]]
            cells = " | ".join(
                [*(f"{one:.1%}" for one in said), *(f"{a:.1%}, {b:.1%}" for a, b in shares)]
            )
            print(f"| {noise:.1%} | {repeats} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
