"""Simulated pairs of runs -> the frequency of each verdict of `compare`, at and off its limits.

Repeats of 100 samples/s have normal noise. The limit and the margin are 3 %. With an offset, all
repeats of a run or of a block share one random offset. No framework runs here.
"""

import math
import statistics
from collections import Counter
from random import Random

from dlperf_slurm.results.significance import EQUIVALENT, FASTER, SLOWER, UNDECIDED, decide

SEED = 2020
TRIALS = 400
LIMIT = 0.03
VERDICTS = (FASTER, SLOWER, EQUIVALENT, UNDECIDED)

# repeats, spread of A's and of B's, true ratio of B's speed to A's
SCENES = [
    (repeats, spread, spread, ratio)
    for repeats in (7, 15)
    for spread in (0.01, 0.03)
    for ratio in (1.0, 0.97, 0.95)
] + [(7, 0.005, 0.05, 1.0), (15, 0.005, 0.05, 1.0)]


def draw_run(random: Random, repeats: int, spread: float, ratio: float) -> list[float]:
    return [100 * ratio * math.exp(random.gauss(0, spread)) for _ in range(repeats)]


def draw_blocks(random: Random, blocks: int, repeats: int) -> list[list[float]]:
    """Draw the repeats of blocks with offsets of 3 %, and noise of 1 % within a block."""
    offsets = [math.exp(random.gauss(0, 0.03)) for _ in range(blocks)]
    return [draw_run(random, repeats, 0.01, offset) for offset in offsets]


def main() -> None:
    """Print Markdown tables of verdicts, and of false alarms if repeats share an offset."""
    print(f"seed {SEED}, {TRIALS} pairs each, limit and margin {LIMIT:.0%}\n")
    print("| repeats | spread A, B | ratio | " + " | ".join(VERDICTS)
          + " | beyond the limit | within the limit |")  # fmt: skip
    print("|---|---|---|" + "---|" * (len(VERDICTS) + 2))
    for repeats, spread_a, spread_b, ratio in SCENES:
        random = Random(SEED)
        found = [
            decide(
                [
                    (
                        draw_run(random, repeats, spread_a, 1),
                        draw_run(random, repeats, spread_b, ratio),
                    )
                ],
                LIMIT,
                LIMIT,
            )[0]
            for _ in range(TRIALS)
        ]
        counts = Counter(one.verdict for one in found)
        shares = [counts[verdict] / TRIALS for verdict in VERDICTS]
        shares += [sum(one.is_beyond_limit for one in found) / TRIALS]
        shares += [sum(one.is_within_limit for one in found) / TRIALS]
        cells = " | ".join(f"{share:.3f}" for share in shares)
        print(f"| {repeats} | {spread_a:.1%}, {spread_b:.1%} | {ratio} | {cells} |", flush=True)
    print("\n| blocks x repeats, offsets of 3 % | unit | alarms |\n|---|---|---|")
    for blocks, repeats in ((1, 7), (7, 1), (7, 4)):
        for unit in ("repeat", "block"):
            random = Random(SEED)
            alarms = 0
            for _ in range(TRIALS):
                pair = [draw_blocks(random, blocks, repeats) for _ in range(2)]
                a, b = (
                    [statistics.median(block) for block in run] if unit == "block"
                    else [rate for block in run for rate in block] for run in pair
                )  # fmt: skip
                alarms += decide([(a, b)], None, LIMIT)[0].verdict in (FASTER, SLOWER)
            print(f"| {blocks} x {repeats} | {unit} | {alarms / TRIALS:.3f} |", flush=True)


if __name__ == "__main__":
    main()
