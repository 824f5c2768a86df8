"""Report -> JSON: the tables with every figure in full precision, cases and devices."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.columns import list_records

FILE_NAME = "report.json"
SHOWS_PLOTS = False
SCHEMA_VERSION = 1


def serialize(report: Report) -> dict[str, bytes]:
    """Serialize the run as one JSON file: tables as printed, cases as in the CSV, and devices."""
    summary = report.summary
    document = {
        "manifest": asdict(summary.manifest),
        "ok_repeats": summary.ok_repeats,
        "planned_repeats": summary.planned_repeats,
        "skipped_repeats": summary.skipped_repeats,
        "banner": summary.banner,
        "footnotes": summary.footnotes,
        "tables": [_describe_table(table) for table in summary.tables],
        "cases": list_records(summary.results.case_columns),
        # of cases with several ranks, the slowest device first
        "devices": list_records(summary.results.frames.devices),
    }
    return {FILE_NAME: serialize_document(document).encode()}


def serialize_document(document: Mapping[str, Any]) -> str:
    """Serialize a command's output as JSON with sorted keys, and the version of its schema."""
    content = {"schema_version": SCHEMA_VERSION, **document}
    # with `indent`, json.dumps takes eight times as long
    text = msgspec.json.format(json.dumps(content, sort_keys=True, allow_nan=False), indent=1)
    return f"{text}\n"


def _describe_table(table: Table) -> dict[str, Any]:
    return {
        "kind": table.kind,
        "title": table.title,
        "subject": table.subject,
        "header": table.header,
        "rows": [[_describe_cell(cell) for cell in row] for row in table.rows],
        "caption": table.caption,
    }


def _describe_cell(cell: Cell) -> dict[str, Any]:
    """Return a cell as an object for JSON: text, and number and bounds in the frame's unit."""
    found: dict[str, Any] = {"text": cell.text}
    bounds = cell.interval or cell.range
    if cell.figure is not None and not isinstance(cell.value, tuple):
        found["value"] = cell.figure
        found |= {"low": bounds.low, "high": bounds.high} if bounds else {}
    if isinstance(cell.value, tuple):
        found["parts"] = [_describe_cell(part) for part in cell.value]
    if cell.notes:
        found["footnotes"] = cell.marks
    return found
