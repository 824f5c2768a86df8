"""The headers of a table -> what its columns hold."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlperf_slurm.checks.audit.printed import (
    EFFICIENCY,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    TIME_SPEEDUP,
    TRAINING_TIME,
)

DEVICES = "devices"
DEVICES_PER_NODE = "devices_per_node"
NODES = "nodes"
TOPOLOGY = "topology"
BATCH_SIZE = "batch_size"
# the document that a figure stands in, and the line
PATH = "path"
LINE = "line"
WORDS = ("framework", "source", "precision", "compiler", "model", "hardware", PATH, LINE)

# in this order: the first that is found decides
_PATTERNS = (
    (SPEEDUP, r"(weak|strong) scaling(?! efficiency)"),
    (EFFICIENCY, r"efficiency"),
    (TIME_SPEEDUP, r"time to train.*speedup"),
    (TRAINING_TIME, r"time to train"),
    ("latency_{}_speedup", r"(avg|[0-9]+ ?%) latency.*speedup"),
    ("latency_{}_speedup", r"^speedup_latency_(avg|p[0-9]+)$"),
    ("latency_{}", r"^latency_(avg|p[0-9]+)_ms$"),
    ("latency_{}", r"(avg|[0-9]+ ?%) (?:latency.*\(ms\)|ms$)"),
    ("latency_{}", r"latency-(average|[0-9]+%) ?\(ms\)"),
    ("latency_{}", r"^p([0-9]+) latency \(ms\)"),
    (PRECISION_SPEEDUP, r"throughput.*speedup|speedup .* / |precision speedup"),
    (SPEEDUP, r"speedup|加速比"),
    (SAMPLES_PER_S, r"throughput|\b(img|images|samples|sentences|sequences|tokens)/s|吞吐"),
    (DEVICES_PER_NODE, r"(gpu|device).*(/ ?node|per.node)"),
    (NODES, r"^(#|num.)?nodes?( num|_num)?$|^节点数$"),
    (BATCH_SIZE, r"^(batch.?size|bsz)"),
    (DEVICES, r"^(#|num.)? ?(gpu|device)s?( num|_num|数)?$"),
    (TOPOLOGY, r"^topology$"),
    *((word, f"^{word}$") for word in WORDS),
)

_REDUCED = re.compile(r"amp-(?:fp16|bf16)|mixed precision|\bamp\b|\bfp16\b")
_FULL = re.compile(r"\b(?:fp32|tf32)\b")


@dataclass(frozen=True)
class Column:
    """A column: the quantity, "" when its header is not known; precision and batch size if said."""

    header: str
    quantity: str
    precision: str = ""
    batch_size: str = ""


def read_headers(headers: Sequence[str]) -> list[Column]:
    """One column for each header.

    A speedup in a table of latencies is one over another precision; a bare "speedup" there belongs
    to the column before it, as in our reports.
    """
    columns: list[Column] = []
    quantities = [_find_quantity(_clean(header)) for header in headers]
    has_latencies = any(quantity.startswith("latency") for quantity in quantities)
    for header in map(_clean, headers):
        quantity = _find_quantity(header)
        # "weak scaling" is the same quantity, and never one over a precision
        if has_latencies and quantity == SPEEDUP and SPEEDUP in header.lower() and columns:
            before = columns[-1].quantity
            is_of_latency = header.lower() == SPEEDUP and before != SAMPLES_PER_S
            quantity = f"{before}_speedup" if is_of_latency else PRECISION_SPEEDUP
        columns.append(Column(header, quantity, _find_precision(header), _find_size(header)))
    return columns


def _clean(header: str) -> str:
    """Not bold, and on one line."""
    return header.replace("<br>", " ").replace("*", "").strip()


def _find_quantity(header: str) -> str:
    lower = header.lower()
    for quantity, pattern in _PATTERNS:
        match = re.search(pattern, lower)
        if match is not None:
            return quantity.format(_name_latency(match[1])) if "{}" in quantity else quantity
    return ""


def _name_latency(text: str) -> str:
    percent = re.search(r"[0-9]+", text)
    return f"p{percent[0]}" if percent else "avg"


def _find_precision(header: str) -> str:
    """The reduced precision where both are named: a speedup is its."""
    lower = header.lower()
    reduced, full = _REDUCED.search(lower), _FULL.search(lower)
    if reduced is not None:
        return reduced[0] if reduced[0].startswith("amp-") else "amp-fp16"
    return full[0] if full is not None else ""


def _find_size(header: str) -> str:
    match = re.search(r"\b(?:bsz=|bs )([0-9]+)", header)
    return match[1] if match else ""
