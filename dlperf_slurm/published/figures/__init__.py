"""Published figures as data: one CSV per document -> figures with their hardware and source."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.stats.median import LATENCY_NAMES

# nobody publishes the slowest batch
LATENCIES = LATENCY_NAMES[:-1]


@dataclass(frozen=True)
class PublishedFigure:
    """One throughput that somebody published, with what they say follows from it.

    `framework`, `model`, `precision` and `compiler` are in our words where we have one; `software`
    is in the publisher's. A batch size of 0 was not printed, nor was a repeat of 0. Latencies are
    in milliseconds, in the order of LATENCIES; empty where none were published. `table` tells the
    tables of a document apart, `where` is its line in the publisher's repository.
    """

    source: str
    framework: str
    model: str
    precision: str
    compiler: str
    nodes: int
    devices_per_node: int
    batch_size_per_device: int
    repeat: int
    samples_per_s: float
    published_speedup: Optional[float]
    published_precision_speedup: Optional[float]
    latency_ms: tuple[float, ...]
    latency_speedup: tuple[float, ...]
    data_location: str
    variable_update: str
    hardware: str
    software: str
    note: str
    table: str
    where: str

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices_per_node


FOLDER = Path(__file__).parent


def list_sources() -> list[str]:
    """The names that `read_source` knows, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def find_source_file(name: str) -> Path:
    """The CSV of a source; InputError lists the known names."""
    known = list_sources()
    if name not in known:
        raise InputError(f"{name!r} is no published source; known: {', '.join(known)}")
    return FOLDER / f"{name}.csv"


def read_source(name: str) -> tuple[PublishedFigure, ...]:
    """All figures of a document, in its order; InputError lists the known names."""
    with find_source_file(name).open(encoding="utf-8", newline="") as file:
        return tuple(_make_figure(row) for row in csv.DictReader(file))


def _make_figure(row: Mapping[str, str]) -> PublishedFigure:
    """What a document does not have is "", 0 or None."""
    values: dict[str, Any] = {
        field.name: row.get(field.name, "") for field in fields(PublishedFigure)
    }
    for name in ("nodes", "devices_per_node", "batch_size_per_device", "repeat"):
        values[name] = int(values[name] or 0)
    for name in ("samples_per_s", "published_speedup", "published_precision_speedup"):
        values[name] = _read_number(row, name)
    values["latency_ms"] = _read_latencies(row, "ms")
    values["latency_speedup"] = _read_latencies(row, "speedup")
    return PublishedFigure(**values)


def _read_number(row: Mapping[str, str], key: str) -> Optional[float]:
    return float(row[key]) if row.get(key) else None


def _read_latencies(row: Mapping[str, str], unit: str) -> tuple[float, ...]:
    values = (_read_number(row, f"latency_{name}_{unit}") for name in LATENCIES)
    return tuple(value for value in values if value is not None)
