"""A table of texts -> the rows that can be audited, and what of the table cannot."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.checks.audit.printed import (
    EFFICIENCY,
    FULL_PRECISIONS,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    TIME_SPEEDUP,
    Cell,
    NotAudited,
    Row,
    Span,
    make_cell,
    read_count,
)
from dlperf_slurm.checks.audit.tables import (
    BATCH_SIZE,
    DEVICES,
    DEVICES_PER_NODE,
    LINE,
    NODES,
    PATH,
    TOPOLOGY,
    WORDS,
    Column,
    PipeTable,
    read_headers,
)
from dlperf_slurm.contract.topology import parse_topology

_LABELS = (BATCH_SIZE, DEVICES, DEVICES_PER_NODE, NODES, TOPOLOGY, *WORDS)

# quantities of a reduced precision even where the header does not say so
_OF_REDUCED = (PRECISION_SPEEDUP, TIME_SPEEDUP)

# our tables and DLPerf's have these beside a value: (39.1 to 41.0), {39.1 to 41.0}, [1], n=5 of 7
_BESIDE = re.compile(r"\([^)]*\)|\{[^}]*\}|\[[0-9]+\]|n=[0-9]+ of [0-9]+")
_TAG = re.compile(r"</?su[pb]>|<br ?/?>")
_SPREAD = re.compile(r"[({]([0-9.]+) to ([0-9.]+)[)}]")
# nothing else may touch the number: "1h02min" and "-1.5" are none
_VALUE = re.compile(
    r"(?<!\S)x?(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)(?P<percent> ?%)?x?(?=\s|$|w/)"
    r"\s*(?P<variant>(?:w/o|w/)\s?[a-z]+)?\s*(?:bsz=(?P<size>[0-9]+))?",
    re.IGNORECASE,
)
_NO_VALUE = re.compile(r"-|n/?a|oom|failed|missing|not run|not in the matrix|no reference|unknown|")


@dataclass(frozen=True)
class Value:
    """One of the values in a cell."""

    cell: Cell
    variant: str
    batch_size: str


def interpret_table(table: PipeTable, file: str) -> tuple[list[Row], list[NotAudited]]:
    """The rows of a table, one for each precision and variant that a line has."""
    columns = _drop_repeated(read_headers(table.header))
    name = f"table at line {table.line}"
    gaps = [NotAudited(file, table.line, name, text) for text in _list_problems(table, columns)]
    if not _is_auditable(columns):
        return [], gaps
    gaps += [
        NotAudited(
            file,
            table.line,
            f"{name}: column {column.header!r}",
            "no rule for its header, or another column has its quantity",
        )
        for column in columns
        if not column.quantity
    ]
    rows: list[Row] = []
    for line, texts in table.rows:
        gaps += _list_unread(file, line, columns, texts)
        rows += _make_rows(file, name, line, columns, texts)
    return _split_by_document(rows), gaps


def _split_by_document(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with its table in the document that it was taken from.

    Lines that follow each other in one document belong to one table.
    """
    tables: dict[tuple[str, int], str] = {}
    for row in sorted(rows, key=_read_place):
        path, line = _read_place(row)
        if row.where:
            tables[path, line] = (
                tables.get((path, line - 1)) or tables.get((path, line)) or row.where
            )
    return [
        dataclasses.replace(row, table=tables[_read_place(row)]) if row.where else row
        for row in rows
    ]


def _read_place(row: Row) -> tuple[str, int]:
    path, _, line = row.where.rpartition(":")
    return path, read_count(line)


def _drop_repeated(columns: Sequence[Column]) -> list[Column]:
    """The columns; one that would take the place of an earlier one has no quantity."""
    seen: set[tuple[str, str, str]] = set()
    kept: list[Column] = []
    for column in columns:
        key = (column.quantity, column.precision, column.batch_size)
        kept.append(dataclasses.replace(column, quantity="") if key in seen else column)
        seen.add(key)
    return kept


def _list_problems(table: PipeTable, columns: Sequence[Column]) -> Iterator[str]:
    if table.problem:
        yield table.problem
    elif not _is_auditable(columns):
        yield "no column of it follows from others, by their headers"


def _is_auditable(columns: Sequence[Column]) -> bool:
    """Whether columns have something derived, or latencies, which have an order."""
    derived = {SPEEDUP, EFFICIENCY, PRECISION_SPEEDUP, TIME_SPEEDUP}
    return any(c.quantity in derived or c.quantity.startswith("latency") for c in columns)


def _list_unread(
    file: str, line: int, columns: Sequence[Column], texts: Sequence[str]
) -> Iterator[NotAudited]:
    for column, text in zip(columns, texts):
        if not column.quantity or column.quantity in _LABELS or _read_values(text, column):
            continue
        if _NO_VALUE.fullmatch(_clean(text).strip().lower()) is None:
            yield NotAudited(file, line, f"{column.header}: {text!r}", "is no positive number")


def _make_rows(
    file: str, table: str, line: int, columns: Sequence[Column], texts: Sequence[str]
) -> list[Row]:
    labels = {c.quantity: t for c, t in zip(columns, texts) if c.quantity in _LABELS}
    first_figure = _find_first_figure(columns)
    words = _list_words(columns[:first_figure], texts)
    # numbers among the figures are figures that no rule is known for
    remarks = _list_words(columns[first_figure:], texts[first_figure:], has_numbers=False)
    groups: dict[tuple[str, str, str], dict[str, Value]] = {}
    for column, text in zip(columns, texts):
        if not column.quantity or column.quantity in _LABELS:
            continue
        precision = column.precision or _find_default_precision(column, columns, labels)
        for value in _read_values(text, column):
            key = (precision, column.batch_size, value.variant)
            groups.setdefault(key, {})[column.quantity] = value
    return [
        Row(
            file=file,
            line=line,
            where=_name_place(labels),
            table=table,
            model=labels.get("model", ""),
            framework=labels.get("framework", ""),
            software=" ".join(filter(None, (labels.get("framework"), labels.get("source")))),
            note=" ".join(filter(None, (variant, *words))),
            precision=precision,
            compiler=labels.get("compiler", ""),
            hardware=labels.get("hardware", ""),
            batch_size=labels.get(BATCH_SIZE) or size or _find_batch_size(values),
            devices=_count_devices(labels),
            cells={quantity: value.cell for quantity, value in values.items()},
            remark=" ".join(remarks),
            topology=labels.get(TOPOLOGY, ""),
        )
        for (precision, size, variant), values in groups.items()
    ]


def _name_place(labels: Mapping[str, str]) -> str:
    """The place of the row in its document; empty without a line number."""
    if labels.get(PATH) and labels.get(LINE, "").isdigit():
        return f"{labels[PATH]}:{labels[LINE]}"
    return ""


def _find_first_figure(columns: Sequence[Column]) -> int:
    places = (n for n, c in enumerate(columns) if c.quantity and c.quantity not in _LABELS)
    return next(places, len(columns))


def _list_words(
    columns: Sequence[Column], texts: Sequence[str], has_numbers: bool = True
) -> list[str]:
    """The words of columns without a quantity, such as a sequence length; numbers too if asked."""
    return [
        f"{column.header} {text}"
        for column, text in zip(columns, texts)
        if not column.quantity and (has_numbers or not _VALUE.fullmatch(_clean(text).strip()))
    ]


def _find_default_precision(
    column: Column, columns: Sequence[Column], labels: Mapping[str, str]
) -> str:
    """The precision for a column that names none.

    It is the row's, or else the table's reduced one for what is derived, or its only one.
    """
    if "precision" in labels:
        return labels["precision"]
    named = list(dict.fromkeys(c.precision for c in columns if c.precision))
    reduced = [name for name in named if name not in FULL_PRECISIONS]
    is_of_reduced = column.quantity in _OF_REDUCED or column.quantity.startswith("latency")
    chosen = reduced if is_of_reduced and reduced else named
    return chosen[0] if len(chosen) == 1 else ""


def _read_values(text: str, column: Column) -> list[Value]:
    """The values of a cell; those of a list without variants' names are numbered variants."""
    matches = list(_VALUE.finditer(_clean(text)))
    is_list = " / " in text
    values = []
    for position, match in enumerate(matches):
        cell = _make_cell(match, column.header)
        if cell is None or (len(matches) > 1 and not is_list and not _has_variants(matches)):
            return []
        variant = (match["variant"] or "").lower()
        if is_list and not variant:
            variant = f"value {position + 1}"
        cell = dataclasses.replace(cell, spread=_find_spread(text, column.header))
        values.append(Value(cell, variant, match["size"] or ""))
    return values


def _find_spread(text: str, header: str) -> Optional[Span]:
    """The interval or range that our reports print behind a median."""
    match = _SPREAD.search(text)
    low, high = (make_cell(match[side], header) for side in (1, 2)) if match else (None, None)
    return Span(low.rounded.low, high.rounded.high) if low and high else None


def _clean(text: str) -> str:
    return _BESIDE.sub("", _TAG.sub(" ", text))


def _has_variants(matches: Sequence["re.Match[str]"]) -> bool:
    return len({(match["variant"] or "").lower() for match in matches}) == len(matches)


def _make_cell(match: "re.Match[str]", header: str) -> Optional[Cell]:
    if not match["percent"]:
        return make_cell(match["number"], header)
    whole, _, digits = match["number"].partition(".")
    return make_cell(f"{whole.zfill(3)[:-2]}.{whole.zfill(3)[-2:]}{digits}", header)


def _find_batch_size(values: Mapping[str, Value]) -> str:
    """The batch size that stands beside a throughput, as in "4664.10 bsz=96"."""
    samples = values.get(SAMPLES_PER_S)
    return samples.batch_size if samples else ""


def _count_devices(labels: Mapping[str, str]) -> int:
    """The number of devices of the row; 0 where it does not say.

    It is that of nodes where only they are printed: a speedup needs their ratio alone.
    """
    if TOPOLOGY in labels:
        try:
            return parse_topology(labels[TOPOLOGY]).world_size
        except ValueError:
            return 0
    nodes = labels.get(NODES, "1")
    if DEVICES_PER_NODE in labels:
        return read_count(nodes) * read_count(labels[DEVICES_PER_NODE])
    return read_count(labels.get(DEVICES, nodes if NODES in labels else ""))
