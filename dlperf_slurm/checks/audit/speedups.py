"""Rows -> the derived cells that are not the quotient of printed cells that they should be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Optional

from dlperf_slurm.checks.audit.printed import (
    ABOVE_DEVICES,
    EFFICIENCY,
    FULL_PRECISIONS,
    ONE,
    PRECISION_SPEEDUP,
    SPEEDUP,
    STALE,
    SWAPPED,
    TIME_SPEEDUP,
    TRAINING_TIME,
    TRUNCATED,
    WRONG,
    Cell,
    Finding,
    Row,
    Span,
    format_value,
    make_finding,
)
from dlperf_slurm.stats.median import LATENCY_NAMES

# Speedups whose quotient has the reference above the line: the smaller of two times is the better.
INVERSE_SPEEDUPS = {
    TIME_SPEEDUP: TRAINING_TIME,
    **{f"latency_{name}_speedup": f"latency_{name}" for name in LATENCY_NAMES},
}

# the key that the rows of one scaling curve share
_name_series: Callable[[Row], tuple[object, ...]] = attrgetter(
    *("file", "table", "model", "framework", "software"),
    *("precision", "compiler", "hardware", "repeat"),
)
# the key, batch size apart, that rows of two precisions share
_name_setting: Callable[[Row], tuple[object, ...]] = attrgetter(
    "framework", "model", "compiler", "devices", "topology", "note"
)


@dataclass(frozen=True)
class Derived:
    """A derived cell, and the quotient of printed cells that it should be, times a factor.

    `limit` is the largest value that the devices allow, None where they set none. `others` are
    quotients with another figure of the same configuration, by the place where that stands.
    """

    row: Row
    cell: Cell
    numerator: Cell
    denominator: Cell
    factor: Fraction
    limit: Optional[Fraction]
    others: Mapping[str, Span]

    @property
    def value(self) -> Fraction:
        return self.factor * self.numerator.value / self.denominator.value

    @property
    def expected(self) -> Span:
        """The values that the cell may have, as its inputs are rounded too."""
        if self.numerator is self.denominator:
            return Span(self.factor, self.factor)
        quotient = self.numerator.rounded / self.denominator.rounded
        return Span(self.factor * quotient.low, self.factor * quotient.high)

    @property
    def is_right(self) -> bool:
        return self.cell.rounded.meets(self.expected)


def derive_cells(rows: Sequence[Row]) -> list[Derived]:
    """The derived cells whose inputs are among the rows."""
    return [*_derive_scaling(rows), *_derive_precision_speedups(rows)]


def _derive_scaling(rows: Sequence[Row]) -> Iterator[Derived]:
    """Speedups and efficiencies of rows that have a baseline."""
    index = index_rows(rows)
    series: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.samples_per_s is not None and row.devices:
            series.setdefault(_name_series(row), []).append(row)
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
                scaled = {p: Span(factor * s.low, factor * s.high) for p, s in others.items()}
                yield Derived(
                    row, cell, samples, base.samples_per_s, factor, factor * growth, scaled
                )


Index = Mapping[tuple[tuple[str, ...], int], Sequence[Row]]


def index_rows(rows: Sequence[Row]) -> Index:
    """Rows with a throughput by configuration and devices."""
    index: dict[tuple[tuple[str, ...], int], list[Row]] = {}
    for row in rows:
        if row.samples_per_s is not None:
            index.setdefault((row.configuration, row.devices), []).append(row)
    return index


def _list_alike(row: Row, devices: int, index: Index) -> Sequence[Row]:
    """Rows of the same configuration in any table; none where the model is not known."""
    return index.get((row.configuration, devices), ()) if row.model else ()


def _find_baseline(row: Row, series: Sequence[Row], index: Index) -> Optional[Row]:
    """The row of the fewest devices that a speedup is relative to; None when there is none.

    It is looked for in the row's series, first with the same note and batch size, then with any; at
    last it is a row of one device in any table.
    """
    cell = row.cells.get(SPEEDUP) or row.cells.get(EFFICIENCY)
    if cell is None or not row.devices:
        return None
    for is_same_note, is_same_size in ((True, True), (False, True), (True, False), (False, False)):
        candidates = [
            other
            for other in series
            if (other.note == row.note or not is_same_note)
            and (other.batch_size == row.batch_size or not is_same_size)
        ]
        base = _choose_smallest(cell, row, candidates)
        if base is not None:
            return base
    is_first = row.devices == 1 and any(other.devices > 1 for other in series)
    if cell.rounded.meets(ONE) or is_first:
        return row
    elsewhere = [other for other in _list_alike(row, 1, index) if not other.repeat]
    fitting = [other for other in elsewhere if _fits(cell, row, other)]
    return next(iter(fitting or elsewhere), None)


def _choose_smallest(cell: Cell, row: Row, candidates: Sequence[Row]) -> Optional[Row]:
    """The row of the fewest devices; of several the one that fits, None when none does."""
    fewest = min((other.devices for other in candidates), default=row.devices)
    smallest = [other for other in candidates if other.devices == fewest]
    if fewest >= row.devices or not _is_base(smallest[0]):
        return None
    fitting = [other for other in smallest if _fits(cell, row, other)]
    return next(iter(fitting or (smallest if len(smallest) == 1 else [])), None)


def _is_base(row: Row) -> bool:
    """Whether others may be relative to a row, which is itself not relative to fewer devices."""
    cell = row.cells.get(SPEEDUP)
    return cell is None or row.devices == 1 or cell.rounded.meets(ONE)


def _fits(cell: Cell, row: Row, base: Row) -> bool:
    if row.samples_per_s is None or base.samples_per_s is None:
        return False
    return cell.rounded.meets(row.samples_per_s.rounded / base.samples_per_s.rounded)


def _list_others(
    row: Row, samples: Cell, base: Row, base_samples: Cell, index: Index
) -> dict[str, Span]:
    """The quotients with another figure of the same configuration on one side of the line."""
    quotients: dict[str, Span] = {}
    for other in _list_alike(base, base.devices, index):
        if other is not base and other.samples_per_s is not None:
            place = f"{other.samples_per_s.text} at {name_place(other)}"
            quotients[place] = samples.rounded / other.samples_per_s.rounded
    for other in _list_alike(row, row.devices, index):
        if other is not row and other.samples_per_s is not None:
            place = f"{other.samples_per_s.text} at {name_place(other)}"
            quotients[place] = other.samples_per_s.rounded / base_samples.rounded
    return quotients


def name_place(row: Row) -> str:
    """The place of a row as readers know it: file and line."""
    return row.where or f"{row.file}:{row.line}"


def _derive_precision_speedups(rows: Sequence[Row]) -> Iterator[Derived]:
    """Speedups of a reduced precision that stands beside a full one."""
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.precision in FULL_PRECISIONS:
            tables.setdefault((row.file, row.table), []).append(row)
    for row in rows:
        reference = _find_reference(row, tables.get((row.file, row.table), ()))
        if reference is None:
            continue
        cell, samples = row.cells.get(PRECISION_SPEEDUP), row.samples_per_s
        if cell and samples and reference.samples_per_s:
            base = samples if reference is row else reference.samples_per_s
            yield Derived(row, cell, samples, base, Fraction(1), None, {})
        for name, of in INVERSE_SPEEDUPS.items():
            cell, time, other = row.cells.get(name), row.cells.get(of), reference.cells.get(of)
            if cell and time and other:
                yield Derived(row, cell, other, time, Fraction(1), None, {})


def _find_reference(row: Row, candidates: Sequence[Row]) -> Optional[Row]:
    """The row of the full precision that a speedup is relative to; None when it is not clear.

    It stands on the same printed line, as NVIDIA's, or has the same devices and batch size.
    """
    found = [other for other in candidates if _name_setting(other) == _name_setting(row)]
    found.sort(key=lambda other: FULL_PRECISIONS.index(other.precision))
    beside = [other for other in found if other.printed_line == row.printed_line]
    alike = [other for other in found if other.batch_size == row.batch_size]
    return next(iter(beside or alike or (found if len(found) == 1 else [])), None)


def check_speedups(derived: Sequence[Derived]) -> Iterator[Finding]:
    """The findings of recomputing each derived cell: one at most, with the plainest reason."""
    neighbours: dict[tuple[str, int, str, str], list[Derived]] = {}
    for one in derived:
        neighbours.setdefault(one.row.printed_line, []).append(one)
    for one in derived:
        finding = _check(one, neighbours[one.row.printed_line])
        if finding is not None:
            yield finding


def _check(one: Derived, neighbours: Sequence[Derived]) -> Optional[Finding]:
    quotient = f"{one.numerator.text} / {one.denominator.text}"
    follows = format_value(one.value, one.cell)
    if not one.is_right:
        kind, reason = _explain(one, neighbours)
        return make_finding(one.row, one.cell, kind, follows, f"{quotient}; {reason}")
    if one.limit is not None and one.cell.rounded.low > one.limit:
        reason = f"{quotient}; at most {float(one.limit):g} is possible by the devices alone"
        return make_finding(one.row, one.cell, ABOVE_DEVICES, follows, reason)
    return None


def _is_cut(one: Derived) -> bool:
    return one.cell.cut.meets(one.expected)


def _explain(one: Derived, neighbours: Sequence[Derived]) -> tuple[str, str]:
    if one.cell.value <= one.value and _is_cut(one):
        return TRUNCATED, "cut, not rounded"
    for other in neighbours:
        is_swapped = other is not one and not other.is_right
        if is_swapped and one.cell.rounded.meets(other.expected):
            return SWAPPED, f"is what follows for {other.row.name_cell(other.cell)}"
    for place, expected in one.others.items():
        if one.cell.rounded.meets(expected):
            return STALE, f"would follow from {place}"
    return WRONG, f"off by {float(one.cell.value / one.value - 1):+.2%}"
