"""Simulated references and runs -> how often `accept` accepts or rejects them.

The logarithm of a run's throughput is normal: 1 % from run to run, in what a run's cases have in
common, in each case by itself, or both; and 1 % from repeat to repeat. No framework runs here.
"""

import numpy

from dlperf_slurm.results.significance import decide
from dlperf_slurm.stats.tolerance import compute_tolerances

SEED = 2020
BOUNDS, TRIALS = 1000, 100
SPREAD = 0.01
# name -> share of the variance between runs that all cases have in common
SHARES = {"each case by itself": 0.0, "half in common": 0.5, "in common": 1.0}
NOISY = "one case in four three times as much"


def draw_effects(random, cases, runs, share, is_noisy=False):
    """Draw what runs differ by, as logarithms: [cases, runs]."""
    spreads = numpy.full((cases, 1), SPREAD)
    if is_noisy:
        spreads[::4] *= 3
    own = numpy.sqrt(1 - share) * spreads * random.standard_normal((cases, runs))
    return own + numpy.sqrt(share) * SPREAD * random.standard_normal((1, runs))


def print_bounds(random):
    """Print how often a case of one further run is below its bound, and the median tolerance."""
    print("| cases | runs | run to run | any case below its bound | tolerance |")
    print("|---|---|---|---|---|")
    for cases in (1, 12):
        for runs in (2, 3, 5):
            for name, share in {**SHARES, NOISY: 0.0}.items():
                if cases == 1 and share < 1:
                    continue
                below, found = 0, []
                for _ in range(BOUNDS):
                    effects = draw_effects(random, cases, runs + 1, share, name == NOISY)
                    tolerances = numpy.array(compute_tolerances(numpy.exp(effects[:, :-1])))
                    levels = effects[:, -1] - effects[:, :-1].mean(axis=1)
                    below += bool((levels < numpy.log1p(-tolerances)).any())
                    found.append(numpy.median(tolerances))
                shown = "any" if cases == 1 else name
                print(f"| {cases} | {runs} | {shown} | {below / BOUNDS:.1%} "
                      f"| {numpy.median(found):.1%} |", flush=True)  # fmt: skip


def judge(random, cases, runs, repeats, slowdown):
    """Return whether all cases of a simulated run are accepted, and whether any is rejected."""
    effects = draw_effects(random, cases, runs + 1, 0.5)[:, :, None]
    values = numpy.exp(effects + SPREAD * random.standard_normal((cases, runs + 1, repeats)))
    medians = numpy.median(values, axis=2)
    tolerances = compute_tolerances(medians[:, :-1])
    levels = numpy.exp(numpy.log(medians[:, :-1]).mean(axis=1)) * (1 - numpy.array(tolerances))
    slowed = levels[:, None] * (values[:, :-1] / medians[:, :-1, None]).reshape(cases, -1)
    new = (1 - slowdown) * values[:, -1]
    found = decide([(tuple(a), tuple(b)) for a, b in zip(slowed, new)], 0.0, 0.02)
    useful = [one.is_within_limit and allowed <= 0.1 for one, allowed in zip(found, tolerances)]
    return all(useful), any(one.is_beyond_limit for one in found)


def main():
    """Print Markdown tables of the level of the bounds, and of verdicts."""
    print(f"seed {SEED}, {BOUNDS} references, {TRIALS} runs for verdicts\n")
    random = numpy.random.default_rng(SEED)
    print_bounds(random)
    print("\n| cases | runs | repeats | slower by | accepted | rejected | undecided |")
    print("|---|---|---|---|---|---|---|")
    for cases, runs, repeats in ((4, 2, 7), (4, 3, 7), (4, 5, 7), (4, 5, 15)):
        for slowdown in (0.0, 0.05, 0.1):
            verdicts = [judge(random, cases, runs, repeats, slowdown) for _ in range(TRIALS)]
            accepted, rejected = numpy.mean(verdicts, axis=0)
            print(f"| {cases} | {runs} | {repeats} | {slowdown:.0%} | {accepted:.0%} "
                  f"| {rejected:.0%} | {1 - accepted - rejected:.0%} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
