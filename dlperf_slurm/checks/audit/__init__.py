"""Printed tables -> the cells that do not follow from the others, and what cannot be checked."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from dlperf_slurm.checks.audit.contradictions import (
    check_duplicates,
    check_latencies,
    check_medians,
    has_unknown_devices,
)
from dlperf_slurm.checks.audit.files import read_rows, read_run
from dlperf_slurm.checks.audit.printed import (
    EFFICIENCY,
    PRECISION_SPEEDUP,
    SPEEDUP,
    Cell,
    Finding,
    NotAudited,
    Row,
)
from dlperf_slurm.checks.audit.speedups import (
    INVERSE_SPEEDUPS,
    Derived,
    check_speedups,
    derive_cells,
)

_MISSING = {
    SPEEDUP: "no throughput of fewer devices to divide by",
    EFFICIENCY: "no throughput of fewer devices to divide by",
    PRECISION_SPEEDUP: "no throughput of the full precision to divide by",
    **dict.fromkeys(INVERSE_SPEEDUPS, "no time of the full precision to divide"),
}


@dataclass(frozen=True)
class Audit:
    """An audit's findings, what could not be recomputed, and how many cells were."""

    findings: tuple[Finding, ...]
    not_audited: tuple[NotAudited, ...]
    recomputed: int


def audit_paths(paths: Sequence[Path]) -> Audit:
    """Audit files, run directories and published sources together: each is seen with all others.

    Raises InputError when one cannot be read.
    """
    rows: list[Row] = []
    gaps: list[NotAudited] = []
    findings: list[Finding] = []
    for path in paths:
        if path.is_dir():
            more_rows, more_gaps, stale = read_run(path)
            findings += stale
        else:
            more_rows, more_gaps = read_rows(path)
        rows += more_rows
        gaps += more_gaps
    derived = derive_cells(rows)
    return Audit(
        findings=tuple(findings + find_contradictions(rows, derived)),
        not_audited=(*gaps, *_list_unchecked(rows, derived)),
        recomputed=len(derived),
    )


def find_contradictions(rows: Sequence[Row], derived: Sequence[Derived]) -> list[Finding]:
    """All findings, in the order of the files and their lines."""
    findings = [
        *check_speedups(derived),
        *check_latencies(rows),
        *check_duplicates(rows),
        *check_medians(rows),
    ]
    files = list(dict.fromkeys(row.file for row in rows))
    return sorted(findings, key=lambda finding: (files.index(finding.file), finding.line))


def _list_unchecked(rows: Sequence[Row], derived: Sequence[Derived]) -> Iterator[NotAudited]:
    """The columns that nothing was recomputed for, one entry for each table and reason."""
    checked = {id(one.cell) for one in derived}
    columns: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for row in rows:
        for cell, reason in _list_missing(row, checked):
            columns.setdefault((row.file, row.table, reason), []).append((row.line, cell.column))
    for (file, table, reason), cells in columns.items():
        names = ", ".join(dict.fromkeys(column for _, column in cells))
        yield NotAudited(file, cells[0][0], f"{table}: {len(cells)} cells of {names}", reason)


def _list_missing(row: Row, checked: Set[int]) -> Iterator[tuple[Cell, str]]:
    """The cells of a row that cannot be recomputed, and what there is not to do it."""
    for quantity, cell in row.cells.items():
        if quantity in _MISSING and id(cell) not in checked:
            yield cell, _MISSING[quantity]
    if row.samples_per_s is not None and has_unknown_devices(row):
        yield row.samples_per_s, "no column has the device count, for throughput x latency"
