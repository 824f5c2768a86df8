"""Report -> JSON, with every figure in full precision."""

import dataclasses
import json
from typing import Any

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.case_columns import make_case_columns
from dlperf_slurm.results.columns import list_records

FILE_NAME = "report.json"
SHOWS_PLOTS = False
SCHEMA_VERSION = 2


def serialize(report: Report) -> dict[str, bytes]:
    """The tables as they are, topologies as text, and the cases as in the CSV."""
    summary = report.summary
    data = _simplify(dataclasses.replace(summary, frame=None))
    del data["frame"]
    data["cases"] = list_records(make_case_columns(summary.frame))
    data["schema_version"] = SCHEMA_VERSION
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
    return {FILE_NAME: f"{text}\n".encode()}


def _simplify(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Topology):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_simplify(item) for item in value]
    return {f.name: _simplify(getattr(value, f.name)) for f in dataclasses.fields(value)}
