"""A printed speedup or efficiency -> the values that it may have, by the cells it follows from."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

from dlperf_slurm.published.audit.rounding import PrintedCell, PrintedRow, RoundingInterval


@dataclass(frozen=True)
class DerivedCell:
    """A printed speedup or efficiency, which should be `factor` * `numerator` / `denominator`.

    `limit` is the largest value that the device counts allow (8 for a speedup from 1 to 8 devices),
    None without a limit. `others` are the quotients with another printed figure of the same
    configuration, by file and line of that figure: they explain a wrong cell. `alternatives` are
    quotients that are right too: a speedup may be of throughputs or of latencies.
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
        """The expected value, from the inputs as they are printed."""
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
        """Whether the printed cell may be a rounding of an expected value."""
        spans = (self.expected, *self.alternatives)
        return any(self.cell.rounded.meets(span) for span in spans)

    @property
    def certain(self) -> Fraction:
        """The smallest expected value that the inputs' repeats, or else their rounding, allow."""
        if self.numerator is self.denominator:
            return self.factor
        least = self.numerator.spread or self.numerator.rounded
        most = self.denominator.spread or self.denominator.rounded
        return self.factor * (least / most).low
