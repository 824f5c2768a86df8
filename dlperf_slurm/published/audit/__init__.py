"""Printed tables -> cells that do not follow from other cells, and cells that cannot be checked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlperf_slurm.published.audit.contradictions import check_duplicates, check_medians
from dlperf_slurm.published.audit.files import read_csv, read_rows, read_run
from dlperf_slurm.published.audit.latencies import (
    check_latencies,
    has_order,
    has_unknown_devices,
    list_compared,
    list_products,
)
from dlperf_slurm.published.audit.precisions import INVERSE_SPEEDUPS
from dlperf_slurm.published.audit.rounding import (
    EFFICIENCY,
    PRECISION_SPEEDUP,
    SPEEDUP,
    DerivedCell,
    Discrepancy,
    NotAudited,
    PrintedRow,
)
from dlperf_slurm.published.audit.speedups import check_speedups, derive_cells, index_rows
from dlperf_slurm.stats.median import LATENCY_NAMES

_NO_INPUT = "the table has no {}, so the {} cannot be recomputed"
_MISSING = {
    SPEEDUP: _NO_INPUT.format("throughput of fewer devices", "speedup"),
    EFFICIENCY: _NO_INPUT.format("throughput of fewer devices", "efficiency"),
    PRECISION_SPEEDUP: _NO_INPUT.format("throughput in FP32 or TF32", "speedup"),
    **dict.fromkeys(INVERSE_SPEEDUPS, _NO_INPUT.format("time in FP32 or TF32", "speedup")),
    **{
        f"latency_{name}_speedup": _NO_INPUT.format("latency in FP32 or TF32", "speedup")
        for name in LATENCY_NAMES
    },
}


@dataclass(frozen=True)
class CheckCounts:
    """How many figures of the audited tables were checked, and how many could not be.

    `derived_cells` (speedups, efficiencies) were recomputed from printed throughputs or times.
    `speedups_compared` could not be recomputed, but had to agree with another speedup of their row.
    `latency_rows` have percentiles that must ascend; `throughputs_by_latency` had to agree with
    batch size over mean latency. `figures_compared` are of configurations that are printed more
    than once. `derived_cells_unchecked` are derived cells that were neither recomputed nor
    compared.
    """

    derived_cells: int
    speedups_compared: int
    latency_rows: int
    throughputs_by_latency: int
    figures_compared: int
    derived_cells_unchecked: int

    @property
    def is_anything(self) -> bool:
        """Whether any figure was checked."""
        return any(n for name, n in vars(self).items() if name != "derived_cells_unchecked")


@dataclass(frozen=True)
class Audit:
    """The result of an audit: wrong cells, cells that could not be recomputed, counts of checks.

    An audit recomputes printed speedups and efficiencies from the figures printed beside them.
    """

    findings: tuple[Discrepancy, ...]
    not_audited: tuple[NotAudited, ...]
    checked: CheckCounts


def audit_paths(paths: Sequence[Path]) -> Audit:
    """Audit files, run directories and published sources together, each against all others.

    A path may also be the name of a published source, such as "dlperf". Raises InputError if one of
    them cannot be read.
    """
    rows: list[PrintedRow] = []
    gaps: list[NotAudited] = []
    findings: list[Discrepancy] = []
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
        checked=_count_checks(rows, derived),
    )


def audit_report(text: str, name: str) -> list[Discrepancy]:
    """Return the wrong cells in the `text` of a run's report.csv.

    `name` is the file's name in the findings. Raises InputError if the text is no such CSV.
    """
    rows, _ = read_csv(text, name)
    return find_contradictions(rows, derive_cells(rows))


def _count_checks(rows: Sequence[PrintedRow], derived: Sequence[DerivedCell]) -> CheckCounts:
    """Return how many figures were checked; `derived` are the cells that could be recomputed."""
    recomputed = {id(one.cell) for one in derived}
    compared = {id(cell) for row in rows for cell in list_compared(row)} - recomputed
    cells = {id(cell) for row in rows for name, cell in row.cells.items() if name in _MISSING}
    groups = index_rows([row for row in rows if row.model]).values()
    return CheckCounts(
        derived_cells=len(derived),
        speedups_compared=len(compared),
        latency_rows=sum(has_order(row) for row in rows),
        throughputs_by_latency=sum(1 for _ in list_products(rows)),
        figures_compared=sum(len(group) for group in groups if len(group) > 1),
        derived_cells_unchecked=len(cells - recomputed - compared),
    )


def find_contradictions(
    rows: Sequence[PrintedRow], derived: Sequence[DerivedCell]
) -> list[Discrepancy]:
    """Return all contradictions between figures, in the order of the files and their lines.

    `derived` are the cells of `rows` that can be recomputed, with the inputs of each.
    """
    findings = [
        *check_speedups(derived),
        *check_latencies(rows),
        *check_duplicates(rows),
        *check_medians(rows),
    ]
    files = list(dict.fromkeys(row.file for row in rows))
    return sorted(findings, key=lambda finding: (files.index(finding.file), finding.line))


def _list_unchecked(
    rows: Sequence[PrintedRow], derived: Sequence[DerivedCell]
) -> Iterator[NotAudited]:
    """Yield why derived cells, such as speedups, were not recomputed.

    There is an entry per table and missing input. `derived` are the cells that were recomputed.
    """
    checked = {id(one.cell) for one in derived}
    columns: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for row in rows:
        missing = [
            (cell, _MISSING[quantity])
            for quantity, cell in row.cells.items()
            if quantity in _MISSING and id(cell) not in checked
        ]
        if row.samples_per_s is not None and has_unknown_devices(row):
            reason = "no column has the device count, which throughput x latency depends on"
            missing.append((row.samples_per_s, reason))
        for cell, reason in missing:
            columns.setdefault((row.file, row.table, reason), []).append((row.line, cell.column))
    for (file, table, reason), cells in columns.items():
        names = ", ".join(dict.fromkeys(column for _, column in cells))
        yield NotAudited(file, cells[0][0], f"{table}: {len(cells)} cells of {names}", reason)
