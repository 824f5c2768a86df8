"""Rows -> the speedups of a reduced precision over a full one, with the cells of the quotient."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from dlperf_slurm.published.audit.rounding import (
    FULL_PRECISIONS,
    LATENCY_AVG,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    TIME_SPEEDUP,
    TRAINING_TIME,
    DerivedCell,
    PrintedCell,
    PrintedRow,
)

# Speedups with the reference as numerator, because a smaller time is better.
INVERSE_SPEEDUPS = {TIME_SPEEDUP: TRAINING_TIME}
_LATENCY_SPEEDUP = re.compile(r"(latency_\w+)_speedup")


def derive_precision_speedups(rows: Sequence[PrintedRow]) -> Iterator[DerivedCell]:
    """Yield the speedups of a reduced precision over a full one, with the two cells to divide.

    The full precision's row is in the same table, or else in another table of the same section.
    """
    tables: dict[tuple[str, str], list[PrintedRow]] = {}
    sections: dict[tuple[str, str], list[PrintedRow]] = {}
    for row in rows:
        if row.precision in FULL_PRECISIONS:
            tables.setdefault((row.file, row.table), []).append(row)
            if row.section:
                sections.setdefault((row.file, row.section), []).append(row)
    for row in rows:
        for name, cell in row.cells.items():
            inputs = _list_inputs(name, row)
            if not inputs:
                continue
            near = tables.get((row.file, row.table), ())
            far = sections.get((row.file, row.section), ()) if row.section else ()
            yield from _divide(row, cell, inputs, near) or _divide(row, cell, inputs, far)


def _list_inputs(name: str, row: PrintedRow) -> list[str]:
    """List the quantities whose quotient a cell may be, the likeliest first; [] for other cells.

    `name` is the cell's quantity: "latency_p90_speedup" is a quotient of "latency_p90".
    """
    match = _LATENCY_SPEEDUP.fullmatch(name)
    if match is not None:
        return [match[1]]
    if name == PRECISION_SPEEDUP:
        return [name for name in (SAMPLES_PER_S, LATENCY_AVG) if name in row.cells]
    return [INVERSE_SPEEDUPS[name]] if name in INVERSE_SPEEDUPS else []


def _divide(
    row: PrintedRow, cell: PrintedCell, inputs: Sequence[str], candidates: Sequence[PrintedRow]
) -> list[DerivedCell]:
    """Return a speedup with the two cells to divide, one of a full-precision row in `candidates`.

    Returns [] without such a row. If it is not clear which row is the reference, one is used whose
    quotient fits the printed speedup. `inputs` are the quantities that may be divided.
    """
    usable = [other for other in candidates if any(name in other.cells for name in inputs)]
    reference = _find_reference(row, usable)
    if reference is not None:
        return _derive(row, cell, inputs, reference)
    # the full precision may have been run with another batch size or accumulation
    loose = [
        other
        for other in usable
        if _name_setting(other, has_note=False) == _name_setting(row, has_note=False)
    ]
    tries = [one for other in loose for one in _derive(row, cell, inputs, other)]
    return [one for one in tries if one.is_right][:1]


def _derive(
    row: PrintedRow, cell: PrintedCell, inputs: Sequence[str], reference: PrintedRow
) -> list[DerivedCell]:
    """Derive a speedup from a reference row; quotients of further quantities are alternatives."""
    found = (_pair(name, row, reference) for name in inputs if name in reference.cells)
    pairs = [pair for pair in found if pair is not None]
    if not pairs:
        return []
    (above, below), *others = pairs
    spans = tuple(one.rounded / other.rounded for one, other in others)
    return [DerivedCell(row, cell, above, below, alternatives=spans)]


def _pair(
    name: str, row: PrintedRow, reference: PrintedRow
) -> Optional[tuple[PrintedCell, PrintedCell]]:
    """Return numerator and denominator of a speedup of the quantity `name`; None if `row` lacks it.

    For times the reference is the numerator, because a smaller time is better.
    """
    ours = row.cells.get(name)
    if ours is None:
        return None
    theirs = ours if reference is row else reference.cells[name]
    if name != SAMPLES_PER_S and (ours.scale is None) != (theirs.scale is None):
        # only one of the two times has a unit
        ours, theirs = replace(ours, scale=None), replace(theirs, scale=None)
    return (ours, theirs) if name == SAMPLES_PER_S else (theirs, ours)


def _name_setting(row: PrintedRow, has_note: bool = True) -> tuple[object, ...]:
    """Return the settings, without batch size, that rows of two precisions to compare must share.

    `has_note`: the row's note is one of the settings.
    """
    setting = (row.framework, row.model, row.compiler, row.devices, row.topology, row.hardware)
    return (*setting, row.concurrency, row.note if has_note else "")


def _find_reference(row: PrintedRow, candidates: Sequence[PrintedRow]) -> Optional[PrintedRow]:
    """Return the full-precision row that a row's speedup is over, or None if it is ambiguous.

    It is on the same printed line, as in NVIDIA's tables, or has the same devices and batch size.
    """
    found = [other for other in candidates if _name_setting(other) == _name_setting(row)]
    found.sort(key=lambda other: FULL_PRECISIONS.index(other.precision))
    beside = [other for other in found if other.printed_line == row.printed_line]
    alike = [other for other in found if other.batch_size == row.batch_size]
    return next(iter(beside or alike or (found if len(found) == 1 else [])), None)
