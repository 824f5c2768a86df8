"""Speedups over something else than fewer devices -> the two printed cells of each quotient.

Such a column compares software, machines or batch sizes; its baseline is the row of the same batch
size, or of the whole table, whose speedup is 1. The baseline is used only if most other rows follow
from it. Or else the speedup is a ratio of two columns on its own line.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import permutations
from operator import attrgetter

from dlperf_slurm.published.audit.rounding import (
    LATENCY_AVG,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    TRAINING_TIME,
    DerivedCell,
    PrintedCell,
    PrintedRow,
)

# least number of rows that fit a ratio of two columns, because the columns are chosen by the fit
MIN_FITTING = 3

# keys of rows that may share a baseline, from rows with most in common to a whole table
_SHARED: tuple[Callable[[PrintedRow], tuple[object, ...]], ...] = tuple(
    attrgetter("file", "table", *properties)
    for properties in (("precision", "batch_size"), ("batch_size",), ("precision",), ())
)


def derive_by_named_base(rows: Sequence[PrintedRow], checked: Set[int]) -> Iterator[DerivedCell]:
    """Yield the speedups over the only row with speedup 1, with the two cells to divide.

    The rows are those of a table with the same precision and batch size, one of these, or all; most
    of the other rows must fit. `checked` are the ids (`id(cell)`) of cells that other rules explain
    already; they are left out.
    """
    done = set(checked)
    for quantity in (SPEEDUP, PRECISION_SPEEDUP):
        for find_key in _SHARED:
            groups: dict[tuple[object, ...], list[PrintedRow]] = {}
            for row in rows:
                if quantity in row.cells and id(row.cells[quantity]) not in done:
                    groups.setdefault(find_key(row), []).append(row)
            for group in groups.values():
                derived = _derive_group(group, quantity)
                done.update(id(one.cell) for one in derived)
                yield from derived


def _derive_group(group: Sequence[PrintedRow], quantity: str) -> list[DerivedCell]:
    """Derive the speedups of rows that may share a baseline; [] unless most fit the printed ones.

    `quantity` is the column to explain: SPEEDUP or PRECISION_SPEEDUP. The baseline is the only row
    with the value 1 there.
    """
    bases = [row for row in group if row.cells[quantity].value == 1]
    if len(bases) != 1:
        return []
    for name in (SAMPLES_PER_S, LATENCY_AVG, TRAINING_TIME):
        if name not in bases[0].cells:
            continue
        base = bases[0].cells[name]
        derived = [
            # throughputs as row / base, latencies and training times as base / row
            DerivedCell(row, row.cells[quantity], row.cells[name], base)
            if name == SAMPLES_PER_S
            else DerivedCell(row, row.cells[quantity], base, row.cells[name])
            for row in group
            if name in row.cells
        ]
        fitting = sum(one.is_right for one in derived if one.row is not bases[0])
        if fitting > (len(group) - 1) / 2:
            return derived
    return []


def derive_by_columns(rows: Sequence[PrintedRow], checked: Set[int]) -> Iterator[DerivedCell]:
    """Yield the speedups that are a ratio of two columns on their own line.

    The two columns are those whose ratio fits most rows, at least half of the table's. `checked`
    are the ids (`id(cell)`) of cells that other rules explain already; they are left out.
    """
    tables: dict[tuple[str, str, str], list[tuple[PrintedRow, PrintedCell]]] = {}
    for row in rows:
        for cell in (row.cells.get(SPEEDUP), row.cells.get(PRECISION_SPEEDUP)):
            if cell is not None and id(cell) not in checked:
                tables.setdefault((row.file, row.table, cell.column), []).append((row, cell))
    for entries in tables.values():
        width = min(len(row.numbers) for row, _ in entries)
        ratios = [_derive_ratio(entries, *pair) for pair in permutations(range(width), 2)]
        best = max(ratios, key=lambda derived: sum(one.is_right for one in derived), default=[])
        fitting = [one for one in best if one.is_right]
        is_told = len({one.cell.text for one in fitting}) > 1
        if is_told and len(fitting) >= max(MIN_FITTING, len(entries) / 2):
            yield from best


def _derive_ratio(
    entries: Sequence[tuple[PrintedRow, PrintedCell]], above: int, below: int
) -> list[DerivedCell]:
    """Derive speedups as column `above` over column `below` (indices), where both have a number."""
    return [
        DerivedCell(row, cell, numerator, denominator)
        for row, cell in entries
        for numerator, denominator in [(row.numbers[above], row.numbers[below])]
        if numerator is not None
        and denominator is not None
        and cell.column not in (numerator.column, denominator.column)
    ]
