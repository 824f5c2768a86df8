"""Medians of several runs of one machine -> how much slower a further run of it may be by chance.

The bound is a one-sided prediction bound for one further run (a beta-expectation tolerance bound:
Hahn & Meeker, Statistical Intervals, 4.8), of the logarithms of the runs' medians. They include
what differs from run to run: nodes, time of day, noise of the repeats.
"""

import math
from collections.abc import Sequence
from typing import Any

from dlperf_slurm.stats.median import CONFIDENCE

# points of the numerical integral of Student's distribution
_POINTS = 20_001


def compute_tolerances(medians: Sequence[Sequence[float]]) -> list[float]:
    """Return by which share a further run may be slower than the mean by chance: [cases].

    `medians` [cases, runs] has NaN where a run did not measure a case; each case has at least two
    runs. The bounds of all cases hold together with 95 % confidence. The spread of a case is its
    own or that pooled over cases, whichever is larger. Cases that vary together, as all do on a
    slow node, count as fewer, for the degrees of freedom and for the correction (Bonferroni).
    """
    import numpy

    logs = numpy.log(numpy.asarray(medians, dtype=float))
    runs = (~numpy.isnan(logs)).sum(axis=1)
    deviations = logs - numpy.nanmean(logs, axis=1, keepdims=True)
    squares = numpy.nansum(deviations**2, axis=1)
    # share of the variance that all cases of a run have in common, by the sums over its cases
    common = numpy.nansum(numpy.nansum(deviations, axis=0) ** 2) / max(squares.sum(), 1e-300)
    correlation = min(max(common - 1, 0.0) / max(len(runs) - 1, 1), 1.0)
    freedom = (runs - 1).sum() / (1 + (len(runs) - 1) * correlation)
    # effective number of tests (Nyholt, American Journal of Human Genetics 74, 2004)
    tests = 1 + (len(runs) - 1) * (1 - correlation**2)
    quantile = find_t_quantile(1 - (1 - CONFIDENCE) / tests, float(freedom))
    spread = numpy.sqrt(numpy.maximum(squares.sum() / (runs - 1).sum(), squares / (runs - 1)))
    found: list[float] = (-numpy.expm1(-quantile * spread * numpy.sqrt(1 + 1 / runs))).tolist()
    return found


def find_t_quantile(probability: float, freedom: float) -> float:
    """Return the quantile above the median of Student's t distribution; `freedom` is at least 1.

    With t = sqrt(freedom) tan(angle), the density is proportional to cos(angle)^(freedom - 1).
    """
    import numpy

    angles: Any = numpy.linspace(0, math.pi / 2, _POINTS)
    density = numpy.cos(angles) ** (freedom - 1)
    areas = numpy.concatenate([[0.0], numpy.cumsum(density[1:] + density[:-1])])
    angle = numpy.interp((2 * probability - 1) * areas[-1], areas, angles)
    return float(math.sqrt(freedom) * math.tan(angle))
