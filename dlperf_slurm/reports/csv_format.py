"""Summary -> CSV, one line per case."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from dlperf_slurm.contract import TRAIN, VAL
from dlperf_slurm.statistics import LATENCY_PERCENTILES
from dlperf_slurm.summarize import Summary
from dlperf_slurm.tables.latency import LatencyTable
from dlperf_slurm.tables.throughput import ThroughputTable

FILE_NAME = "report.csv"

LATENCIES = ("avg", *(f"p{percent}" for percent in LATENCY_PERCENTILES))

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
    "weak_scaling_efficiency",
    "tflops_per_device",
    "precision_speedup",
    *(f"latency_{name}_ms" for name in LATENCIES),
    *(f"latency_{name}_speedup" for name in LATENCIES),
    "problem",
    "footnotes",
)


def serialize(summary: Summary) -> str:
    """RFC 4180; a figure that does not exist is an empty field, its problem says why."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FIELDS, lineterminator="\r\n")
    writer.writeheader()
    precision_speedups = {
        figure.case_id: figure.speedup
        for table in summary.precision_tables
        for column in table.columns
        for cell in column.cells
        for figure in cell
    }
    for throughput in summary.throughput_tables:
        for line in _list_training(summary, throughput):
            writer.writerow({**line, "precision_speedup": precision_speedups.get(line["case_id"])})
    for latency in summary.latency_tables:
        writer.writerows(_list_inference(summary, latency))
    return buffer.getvalue()


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
                "speedup": cell.speedup,
                "weak_scaling_efficiency": cell.efficiency,
                "tflops_per_device": cell.tflops_per_device,
            }


def _list_inference(summary: Summary, table: LatencyTable) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        milliseconds = [1000 * value for value in row.latency.values] if row.latency else []
        yield {
            **_describe_samples(summary, row),
            "mode": VAL,
            "model": table.model,
            "framework": table.label,
            "compiler": table.compiler,
            "topology": table.topology,
            "precision": row.precision,
            "batch_size_per_device": row.batch_size,
            "unit": table.unit,
            "precision_speedup": row.speedup,
            **{f"latency_{name}_ms": value for name, value in zip(LATENCIES, milliseconds)},
            **{
                f"latency_{name}_speedup": value
                for name, value in zip(LATENCIES, row.latency_speedup or ())
            },
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
