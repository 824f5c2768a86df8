"""A table of texts -> the rows that can be audited, and the parts that cannot."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.published.audit.headers import (
    BARE_PRECISION,
    BATCH_SIZE,
    CONCURRENCY,
    DEVICES,
    DEVICES_PER_NODE,
    LINE,
    NODES,
    PATH,
    TOPOLOGY,
    WORDS,
    PrintedColumn,
    clean_header,
    drop_precisions,
    find_precision,
    list_precisions,
    read_headers,
)
from dlperf_slurm.published.audit.rounding import (
    EFFICIENCY,
    FULL_PRECISIONS,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    TIME_SPEEDUP,
    NotAudited,
    PrintedRow,
    read_count,
)
from dlperf_slurm.published.audit.tables import PipeTable
from dlperf_slurm.published.audit.values import (
    CellValue,
    has_no_value,
    is_number,
    is_rate,
    read_values,
)

# headers of settings, whose cells are numbers
_SETTING = re.compile(r"(image|img|input|crop)[ _]?size|resolution|seq(uence)?[ _.]?len|context")
_LABELS = (BATCH_SIZE, CONCURRENCY, DEVICES, DEVICES_PER_NODE, NODES, TOPOLOGY, *WORDS)

# quantities of a reduced precision, even if the header does not name it
_OF_REDUCED = (PRECISION_SPEEDUP, TIME_SPEEDUP)
_CHECKED = (SPEEDUP, EFFICIENCY, *_OF_REDUCED)


def interpret_table(table: PipeTable, file: str) -> tuple[list[PrintedRow], list[NotAudited]]:
    """Return the rows of a table, and the parts of it that no rule can check.

    A printed line with several precisions or variants becomes a row for each. There are no rows if
    no column can be checked. `file` is the name in messages.
    """
    table = _join_headers(table)
    columns = _read_columns(table)
    name = f"table at line {table.line}"
    # a speedup, an efficiency or a latency
    is_auditable = any(
        column.quantity in _CHECKED or column.quantity.startswith("latency") for column in columns
    )
    problems = [*table.problems]
    if not problems and not is_auditable:
        problems = ["judging by the headers, no column can be computed from other columns"]
    gaps = [NotAudited(file, table.line, name, text) for text in problems]
    if not is_auditable:
        return [], gaps
    gaps += [
        NotAudited(
            file,
            table.line,
            f"{name}: column {column.header!r}",
            "the header is not known, or another column has the same quantity",
        )
        for column in columns
        if not column.quantity
    ]
    rows: list[PrintedRow] = []
    for line, texts in table.rows:
        gaps += [
            NotAudited(file, line, f"{column.header}: {text!r}", "is not a positive number")
            for column, text in zip(columns, texts)
            if column.quantity
            and column.quantity not in _LABELS
            and not read_values(text, column)
            and not has_no_value(text)
        ]
        rows += _make_rows(file, name, line, columns, texts)
    return _split_by_document(_name_section(rows, table)), gaps


def _join_headers(table: PipeTable) -> PipeTable:
    """Merge a table's first row into its header if it continues the header; else return the table.

    It does if two or more header cells are empty (merged cells) and the first row has no number.
    """
    empty = sum(not header for header in table.header)
    if empty < 2 or not table.rows:
        return table
    (_, first), *rows = table.rows
    if any(
        is_number(clean_header(text)) and not text.endswith("%") for text in map(_unmark, first)
    ):
        return table
    group = ""
    headers = []
    for above, below in zip(table.header, first):
        group = above or group
        headers.append(f"{group} {below}".strip() if below else above)
    return dataclasses.replace(table, header=tuple(headers), rows=tuple(rows))


def _unmark(text: str) -> str:
    """Return the text without Markdown's "**" and backquotes."""
    return text.replace("**", "").replace("`", "").strip()


def _read_columns(table: PipeTable) -> list[PrintedColumn]:
    """Return the columns as their headers describe them, with quantities that their cells confirm.

    The quantity is "" (not read) where an earlier column has the same one.
    """
    cells = [[texts[place] for _, texts in table.rows] for place in range(len(table.header))]
    columns: list[PrintedColumn] = []
    distinct: dict[str, set[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for column, texts in zip(read_headers(table.header), cells):
        quantity = column.quantity
        if quantity == BARE_PRECISION:
            quantity = SAMPLES_PER_S if any(map(is_rate, texts)) else ""
        key = (quantity, column.precision, column.batch_size, column.variant)
        is_figure = quantity in (SPEEDUP, EFFICIENCY, SAMPLES_PER_S)
        # "Scaling method" is a label
        if key in seen or (is_figure and all(text[:1].isalpha() for text in texts)):
            quantity = ""
        seen.add(key)
        distinct.setdefault(quantity, {*texts})
        columns.append(dataclasses.replace(column, quantity=quantity))
    if len(distinct.get(NODES, ())) < 2 or len(distinct.get(DEVICES, ())) != 1:
        return columns
    # a device count that is the same in all rows, while node counts differ, is per node
    names = {DEVICES: DEVICES_PER_NODE}
    return [dataclasses.replace(c, quantity=names.get(c.quantity, c.quantity)) for c in columns]


def _name_section(rows: Sequence[PrintedRow], table: PipeTable) -> list[PrintedRow]:
    """Return the rows with their section, and a precision if only the table's title names it.

    Rows with a published line of their own (`where`) are returned unchanged.
    """
    if not rows or any(row.where for row in rows):
        return list(rows)
    named = list_precisions(table.title)
    precision = named[0] if len(named) == 1 else ""
    section = f"{table.heading} {drop_precisions(table.title)}"
    return [
        dataclasses.replace(row, section=section, precision=row.precision or precision)
        for row in rows
    ]


def _split_by_document(rows: Sequence[PrintedRow]) -> list[PrintedRow]:
    """Return the rows; those of consecutive lines of one publisher's file get the same `table`.

    Rows are grouped by their place in that file (`where`); rows without one are returned unchanged.
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


def _read_place(row: PrintedRow) -> tuple[str, int]:
    """Split a row's published place, "README.md:12", into path and line; ("", 0) without one."""
    path, _, line = row.where.rpartition(":")
    return path, read_count(line)


def _make_rows(
    file: str, table: str, line: int, columns: Sequence[PrintedColumn], texts: Sequence[str]
) -> list[PrintedRow]:
    """Make the rows of one line (`texts`): one per precision, batch size and variant."""
    labels = {c.quantity: _unmark(t) for c, t in zip(columns, texts) if c.quantity in _LABELS}
    figures = (n for n, c in enumerate(columns) if c.quantity and c.quantity not in _LABELS)
    first_figure = next(figures, len(columns))
    words = _list_words(columns[:first_figure], texts)
    # a number after the first figure is another figure, unless its header names a setting
    remarks = _list_words(columns[first_figure:], texts[first_figure:], has_numbers=False)
    by_column = [read_values(text, column) for column, text in zip(columns, texts)]
    is_placed = labels.get(PATH) and labels.get(LINE, "").isdigit()
    nodes, devices = read_count(labels.get(NODES, "")), _count_devices(labels)
    is_whole = nodes and DEVICES in labels and devices % nodes == 0
    groups: dict[tuple[str, str, str], dict[str, CellValue]] = {}
    for column, found in zip(columns, by_column):
        if not column.quantity or column.quantity in _LABELS:
            continue
        named = "" if "precision" in labels else column.precision
        precision = named or _find_default_precision(column, columns, labels)
        for value in found:
            key = (precision, column.batch_size, value.variant)
            groups.setdefault(key, {})[column.quantity] = value
    return [
        PrintedRow(
            file=file,
            line=line,
            where=f"{labels[PATH]}:{labels[LINE]}" if is_placed else "",
            table=table,
            model=labels.get("model", ""),
            framework=labels.get("framework", ""),
            software=" ".join(filter(None, (labels.get("framework"), labels.get("source")))),
            note=" ".join(filter(None, (variant, *words))),
            precision=precision,
            compiler=labels.get("compiler", ""),
            hardware=labels.get("hardware", ""),
            # "96" of "4664.10 bsz=96"
            batch_size=labels.get(BATCH_SIZE)
            or size
            or (values[SAMPLES_PER_S].batch_size if SAMPLES_PER_S in values else ""),
            devices=devices,
            cells={quantity: value.cell for quantity, value in values.items()},
            remark=" ".join(remarks),
            topology=labels.get(TOPOLOGY, f"{nodes}n{devices // nodes}g" if is_whole else ""),
            concurrency=read_count(labels.get(CONCURRENCY, "")),
            numbers=tuple(found[0].cell if len(found) == 1 else None for found in by_column),
        )
        for (precision, size, variant), values in groups.items()
    ]


def _list_words(
    columns: Sequence[PrintedColumn], texts: Sequence[str], has_numbers: bool = True
) -> list[str]:
    """List "header text" of the columns without a known quantity, such as "seq length 128".

    Without `has_numbers`, cells that are only a number are left out, except those of settings.
    """
    return [
        f"{column.header} {text}"
        for column, text in zip(columns, texts)
        if not column.quantity
        and (has_numbers or not is_number(text) or _SETTING.search(column.header.lower()))
    ]


def _find_default_precision(
    column: PrintedColumn, columns: Sequence[PrintedColumn], labels: Mapping[str, str]
) -> str:
    """Return the precision for a column whose header names none, or "" if it is not clear.

    It is the line's, in `labels` (cell texts by quantity), or else the only one that headers name.
    For latencies and speedups over a precision only reduced precisions count, if there are any.
    """
    if "precision" in labels:
        # this project's name for the precision, or the label itself if it is not one precision
        label = labels["precision"]
        return find_precision(label) if len(list_precisions(label)) == 1 else label
    figures = (c for c in columns if c.quantity and c.quantity not in _LABELS)
    named = list(dict.fromkeys(c.precision for c in figures if c.precision))
    reduced = [name for name in named if name not in FULL_PRECISIONS]
    is_of_reduced = column.quantity in _OF_REDUCED or column.quantity.startswith("latency")
    chosen = reduced if is_of_reduced and reduced else named
    return chosen[0] if len(chosen) == 1 else ""


def _count_devices(labels: Mapping[str, str]) -> int:
    """Return the device count from a row's labels (cell texts by quantity), or 0 if not printed.

    If only a node count is printed, return that: a speedup needs only the ratio.
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
