"""Report -> JSON, with every figure in full precision."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Optional, Union

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.tables import ShownCase, accuracy, data, generation
from dlperf_slurm.reports.tables.against import AgainstRow
from dlperf_slurm.reports.tables.ranks import RankRow
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.usage import Usage
from dlperf_slurm.stats.median import Interval

FILE_NAME = "report.json"
SHOWS_PLOTS = False
SCHEMA_VERSION = 1

# names in the file of what a row of a table has, and where that is in the row
Names = Mapping[str, Union[str, Callable[[Any], Any]]]


def _find(*names: str, place: str = "") -> Names:
    """What the file calls as the row does, or a part of it."""
    return {name: f"{place}{name}" for name in names}


def _find_ratio(name: str, place: str) -> Names:
    return {name: f"{place}.value", f"{name}_interval": f"{place}.interval"}


def _describe_latency(row: ShownCase) -> Optional[dict[str, Any]]:
    """The mean and the percentiles; None of those that take more batches."""
    if row.latency is None:
        return None
    mean, *percentiles = row.latency.values
    return {"mean": mean, "percentiles": percentiles}


def _list_latency_speedups(row: ShownCase) -> Optional[list[Optional[float]]]:
    is_compared = row.precision_speedup.value is not None
    return [ratio.value for ratio in row.latency_speedups] if is_compared else None


def _list_latency_intervals(row: ShownCase) -> list[Optional[Interval]]:
    """The interval of each speedup; no entries for a case that is its own reference."""
    speedup, ratios = row.precision_speedup, row.latency_speedups
    is_compared = speedup.value is not None and not speedup.is_of_itself
    return [ratio.interval for ratio in ratios] if is_compared else []


_CASE: Names = _find("case_id", "problem", "footnotes")
_MEASURED: Names = {
    **_CASE,
    **_find("batch_sizes", "interval"),
    "samples_per_s": "samples",
    "planned_repeats": "repeats_planned",
    "median": "samples_per_s",
}
_NAMES: Mapping[str, Names] = {
    "throughput_tables": {
        **_MEASURED,
        **_find_ratio("speedup", "speedup"),
        **_find_ratio("efficiency", "weak_scaling_efficiency"),
        **_find("tflops_per_device"),
    },
    "precision_tables": {
        **_CASE,
        "median": "samples_per_s",
        **_find_ratio("speedup", "precision_speedup"),
        "weak_scaling": "speedup.value",
    },
    "latency_tables": {
        **_MEASURED,
        **_find("precision"),
        "latency": _describe_latency,
        "latency_intervals": lambda row: row.latency.intervals if row.latency else [],
        "batch_size": "batch_size_text",
        "repeat_latencies": "latencies",
        **_find_ratio("speedup", "precision_speedup"),
        "latency_speedup": _list_latency_speedups,
        "latency_speedup_intervals": _list_latency_intervals,
    },
    "generation_tables": {
        **_CASE,
        **_find("precision"),
        "label": generation.find_label,
        "batch_size": "batch_size_text",
    },
    "data_tables": {
        **_CASE,
        **_find("data", "data_workers", "prefetch_batches", "precision", "topology"),
        **_find("samples_per_s", "computed_samples_per_s"),
        "label": data.find_label,
        "batch_size": "batch_size_text",
        "waiting_share": "data_waiting_share",
        **_find_ratio("relative", "relative_to_device_data"),
    },
    "accuracy_tables": {
        **_CASE,
        **_find("precision", "topology"),
        "label": accuracy.find_label,
        "batch_size": "batch_size_text",
        "planned_seeds": "repeats_planned",
        **_find("top1", "average", "deviation", "epochs", "reached", place="accuracy."),
        **_find("train_seconds"),
        **_find_ratio("speedup", "train_speedup"),
    },
    "against_tables": {
        **_find("case_id", "problem", "unit", "hardware", place="case."),
        "median": "case.samples_per_s",
        **_find("figure", "differences", "ratio"),
    },
    "rank_tables": {
        **_find("case_id", "footnotes"),
        **_find("imbalance", "waiting_share", "ranks", place="spread."),
        "repeats": lambda row: len(row.spread.repeats),
    },
    "resource_tables": {
        **_find("case_id", "footnotes"),
        **_find(*(field.name for field in dataclasses.fields(Usage)), place="usage."),
    },
}


def serialize(report: Report) -> dict[str, bytes]:
    """The tables as they are, topologies as text, and the cases as in the CSV."""
    summary = report.summary
    parts = [field.name for field in dataclasses.fields(summary) if field.name != "frame"]
    document = {
        **{name: _simplify(getattr(summary, name), _NAMES.get(name, {})) for name in parts},
        "cases": list_records(summary.case_columns),
        "schema_version": SCHEMA_VERSION,
    }
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    return {FILE_NAME: f"{text}\n".encode()}


def _simplify(value: Any, names: Names) -> Any:
    """Values that JSON knows; rows of tables by these names."""
    if value is None or isinstance(value, (str, int, float, dict)):
        return value
    if isinstance(value, Topology):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_simplify(item, names) for item in value]
    if isinstance(value, (ShownCase, AgainstRow, RankRow)):
        found = {name: _read(value, place) for name, place in names.items()}
    else:
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: _simplify(part, names) for name, part in found.items()}


def _read(row: Any, place: Union[str, Callable[[Any], Any]]) -> Any:
    return attrgetter(place)(row) if isinstance(place, str) else place(row)
