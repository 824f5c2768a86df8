"""A frame of cases -> the one that others read: a typed column for each axis and each number.

Its columns and their types do not depend on what was measured; what is not known is NA.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.results.cases import list_ratio_notes
from dlperf_slurm.results.declared_columns import CASES, LATENCIES, list_kinds
from dlperf_slurm.results.frame import CaseRow, list_axes, list_rows
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame

CASE_COLUMNS = list_kinds(CASES)

_ENDS = ("", "_low", "_high")


def make_case_columns(frame: "DataFrame") -> "DataFrame":
    """The frame of `results.frame`, with the columns of CASE_COLUMNS in their order."""
    return make_typed_frame([_describe_case(row) for row in list_rows(frame)], CASE_COLUMNS)


def make_typed_frame(rows: "list[dict[str, Any]]", columns: Mapping[str, str]) -> "DataFrame":
    """Rows by the names of their columns, of these types; what a row does not have is NA."""
    from pandas import DataFrame

    return DataFrame(rows, columns=list(columns), dtype=object).astype(dict(columns))


def list_records(frame: "DataFrame") -> list[dict[str, Any]]:
    """The rows of a typed frame, with None for NA."""
    values = frame.astype(object)
    records: list[dict[str, Any]] = values.where(frame.notna(), None).to_dict("records")
    return records


def _describe_case(row: CaseRow) -> dict[str, Any]:
    same = {name: getattr(row, name) for name in CASE_COLUMNS if hasattr(row, name)}
    return {
        **same,
        **_describe_axes(row),
        **_describe_record(row),
        "batch_sizes_measured": " ".join(map(str, row.batch_sizes)),
        "interval_low": row.interval and row.interval.low,
        "interval_high": row.interval and row.interval.high,
        "smallest": min(row.samples, default=None),
        "largest": max(row.samples, default=None),
        "repeats_measured": len(row.samples),
        **{name: value for ratio in _RATIOS for name, value in _describe_ratio(row, ratio).items()},
        **_describe_latency(row),
        **_describe_accuracy(row),
        **_describe_ranks(row),
        **vars(row.usage),
        "notes": "; ".join(_list_notes(row)),
    }


_RATIOS = (
    "speedup",
    "weak_scaling_efficiency",
    "precision_speedup",
    "relative_to_device_data",
    "train_speedup",
)


def _describe_axes(row: CaseRow) -> dict[str, Any]:
    return {
        **list_axes(row),
        # "max" and ladders are no numbers
        "batch_size_per_device": row.batch_size_text,
        "loss_scale": row.constant_loss_scale,
    }


def _describe_record(row: CaseRow) -> dict[str, Any]:
    record = row.first_record
    if record is None:
        return {}
    return {
        "model_parameters": json.dumps(record.case.model_parameters, sort_keys=True),
        "parameter_count": record.parameter_count,
        "warmup_steps": record.case.warmup_steps,
        "measured_steps": record.case.measured_steps,
    }


def _describe_ratio(row: CaseRow, name: str) -> dict[str, Optional[float]]:
    ratio: Ratio = getattr(row, name)
    return _describe_bounds(name, ratio.value, ratio.interval)


def _describe_bounds(
    name: str, value: Optional[float], interval: Optional[Interval]
) -> dict[str, Optional[float]]:
    bounds = (interval.low, interval.high) if interval else (None, None)
    return dict(zip((f"{name}{end}" for end in _ENDS), (value, *bounds)))


def _describe_latency(row: CaseRow) -> dict[str, Optional[float]]:
    described: dict[str, Optional[float]] = {}
    values = row.latency.values if row.latency else ()
    for name, seconds, interval in zip(LATENCIES, values, row.latency_intervals):
        bounds = interval and interval.scale(1000)
        described.update(_describe_bounds(f"latency_{name}_ms", 1000 * seconds, bounds))
    for name, ratio in zip(LATENCIES, row.latency_speedups):
        described.update(_describe_bounds(f"latency_{name}_speedup", ratio.value, ratio.interval))
    return described


def _describe_accuracy(row: CaseRow) -> dict[str, Optional[float]]:
    accuracy = row.accuracy
    return {
        "top1_average": accuracy.average,
        "top1_deviation": accuracy.deviation,
        "top1_lowest": min(accuracy.top1, default=None),
        "top1_highest": max(accuracy.top1, default=None),
        "epochs": accuracy.epochs,
        "seeds_at_target": accuracy.reached,
        "train_seconds": accuracy.train_seconds,
    }


def _describe_ranks(row: CaseRow) -> dict[str, Any]:
    if row.rank_spread is None:
        return {}
    slowest = row.rank_spread.ranks[0]
    return {
        "imbalance": row.rank_spread.imbalance,
        "waiting_share": row.rank_spread.waiting_share,
        "slowest_host": slowest.host,
        "slowest_rank": " ".join(map(str, slowest.ranks)),
    }


def _list_notes(row: CaseRow) -> list[str]:
    """What tables have as footnotes; why a case was left out has a column of its own."""
    of_ratios = (note for name in _RATIOS for note in list_ratio_notes(getattr(row, name)))
    notes = [*map(str, row.table_notes), *of_ratios, *row.data_notes, *row.usage_notes]
    return [note for note in dict.fromkeys(notes) if note != row.reason]
