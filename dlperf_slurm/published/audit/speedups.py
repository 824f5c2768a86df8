"""Rows -> printed speedups and efficiencies that differ from the quotient they should be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Optional

from dlperf_slurm.published.audit.precisions import derive_precision_speedups
from dlperf_slurm.published.audit.rounding import (
    ABOVE_DEVICES,
    EFFICIENCY,
    ONE,
    SPEEDUP,
    STALE,
    SWAPPED,
    TRUNCATED,
    WRONG,
    DerivedCell,
    Discrepancy,
    PrintedCell,
    PrintedRow,
    RoundingInterval,
    format_value,
    make_finding,
    measure_gap,
)
from dlperf_slurm.published.audit.speedup_baselines import derive_by_columns, derive_by_named_base
from dlperf_slurm.published.grouping import group_by

# key of the rows of one scaling curve
_name_series: Callable[[PrintedRow], tuple[object, ...]] = attrgetter(
    *("file", "table", "model", "framework", "software"),
    *("precision", "compiler", "hardware", "repeat"),
)


def derive_cells(rows: Sequence[PrintedRow]) -> list[DerivedCell]:
    """Return the speedups and efficiencies that can be recomputed, with the cells to divide."""
    derived = [*_derive_scaling(rows), *derive_precision_speedups(rows)]
    checked = {id(one.cell) for one in derived}
    derived += derive_by_named_base(rows, checked)
    return [*derived, *derive_by_columns(rows, {id(one.cell) for one in derived})]


def _derive_scaling(rows: Sequence[PrintedRow]) -> Iterator[DerivedCell]:
    """Yield the scaling speedups and efficiencies whose row of fewer devices is printed too."""
    index = index_rows(rows)
    measured = (row for row in rows if row.samples_per_s is not None and row.devices)
    series = group_by(measured, _name_series)
    for row in rows:
        samples = row.samples_per_s
        base = _find_baseline(row, series.get(_name_series(row), ()), index)
        if samples is None or base is None or base.samples_per_s is None:
            continue
        growth = Fraction(row.devices, base.devices)
        others = {} if base is row else _list_others(row, samples, base, base.samples_per_s, index)
        for name, factor in ((SPEEDUP, Fraction(1)), (EFFICIENCY, 1 / growth)):
            cell = row.cells.get(name)
            if cell is not None:
                scaled = {
                    p: RoundingInterval(factor * s.low, factor * s.high) for p, s in others.items()
                }
                # another batch size may raise the throughput of a device
                limit = factor * growth if base.batch_size == row.batch_size else None
                yield DerivedCell(row, cell, samples, base.samples_per_s, factor, limit, scaled)


Index = Mapping[tuple[tuple[object, ...], int], Sequence[PrintedRow]]


def index_rows(rows: Sequence[PrintedRow]) -> Index:
    """Index the rows that have a throughput by (`row.configuration`, device count)."""
    measured = (row for row in rows if row.samples_per_s is not None)
    return group_by(measured, lambda row: (row.configuration, row.devices))


def _list_alike(row: PrintedRow, devices: int, index: Index) -> Sequence[PrintedRow]:
    """Return the rows of the row's configuration on `devices` devices, of any table.

    Empty if the row names no model.
    """
    return index.get((row.configuration, devices), ()) if row.model else ()


def _find_baseline(
    row: PrintedRow, series: Sequence[PrintedRow], index: Index
) -> Optional[PrintedRow]:
    """Return the row of the fewest devices that a row's speedup is relative to, or None.

    Searches the row's scaling curve (`series`), first for the same note and batch size, then for
    any; last a row of one device in any table. A row whose own speedup is 1 is its own baseline.
    """
    cell = row.cells.get(SPEEDUP) or row.cells.get(EFFICIENCY)
    if cell is None or not row.devices:
        return None
    bases = []
    for is_same_note, is_same_size in ((True, True), (False, True), (True, False), (False, False)):
        candidates = [
            other
            for other in series
            if (other.note == row.note or not is_same_note)
            and (other.batch_size == row.batch_size or not is_same_size)
        ]
        base = _choose_smallest(cell, row, candidates)
        if base is not None:
            bases.append(base)
    if bases:
        # the most similar row is the baseline, unless only a less similar one fits
        return next((base for base in bases if _fits(cell, row, base)), bases[0])
    is_first = row.devices == 1 and any(other.devices > 1 for other in series)
    if cell.rounded.meets(ONE) or is_first:
        # a table may have one baseline for all its batch sizes
        beside = [other for other in series if other.devices == row.devices and _is_one(other)]
        return next((other for other in beside if _fits(cell, row, other)), row)
    elsewhere = [other for other in _list_alike(row, 1, index) if not other.repeat]
    fitting = [other for other in elsewhere if _fits(cell, row, other)]
    return next(iter(fitting or elsewhere), None)


def _choose_smallest(
    cell: PrintedCell, row: PrintedRow, candidates: Sequence[PrintedRow]
) -> Optional[PrintedRow]:
    """Return the candidate of the fewest devices; of several, one that fits `cell`, or None.

    `cell` is the speedup or efficiency of `row`. None also if no row of fewer devices can be a
    baseline.
    """
    fewest = min((other.devices for other in candidates), default=row.devices)
    smallest = [other for other in candidates if other.devices == fewest]
    first = smallest[0] if fewest < row.devices else row
    if first is row or not (SPEEDUP not in first.cells or fewest == 1 or _is_one(first)):
        return None
    fitting = [other for other in smallest if _fits(cell, row, other)]
    return next(iter(fitting or (smallest if len(smallest) == 1 else [])), None)


def _is_one(row: PrintedRow) -> bool:
    """Return whether a row's own speedup is 1, so that it is the baseline of others."""
    cell = row.cells.get(SPEEDUP)
    return cell is not None and cell.rounded.meets(ONE)


def _fits(cell: PrintedCell, row: PrintedRow, base: PrintedRow) -> bool:
    """Return whether a row's speedup, or its efficiency, may be relative to `base`."""
    if row.samples_per_s is None or base.samples_per_s is None:
        return False
    quotient = row.samples_per_s.rounded / base.samples_per_s.rounded
    if cell is row.cells.get(EFFICIENCY):
        share = Fraction(base.devices, row.devices)
        quotient *= RoundingInterval(share, share)
    return cell.rounded.meets(quotient)


def _list_others(
    row: PrintedRow, samples: PrintedCell, base: PrintedRow, base_samples: PrintedCell, index: Index
) -> dict[str, RoundingInterval]:
    """Return the quotients with another printed figure in place of the row's or of its baseline's.

    The keys are value and place, as in "39.1 at README.md:12": a wrong cell may have been computed
    from an older figure of the same configuration.
    """
    quotients: dict[str, RoundingInterval] = {}
    for other in _list_alike(base, base.devices, index):
        if other is not base and other.samples_per_s is not None:
            place = f"{other.samples_per_s.text} at {format_place(other)}"
            quotients[place] = samples.rounded / other.samples_per_s.rounded
    for other in _list_alike(row, row.devices, index):
        if other is not row and other.samples_per_s is not None:
            place = f"{other.samples_per_s.text} at {format_place(other)}"
            quotients[place] = other.samples_per_s.rounded / base_samples.rounded
    return quotients


def format_place(row: PrintedRow) -> str:
    """Return where a row was printed, "path:line"; in the publisher's repository if known."""
    return row.where or f"{row.file}:{row.line}"


def check_speedups(derived: Sequence[DerivedCell]) -> Iterator[Discrepancy]:
    """Yield a finding for each derived cell that is wrong, with the simplest reason."""
    neighbours = group_by(derived, lambda one: one.row.printed_line)
    for one in derived:
        finding = _check(one, neighbours[one.row.printed_line])
        if finding is not None:
            yield finding


def _check(one: DerivedCell, same_line: Sequence[DerivedCell]) -> Optional[Discrepancy]:
    """Return a finding if a derived cell is wrong, or above its limit; None if it is right.

    `same_line` are all derived cells of the same printed line, with which it may be swapped.
    """
    quotient = f"{one.numerator.text} / {one.denominator.text}"
    follows = format_value(one.value, one.cell)
    if not one.is_right:
        kind, reason = _explain(one, same_line)
        gap = min(measure_gap(one.cell.rounded, s) for s in (one.expected, *one.alternatives))
        return make_finding(one.row, one.cell, kind, follows, f"{quotient}; {reason}", gap)
    if one.limit is not None and min(one.cell.rounded.low, one.certain) > one.limit:
        reason = f"{quotient}; at most {float(one.limit):g} is possible with linear scaling"
        excess = float(min(one.cell.rounded.low, one.certain) / one.limit - 1)
        return make_finding(one.row, one.cell, ABOVE_DEVICES, follows, reason, excess)
    return None


def _explain(one: DerivedCell, same_line: Sequence[DerivedCell]) -> tuple[str, str]:
    """Return the kind of a wrong derived cell, such as TRUNCATED or SWAPPED, and the reason.

    `same_line` are all derived cells of the same printed line, with which it may be swapped.
    """
    if one.cell.value <= one.value and one.cell.cut.meets(one.expected):
        return TRUNCATED, "truncated, not rounded"
    for other in same_line:
        is_swapped = other is not one and not other.is_right
        if is_swapped and one.cell.rounded.meets(other.expected):
            name = other.row.name_cell(other.cell)
            return SWAPPED, f"the cell has the value that is expected in another cell: {name}"
    if one.cell.rounded.meets(RoundingInterval(1 / one.expected.high, 1 / one.expected.low)):
        return WRONG, "the cell has the inverse of the expected value"
    for place, expected in one.others.items():
        if one.cell.rounded.meets(expected):
            return STALE, f"the cell was computed from {place} instead"
    return WRONG, f"the cell is off by {float(one.cell.value / one.value - 1):+.2%}"
