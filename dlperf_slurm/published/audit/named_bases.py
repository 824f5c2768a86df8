"""Speedups that have no base of fewer devices -> quotients by the row of their table that says 1.

Such a column compares software, machines or batch sizes; its base is the row in which it is 1, of
one batch size or of the whole table. That row is believed only where most others follow from it.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from fractions import Fraction
from operator import attrgetter

from dlperf_slurm.published.audit.derived import Derived
from dlperf_slurm.published.audit.printed import (
    LATENCY_AVG,
    PRECISION_SPEEDUP,
    SAMPLES_PER_S,
    SPEEDUP,
    TRAINING_TIME,
    Row,
)

# what may share a base, from rows that have most in common to a whole table
_SHARED: tuple[Callable[[Row], tuple[object, ...]], ...] = tuple(
    attrgetter("file", "table", *properties)
    for properties in (("precision", "batch_size"), ("batch_size",), ("precision",), ())
)


def derive_by_named_base(rows: Sequence[Row], checked: Set[int]) -> Iterator[Derived]:
    """The speedups of rows whose cells (by their ids) are not checked, and that have a base."""
    done = set(checked)
    for quantity in (SPEEDUP, PRECISION_SPEEDUP):
        for find_key in _SHARED:
            groups: dict[tuple[object, ...], list[Row]] = {}
            for row in rows:
                if quantity in row.cells and id(row.cells[quantity]) not in done:
                    groups.setdefault(find_key(row), []).append(row)
            for group in groups.values():
                derived = _derive_group(group, quantity)
                done.update(id(one.cell) for one in derived)
                yield from derived


def _derive_group(group: Sequence[Row], quantity: str) -> list[Derived]:
    """The quotients of rows with one base; none where half of them or fewer are what is printed."""
    bases = [row for row in group if row.cells[quantity].value == 1]
    if len(bases) != 1:
        return []
    for name in (SAMPLES_PER_S, LATENCY_AVG, TRAINING_TIME):
        if name not in bases[0].cells:
            continue
        derived = [_derive(row, bases[0], quantity, name) for row in group if name in row.cells]
        fitting = sum(one.is_right for one in derived if one.row is not bases[0])
        if fitting > (len(group) - 1) / 2:
            return derived
    return []


def _derive(row: Row, base: Row, quantity: str, name: str) -> Derived:
    """The quotient of throughputs, or of times, which is the other way round."""
    above, below = (row, base) if name == SAMPLES_PER_S else (base, row)
    cells = above.cells[name], below.cells[name]
    return Derived(row, row.cells[quantity], *cells, Fraction(1), None, {})
