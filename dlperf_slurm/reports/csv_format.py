"""Summary -> CSV, one line per case."""

import csv
import io

from dlperf_slurm.summarize import Summary

FILE_NAME = "report.csv"

FIELDS = (
    "case_id",
    "model",
    "framework",
    "topology",
    "precision",
    "batch_size_per_device",
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
    "problem",
    "footnotes",
)


def serialize(summary: Summary) -> str:
    """RFC 4180; a figure that does not exist is an empty field, its problem says why."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(FIELDS)
    for table in summary.tables:
        for column in table.columns:
            for topology, cell in zip(table.topologies, column.cells):
                interval, samples = cell.interval, cell.samples_per_s
                writer.writerow(
                    [
                        cell.case_id,
                        table.model,
                        column.label,
                        topology,
                        table.precision,
                        table.batch_size_per_device,
                        table.unit,
                        cell.median,
                        interval.low if interval else None,
                        interval.high if interval else None,
                        min(samples, default=None),
                        max(samples, default=None),
                        len(samples),
                        cell.planned_repeats,
                        column.baseline,
                        cell.speedup,
                        cell.efficiency,
                        cell.tflops_per_device,
                        cell.problem,
                        "; ".join(summary.footnotes[n - 1] for n in cell.footnotes),
                    ]
                )
    return buffer.getvalue()
