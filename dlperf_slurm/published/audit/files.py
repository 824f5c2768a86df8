"""A file with tables or a run directory -> its rows, and the parts that cannot be audited."""

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.jobs.run_directory import REPORT_DIR, open_run
from dlperf_slurm.published.audit.interpret import interpret_table
from dlperf_slurm.published.audit.rounding import (
    EFFICIENCY,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    STALE,
    Discrepancy,
    NotAudited,
    PrintedCell,
    PrintedRow,
    RoundingInterval,
    make_cell,
)
from dlperf_slurm.published.audit.tables import PipeTable, find_tables
from dlperf_slurm.published.figures import find_source_file, list_sources
from dlperf_slurm.reports.formats.csv import FILE_NAME
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import collect_outcomes
from dlperf_slurm.results.columns import serialize_csv
from dlperf_slurm.results.labels import VARIANT_AXES
from dlperf_slurm.stats.median import LATENCY_NAMES

_LATENCIES = {
    **{f"latency_{name}_ms": f"latency_{name}" for name in LATENCY_NAMES},
    **{f"latency_{name}_speedup": f"latency_{name}_speedup" for name in LATENCY_NAMES},
}
_PUBLISHED_CELLS = {
    "samples_per_s": SAMPLES_PER_S,
    "published_speedup": SPEEDUP,
    "published_precision_speedup": PRECISION_SPEEDUP,
    **_LATENCIES,
}
_REPORT_CELLS = {
    "samples_per_s": SAMPLES_PER_S,
    "speedup": SPEEDUP,
    "weak_scaling_efficiency": EFFICIENCY,
    "precision_speedup": PRECISION_SPEEDUP,
    **_LATENCIES,
}
# line number and cells by column of each case_id
Cases = Mapping[str, tuple[int, Mapping[str, str]]]


def read_rows(path: Path) -> tuple[list[PrintedRow], list[NotAudited]]:
    """Read the rows of a CSV, a text with pipe tables, or a published source by name ("dlperf").

    Also returns the parts of the file that no rule can check. Raises InputError if the file does
    not exist, is not text, or has no table.
    """
    name = str(path)
    if not path.exists() and name in list_sources():
        path = find_source_file(name)
    try:
        text = read_text(path)
    except OSError as error:
        reason = error if isinstance(error, FileProblem) else error.strerror
        raise InputError(
            f"{name}: cannot be read: {reason}; expected a CSV file, a text with tables, a run "
            f"directory, or one of {', '.join(list_sources())}"
        ) from error
    return read_csv(text, name) if path.suffix == ".csv" else _read_text(text, name)


def _read_text(text: str, name: str) -> tuple[list[PrintedRow], list[NotAudited]]:
    """Parse the rows of the pipe tables in a text; `name` is the file's name in messages."""
    tables = list(find_tables(text))
    if not tables:
        raise InputError(f"{name}: contains no table; expected rows of cells with | between them")
    rows: list[PrintedRow] = []
    gaps: list[NotAudited] = []
    for table in tables:
        more_rows, more_gaps = interpret_table(table, name)
        rows += more_rows
        gaps += more_gaps
    return rows, gaps


def read_csv(text: str, name: str) -> tuple[list[PrintedRow], list[NotAudited]]:
    """Parse the rows of a report.csv, a published source, or any CSV with headers as in tables.

    Also returns the parts that no rule can check. Raises InputError if the text is no such CSV.
    """
    try:
        lines = list(read_records(text))
    except csv.Error as error:
        raise InputError(f"{name}: is not a valid CSV file: {error}") from error
    if not lines:
        raise InputError(f"{name}: is empty")
    (first, header), *records = lines
    ragged = [number for number, cells in records if len(cells) != len(header)]
    if ragged:
        raise InputError(
            f"{name}:{ragged[0]}: the row does not have the {len(header)} cells of the header"
        )
    named = [(number, dict(zip(header, cells))) for number, cells in records]
    try:
        if {"case_id", "topology", "weak_scaling_efficiency"} <= set(header):
            return [_make_report_row(name, number, record) for number, record in named], []
        if {"samples_per_s", "nodes", "devices_per_node", "where"} <= set(header):
            return [_make_published_row(name, number, record) for number, record in named], []
    except (KeyError, ValueError) as error:
        raise InputError(f"{name}: {error}") from error
    table = PipeTable(first, tuple(header), tuple((n, tuple(c)) for n, c in records))
    return interpret_table(table, name)


def read_records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a CSV with the number of its first line; raises csv.Error if invalid."""
    # a note may exceed csv's limit of 128 KiB; `read_text` already limits the file size
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    for cells in reader:
        if cells:
            yield line, cells
        line = reader.line_num + 1


def _make_published_row(file: str, line: int, record: Mapping[str, str]) -> PrintedRow:
    """Make the row of a line of a published source, a CSV of the folder `published/figures`."""
    notes = (record.get(key, "") for key in ("note", "data_location", "variable_update"))
    return PrintedRow(
        file,
        line,
        **_take(record, "where", "table", "software", "hardware"),
        note=" ".join(notes).strip(),
        batch_size=record.get("batch_size_per_device", ""),
        devices=int(record["nodes"]) * int(record["devices_per_node"]),
        repeat=int(record.get("repeat") or 0),
        cells=_make_cells(record, _PUBLISHED_CELLS, is_exact=False),
    )


def _make_report_row(file: str, line: int, record: Mapping[str, str]) -> PrintedRow:
    """Make the row of a line of a run's report.csv; `record` has the line's cells by column."""
    return PrintedRow(
        file,
        line,
        **_take(record, "topology"),
        table=f"{record['model']} {record['mode']}",
        # without the compiler, which has a column of its own
        note=" ".join(
            record[axis]
            for axis, default in VARIANT_AXES.items()
            if axis != "compiler" and record.get(axis, "") not in ("", str(default))
        ),
        batch_size=record["batch_size_per_device"],
        devices=parse_topology(record["topology"]).world_size,
        cells=_make_report_cells(record),
    )


def _take(record: Mapping[str, str], *names: str) -> dict[str, Any]:
    """Return by name the columns `names` of a CSV record, and the columns that all rows need.

    Raises KeyError if a column is missing.
    """
    shared = ("model", "framework", "precision", "compiler")
    return {name: record[name] for name in (*shared, *names)}


def _make_report_cells(record: Mapping[str, str]) -> dict[str, PrintedCell]:
    """Make the cells of a report's line; a throughput has the range of its repeats as `spread`."""
    cells = _make_cells(record, _REPORT_CELLS, is_exact=True)
    samples = cells.get(SAMPLES_PER_S)
    smallest = make_cell(record.get("smallest", ""), "smallest")
    largest = make_cell(record.get("largest", ""), "largest")
    if samples is not None and smallest is not None and largest is not None:
        spread = RoundingInterval(smallest.value, largest.value)
        cells[SAMPLES_PER_S] = dataclasses.replace(samples, spread=spread)
    return cells


def _make_cells(
    record: Mapping[str, str], names: Mapping[str, str], is_exact: bool
) -> dict[str, PrintedCell]:
    """Make the cells of a CSV's line by quantity; empty cells are left out.

    `names` maps the CSV's columns to quantities, such as "speedup"; `is_exact` is True for numbers
    with all digits. Raises ValueError, with the column, for text that is no positive number.
    """
    cells: dict[str, PrintedCell] = {}
    for column, quantity in names.items():
        text = record.get(column, "")
        cell = make_cell(text, column, is_exact)
        if cell is not None:
            cells[quantity] = cell
        elif text:
            raise ValueError(f"{column}: {text!r} is not a positive number")
    return cells


def read_run(path: Path) -> tuple[list[PrintedRow], list[NotAudited], list[Discrepancy]]:
    """Read the rows of a run's report.csv, or of its records if there is no report.

    Returns the rows, what could not be checked, and the cells of the report that differ from the
    records. Raises InputError if the directory is no run, or if its report is no CSV.
    """
    run = open_run(path)
    fresh = serialize_csv(analyze(collect_outcomes(run)).case_columns)
    file = path / REPORT_DIR / FILE_NAME
    try:
        text = read_text(file, root=path)
    except FileNotFoundError:
        rows, gaps = read_csv(fresh, str(path))
        reason = "does not exist; the results in the records were checked instead"
        return rows, [NotAudited(str(file), 1, "the report", reason), *gaps], []
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    rows, gaps = read_csv(text, str(file))
    return rows, gaps, list(_compare_with_records(str(file), text, fresh))


def _compare_with_records(file: str, text: str, fresh: str) -> Iterator[Discrepancy]:
    """Yield cells of a report that differ from the records, for columns that both have.

    `text` is the report.csv on disk, `fresh` the one that the records give now.
    """
    found = _index_cases(text)
    for case_id, (_, record) in _index_cases(fresh).items():
        if case_id not in found:
            reason = "the run contains this case, but the report does not"
            yield Discrepancy(file, 1, "", f"case_id: {case_id}", "", case_id, STALE, reason)
            continue
        line, texts = found[case_id]
        for column, value in record.items():
            printed = texts.get(column, value)
            if printed != value:
                cell = f"{column}: {case_id}"
                reason = "the records give a different value: the report is older, or was edited"
                yield Discrepancy(file, line, "", cell, printed, value, STALE, reason)


def _index_cases(text: str) -> Cases:
    """Return, for each case_id of a report.csv, its line number and its cells by column."""
    (_, header), *records = read_records(text)
    named = [(line, dict(zip(header, cells))) for line, cells in records]
    return {texts["case_id"]: (line, texts) for line, texts in named if texts.get("case_id")}
