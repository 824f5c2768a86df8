"""Rows -> the derived cells that are not the quotient of printed cells that they should be."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter
from typing import Optional

from dlperf_slurm.checks.audit.printed import (
    ABOVE_DEVICES,
    EFFICIENCY,
    FULL_PRECISIONS,
    LATENCY_AVG,
    ONE,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
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
    measure_gap,
)

# Speedups whose quotient has the reference above the line: the smaller of two times is the better.
INVERSE_SPEEDUPS = {TIME_SPEEDUP: TRAINING_TIME}
_LATENCY_SPEEDUP = re.compile(r"(latency_\w+)_speedup")

# the key that the rows of one scaling curve share
_name_series: Callable[[Row], tuple[object, ...]] = attrgetter(
    *("file", "table", "model", "framework", "software"),
    *("precision", "compiler", "hardware", "repeat"),
)


@dataclass(frozen=True)
class Derived:
    """A derived cell, and the quotient of printed cells that it should be, times a factor.

    `limit` is the largest value that the devices allow, None where they set none. `others` are
    quotients with another figure of the same configuration, by the place where that stands. Any of
    the `alternatives` may be meant as well: a speedup of throughputs or of their latencies.
    """

    row: Row
    cell: Cell
    numerator: Cell
    denominator: Cell
    factor: Fraction
    limit: Optional[Fraction]
    others: Mapping[str, Span]
    alternatives: tuple[Span, ...] = ()

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
        spans = (self.expected, *self.alternatives)
        return any(self.cell.rounded.meets(span) for span in spans)

    @property
    def certain(self) -> Fraction:
        """The smallest quotient that the inputs' repeats allow, or their rounding."""
        if self.numerator is self.denominator:
            return self.factor
        least = self.numerator.spread or self.numerator.rounded
        most = self.denominator.spread or self.denominator.rounded
        return self.factor * (least / most).low


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


Index = Mapping[tuple[tuple[object, ...], int], Sequence[Row]]


def index_rows(rows: Sequence[Row]) -> Index:
    """Rows with a throughput by configuration and devices."""
    index: dict[tuple[tuple[object, ...], int], list[Row]] = {}
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
    """Speedups of a reduced precision over a full one, in the table or in its section."""
    tables: dict[tuple[str, str], list[Row]] = {}
    sections: dict[tuple[str, str], list[Row]] = {}
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


def _list_inputs(name: str, row: Row) -> list[str]:
    """The quantities that a speedup over a precision is one of, the likeliest first."""
    match = _LATENCY_SPEEDUP.fullmatch(name)
    if match is not None:
        return [match[1]]
    if name == PRECISION_SPEEDUP:
        return [name for name in (SAMPLES_PER_S, LATENCY_AVG) if name in row.cells]
    return [INVERSE_SPEEDUPS[name]] if name in INVERSE_SPEEDUPS else []


def _divide(
    row: Row, cell: Cell, inputs: Sequence[str], candidates: Sequence[Row]
) -> list[Derived]:
    """The cell over the reference that is clear, or else over one that it fits."""
    usable = [other for other in candidates if any(name in other.cells for name in inputs)]
    reference = _find_reference(row, usable)
    if reference is not None:
        return _derive(row, cell, inputs, reference)
    # the best of the full precision may have needed another batch size or accumulation
    loose = [
        other
        for other in usable
        if _name_setting(other, has_note=False) == _name_setting(row, has_note=False)
    ]
    tries = [one for other in loose for one in _derive(row, cell, inputs, other)]
    return [one for one in tries if one.is_right][:1]


def _derive(row: Row, cell: Cell, inputs: Sequence[str], reference: Row) -> list[Derived]:
    found = (_pair(name, row, reference) for name in inputs if name in reference.cells)
    pairs = [pair for pair in found if pair is not None]
    if not pairs:
        return []
    (above, below), *others = pairs
    spans = tuple(one.rounded / other.rounded for one, other in others)
    return [Derived(row, cell, above, below, Fraction(1), None, {}, spans)]


def _pair(name: str, row: Row, reference: Row) -> Optional[tuple[Cell, Cell]]:
    """The cells above and below the line; None where the row has none of the quantity."""
    ours = row.cells.get(name)
    if ours is None:
        return None
    theirs = ours if reference is row else reference.cells[name]
    if name != SAMPLES_PER_S and (ours.scale is None) != (theirs.scale is None):
        # the unit stands beside one of two times
        ours, theirs = replace(ours, scale=None), replace(theirs, scale=None)
    return (ours, theirs) if name == SAMPLES_PER_S else (theirs, ours)


def _name_setting(row: Row, has_note: bool = True) -> tuple[object, ...]:
    """The key, batch size apart, that rows of two precisions share."""
    setting = (row.framework, row.model, row.compiler, row.devices, row.topology, row.hardware)
    return (*setting, row.concurrency, row.note if has_note else "")


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
        gap = min(measure_gap(one.cell.rounded, s) for s in (one.expected, *one.alternatives))
        return make_finding(one.row, one.cell, kind, follows, f"{quotient}; {reason}", gap)
    if one.limit is not None and min(one.cell.rounded.low, one.certain) > one.limit:
        reason = f"{quotient}; at most {float(one.limit):g} is possible by the devices alone"
        excess = float(min(one.cell.rounded.low, one.certain) / one.limit - 1)
        return make_finding(one.row, one.cell, ABOVE_DEVICES, follows, reason, excess)
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
