"""Derived cells -> those that their inputs do not give, and why."""

from collections.abc import Iterator, Sequence
from typing import Optional

from dlperf_slurm.checks.audit.derived import Derived
from dlperf_slurm.checks.audit.printed import (
    ABOVE_DEVICES,
    STALE,
    SWAPPED,
    TRUNCATED,
    WRONG,
    Finding,
    format_value,
    make_finding,
)


def check_speedups(derived: Sequence[Derived]) -> Iterator[Finding]:
    """Recompute each; one finding per cell, the plainest reason first."""
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
