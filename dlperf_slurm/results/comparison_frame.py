"""Comparisons of two runs -> a frame of them, with the columns of declared_columns.COMPARISON."""

from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.results.cases import find_unit
from dlperf_slurm.results.columns import make_typed_frame
from dlperf_slurm.results.compare import MEAN_LATENCY, Comparison, RunComparison
from dlperf_slurm.results.declared_columns import COMPARISON, list_kinds
from dlperf_slurm.stats.median import compute_median

if TYPE_CHECKING:
    from pandas import DataFrame


def make_comparison_frame(compared: RunComparison) -> "DataFrame":
    """A row for each quantity of each case of either run."""
    return make_typed_frame([*map(_describe, compared.comparisons)], list_kinds(COMPARISON))


def _describe(comparison: Comparison) -> dict[str, Any]:
    is_latency = comparison.quantity == MEAN_LATENCY
    interval = comparison.interval
    return {
        "case_id": comparison.case_id,
        "model": comparison.model,
        "quantity": comparison.quantity,
        "unit": "ms" if is_latency else find_unit(comparison.model),
        "median_a": _find_median(comparison.samples_a, is_latency),
        "median_b": _find_median(comparison.samples_b, is_latency),
        "repeats_a": len(comparison.samples_a),
        "repeats_b": len(comparison.samples_b),
        "speed_ratio": comparison.speed_ratio,
        "speed_ratio_low": interval and interval.low,
        "speed_ratio_high": interval and interval.high,
        "p_value": comparison.p_value,
        "verdict": comparison.verdict,
        "reason": comparison.reason,
        "changes": "; ".join(comparison.changes),
    }


def _find_median(samples: tuple[float, ...], is_latency: bool) -> Optional[float]:
    if not samples:
        return None
    return compute_median(samples) * (1000 if is_latency else 1)
