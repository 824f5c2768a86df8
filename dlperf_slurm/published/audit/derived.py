"""A derived cell and the printed cells that it follows from -> the values that it may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

from dlperf_slurm.published.audit.rounding import PrintedCell, PrintedRow, RoundingInterval


@dataclass(frozen=True)
class DerivedCell:
    """A derived cell, which should be `factor` times a quotient of two printed cells.

    `limit` is the largest value that the device counts allow, None without a limit. `others` are
    quotients with another figure of the same configuration, by the place of that figure. The cell
    may also be one of the `alternatives`: a speedup of throughputs or of their latencies.
    """

    row: PrintedRow
    cell: PrintedCell
    numerator: PrintedCell
    denominator: PrintedCell
    factor: Fraction
    limit: Optional[Fraction]
    others: Mapping[str, RoundingInterval]
    alternatives: tuple[RoundingInterval, ...] = ()

    @property
    def value(self) -> Fraction:
        return self.factor * self.numerator.value / self.denominator.value

    @property
    def expected(self) -> RoundingInterval:
        """The values that the cell may have, because its inputs are rounded too."""
        if self.numerator is self.denominator:
            return RoundingInterval(self.factor, self.factor)
        quotient = self.numerator.rounded / self.denominator.rounded
        return RoundingInterval(self.factor * quotient.low, self.factor * quotient.high)

    @property
    def is_right(self) -> bool:
        spans = (self.expected, *self.alternatives)
        return any(self.cell.rounded.meets(span) for span in spans)

    @property
    def certain(self) -> Fraction:
        """The smallest quotient that the inputs' repeats, or else their rounding, allow."""
        if self.numerator is self.denominator:
            return self.factor
        least = self.numerator.spread or self.numerator.rounded
        most = self.denominator.spread or self.denominator.rounded
        return self.factor * (least / most).low
