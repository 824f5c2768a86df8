"""Summary -> JSON, with every figure in full precision."""

import dataclasses
import json
from typing import Any

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.summarize import Summary

FILE_NAME = "report.json"
SCHEMA_VERSION = 2


def serialize(summary: Summary) -> str:
    """The summary as it is, schema-versioned; topologies as text."""
    data = {"schema_version": SCHEMA_VERSION, **_simplify(summary)}
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _simplify(value: Any) -> Any:
    if isinstance(value, Topology):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {f.name: _simplify(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [_simplify(item) for item in value] if isinstance(value, (list, tuple)) else value
