"""A frame of cases -> the one that others read: a typed column for each axis and each number.

Its columns and their types do not depend on what was measured; what is not known is NA.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.results.cases import list_ratio_notes
from dlperf_slurm.results.frame import CaseRow, list_axes, list_rows
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, Interval

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT = "string"
COUNT = "Int64"
NUMBER = "Float64"
FLAG = "boolean"

LATENCIES = ("avg", *(f"p{percent}" for percent in LATENCY_PERCENTILES))

_ENDS = ("", "_low", "_high")
_DTYPES: dict[object, str] = {str: TEXT, int: COUNT, bool: FLAG}


def _name_bounds(*names: str) -> dict[str, str]:
    """A number's column, and those of the bounds of its interval."""
    return {f"{name}{end}": NUMBER for name in names for end in _ENDS}


CASE_COLUMNS: dict[str, str] = {
    "case_id": TEXT,
    "model": TEXT,
    **{f.name: _DTYPES.get(f.type, TEXT) for f in fields(Axes)},
    # a dynamic one is none
    "loss_scale": COUNT,
    "batch_sizes_measured": TEXT,
    "nodes": COUNT,
    "devices_per_node": COUNT,
    "world_size": COUNT,
    "model_parameters": TEXT,
    "parameter_count": COUNT,
    "warmup_steps": COUNT,
    "measured_steps": COUNT,
    "hardware": TEXT,
    "unit": TEXT,
    "samples_per_s": NUMBER,
    "interval_low": NUMBER,
    "interval_high": NUMBER,
    "smallest": NUMBER,
    "largest": NUMBER,
    "repeats_measured": COUNT,
    "repeats_planned": COUNT,
    "baseline": TEXT,
    **_name_bounds("speedup", "weak_scaling_efficiency"),
    "tflops_per_device": NUMBER,
    "reference_precision": TEXT,
    **_name_bounds("precision_speedup"),
    **_name_bounds(*(f"latency_{name}_ms" for name in LATENCIES)),
    **_name_bounds(*(f"latency_{name}_speedup" for name in LATENCIES)),
    "computed_samples_per_s": NUMBER,
    "data_waiting_share": NUMBER,
    **_name_bounds("relative_to_device_data"),
    "top1_average": NUMBER,
    "top1_deviation": NUMBER,
    "top1_lowest": NUMBER,
    "top1_highest": NUMBER,
    "epochs": NUMBER,
    "seeds_at_target": COUNT,
    "train_seconds": NUMBER,
    **_name_bounds("train_speedup"),
    "imbalance": NUMBER,
    "waiting_share": NUMBER,
    "slowest_host": TEXT,
    # one device may have had several ranks
    "slowest_rank": TEXT,
    "peak_memory_bytes": COUNT,
    "utilization": NUMBER,
    "power_watts": NUMBER,
    "samples_per_joule": NUMBER,
    "clock_mhz": NUMBER,
    "least_clock_mhz": NUMBER,
    "problem": TEXT,
    "reason": TEXT,
    "notes": TEXT,
}


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
