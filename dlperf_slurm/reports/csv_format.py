"""Summary -> CSV, one line per case."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, Optional

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.tables.accuracy import AccuracyRow
from dlperf_slurm.reports.tables.data import DataRow
from dlperf_slurm.reports.tables.latency import LatencyRow, LatencyTable
from dlperf_slurm.reports.tables.ranks import RankRow
from dlperf_slurm.reports.tables.resources import ResourceRow
from dlperf_slurm.reports.tables.throughput import ThroughputTable
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, Interval

FILE_NAME = "report.csv"

LATENCIES = ("avg", *(f"p{percent}" for percent in LATENCY_PERCENTILES))

_ENDS = ("", "_low", "_high")

FIELDS = (
    "case_id",
    "mode",
    "model",
    "framework",
    "compiler",
    "topology",
    "precision",
    "batch_size_per_device",
    "batch_sizes_measured",
    "unit",
    "samples_per_s",
    "interval_low",
    "interval_high",
    "smallest",
    "largest",
    "repeats_measured",
    "repeats_planned",
    "baseline",
    "speedup",
    "speedup_low",
    "speedup_high",
    "weak_scaling_efficiency",
    "weak_scaling_efficiency_low",
    "weak_scaling_efficiency_high",
    "tflops_per_device",
    "precision_speedup",
    "precision_speedup_low",
    "precision_speedup_high",
    *(f"latency_{name}_ms{end}" for name in LATENCIES for end in _ENDS),
    *(f"latency_{name}_speedup{end}" for name in LATENCIES for end in _ENDS),
    "data",
    "data_workers",
    "prefetch_batches",
    "computed_samples_per_s",
    "data_waiting_share",
    "relative_to_device_data",
    "relative_to_device_data_low",
    "relative_to_device_data_high",
    "top1_average",
    "top1_deviation",
    "top1_lowest",
    "top1_highest",
    "epochs",
    "seeds_at_target",
    "train_seconds",
    "train_speedup",
    "train_speedup_low",
    "train_speedup_high",
    "imbalance",
    "waiting_share",
    "slowest_host",
    "slowest_rank",
    "peak_memory_bytes",
    "utilization",
    "power_watts",
    "samples_per_joule",
    "clock_mhz",
    "least_clock_mhz",
    "problem",
    "footnotes",
)


def serialize(summary: Summary) -> str:
    """RFC 4180; a figure that does not exist is an empty field, its problem says why."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FIELDS, lineterminator="\r\n")
    writer.writeheader()
    lines = [
        *(line for table in summary.throughput_tables for line in _list_training(summary, table)),
        *(line for table in summary.latency_tables for line in _list_inference(summary, table)),
    ]
    more = [
        _find_precision_speedups(summary),
        _describe_rows(summary.data_tables, _describe_data),
        _describe_rows(summary.accuracy_tables, _describe_accuracy),
        _describe_rows(summary.rank_tables, _describe_ranks),
        _describe_rows(summary.resource_tables, _describe_resources),
    ]
    for line in lines:
        for fields in more:
            line.update(fields.get(line["case_id"], {}))
        writer.writerow(line)
    return buffer.getvalue()


def _find_precision_speedups(summary: Summary) -> dict[str, dict[str, Any]]:
    return {
        figure.case_id: _describe_figure(
            "precision_speedup", figure.speedup, figure.speedup_interval
        )
        for table in summary.precision_tables
        for column in table.columns
        for cell in column.cells
        for figure in cell
    }


def _describe_rows(
    tables: Iterable[Any], describe: Callable[[Any], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Of tables that have a row for each case."""
    return {row.case_id: describe(row) for table in tables for row in table.rows}


def _describe_ranks(row: RankRow) -> dict[str, Any]:
    return {
        "imbalance": row.imbalance,
        "waiting_share": row.waiting_share,
        "slowest_host": row.ranks[0].host,
        "slowest_rank": " ".join(map(str, row.ranks[0].ranks)),
    }


def _describe_data(row: DataRow) -> dict[str, Any]:
    return {
        "data": row.data,
        "data_workers": row.data_workers,
        "prefetch_batches": row.prefetch_batches,
        "computed_samples_per_s": row.computed_samples_per_s,
        "data_waiting_share": row.waiting_share,
        **_describe_figure("relative_to_device_data", row.relative, row.relative_interval),
    }


def _describe_accuracy(row: AccuracyRow) -> dict[str, Any]:
    return {
        "top1_average": row.average,
        "top1_deviation": row.deviation,
        "top1_lowest": min(row.top1, default=None),
        "top1_highest": max(row.top1, default=None),
        "epochs": row.epochs,
        "seeds_at_target": row.reached,
        "train_seconds": row.train_seconds,
        **_describe_figure("train_speedup", row.speedup, row.speedup_interval),
    }


def _describe_resources(row: ResourceRow) -> dict[str, Any]:
    return {
        "peak_memory_bytes": row.peak_memory_bytes,
        "utilization": row.utilization,
        "power_watts": row.power_watts,
        "samples_per_joule": row.samples_per_joule,
        "clock_mhz": row.clock_mhz,
        "least_clock_mhz": row.least_clock_mhz,
    }


def _list_training(summary: Summary, table: ThroughputTable) -> Iterator[dict[str, Any]]:
    for column in table.columns:
        for topology, cell in zip(table.topologies, column.cells):
            yield {
                **_describe_samples(summary, cell),
                "mode": TRAIN,
                "model": table.model,
                "framework": column.label,
                "compiler": column.compiler,
                "topology": topology,
                "precision": table.precision,
                "batch_size_per_device": table.batch_size,
                "unit": table.unit,
                "baseline": column.baseline,
                **_describe_figure("speedup", cell.speedup, cell.speedup_interval),
                **_describe_figure(
                    "weak_scaling_efficiency", cell.efficiency, cell.efficiency_interval
                ),
                "tflops_per_device": cell.tflops_per_device,
            }


def _list_inference(summary: Summary, table: LatencyTable) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        yield {
            **_describe_samples(summary, row),
            "mode": INFER,
            "model": table.model,
            "framework": table.label,
            "compiler": table.compiler,
            "topology": table.topology,
            "precision": row.precision,
            "batch_size_per_device": row.batch_size,
            "unit": table.unit,
            **_describe_figure("precision_speedup", row.speedup, row.speedup_interval),
            **_describe_latency(row),
        }


def _describe_latency(row: LatencyRow) -> dict[str, Optional[float]]:
    fields: dict[str, Optional[float]] = {}
    values = row.latency.values if row.latency else ()
    for name, value, interval in zip(LATENCIES, values, row.latency_intervals):
        milliseconds = interval.scale(1000) if interval else None
        fields.update(_describe_figure(f"latency_{name}_ms", 1000 * value, milliseconds))
    ratios = zip_longest(LATENCIES, row.latency_speedup or (), row.latency_speedup_intervals)
    for name, ratio, interval in ratios:
        fields.update(_describe_figure(f"latency_{name}_speedup", ratio, interval))
    return fields


def _describe_figure(
    name: str, value: Optional[float], interval: Optional[Interval]
) -> dict[str, Optional[float]]:
    return {
        name: value,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
    }


def _describe_samples(summary: Summary, cell: Any) -> dict[str, Any]:
    """What a cell of training and a row of inference have in common."""
    interval, samples = cell.interval, cell.samples_per_s
    return {
        "case_id": cell.case_id,
        "batch_sizes_measured": " ".join(map(str, cell.batch_sizes)),
        "samples_per_s": cell.median,
        "interval_low": interval.low if interval else None,
        "interval_high": interval.high if interval else None,
        "smallest": min(samples, default=None),
        "largest": max(samples, default=None),
        "repeats_measured": len(samples),
        "repeats_planned": cell.planned_repeats,
        "problem": cell.problem,
        "footnotes": "; ".join(summary.footnotes[n - 1] for n in cell.footnotes),
    }
