"""Text -> its pipe tables, and what the columns of a table hold by their headers."""

import re
from collections.abc import Iterator, Sequence
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
# the columns for the document that a figure stands in, and its line there
PATH = "path"
LINE = "line"
WORDS = ("framework", "source", "precision", "compiler", "model", "hardware", PATH, LINE)

# quantities by their headers; the first pattern that is found decides
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

_SEPARATOR = re.compile(r"\s*\|?(\s*:?-{3,}:?\s*\|)*\s*:?-{3,}:?\s*\|?\s*")
_BAR = re.compile(r"(?<!\\)\|")
# an escape of any punctuation of ASCII, as CommonMark has it
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class PipeTable:
    """A table as it stands in a file: texts, each row with the line on which it begins.

    `problem` says why there are no more rows than these.
    """

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    problem: str = ""


def find_tables(text: str) -> Iterator[PipeTable]:
    """The tables of a text, which are found by their line of dashes."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if "|" in line and _SEPARATOR.fullmatch(line):
            yield _read_table(lines, index, len(split_cells(line)))


def split_cells(line: str) -> list[str]:
    """The texts between the bars; those at the ends may be missing."""
    cells = [_ESCAPED.sub(r"\1", cell.strip()) for cell in _BAR.split(line.strip())]
    first = 1 if not cells[0] else 0
    last = len(cells) - 1 if not cells[-1] else len(cells)
    return cells[first:last]


def _read_table(lines: Sequence[str], separator: int, width: int) -> PipeTable:
    header: list[str] = []
    start = separator
    while len(header) < width and start > 0 and "|" in lines[start - 1]:
        start -= 1
        header = split_cells(lines[start]) + header
    if len(header) != width:
        problem = f"its header has {len(header)} cells, its line of dashes {width}"
        return PipeTable(separator + 1, tuple(header), (), problem)
    rows: list[tuple[int, tuple[str, ...]]] = []
    cells: list[str] = []
    begin = separator + 2
    for number, line in enumerate(lines[separator + 1 :], start=separator + 2):
        if "|" not in line:
            break
        begin = begin if cells else number
        cells += split_cells(line)
        if len(cells) > width:
            problem = f"line {begin}: {len(cells)} cells under a header of {width}"
            return PipeTable(start + 1, tuple(header), tuple(rows), problem)
        if len(cells) == width:
            rows.append((begin, tuple(cells)))
            cells = []
    problem = f"line {begin}: {len(cells)} cells under a header of {width}" if cells else ""
    return PipeTable(start + 1, tuple(header), tuple(rows), problem)


@dataclass(frozen=True)
class Column:
    """A column: its quantity ("" for an unknown header), precision and batch size if said."""

    header: str
    quantity: str
    precision: str = ""
    batch_size: str = ""


def read_headers(headers: Sequence[str]) -> list[Column]:
    """The columns of a table, one for each header.

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
    """The header on one line, without marks for bold."""
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
    """The precision that a header names; the reduced one of two, as a speedup is that one's."""
    lower = header.lower()
    reduced, full = _REDUCED.search(lower), _FULL.search(lower)
    if reduced is not None:
        return reduced[0] if reduced[0].startswith("amp-") else "amp-fp16"
    return full[0] if full is not None else ""


def _find_size(header: str) -> str:
    match = re.search(r"\b(?:bsz=|bs )([0-9]+)", header)
    return match[1] if match else ""
