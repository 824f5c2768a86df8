"""Number formats that columns declare and tables use to print figures."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from dlperf_slurm.stats.median import Interval


@dataclass(frozen=True)
class ScaledFormat:
    """A number format: a `format` spec, a factor to convert to the printed unit, and that unit.

    `unit` includes a leading space. If `digits` is set, numbers have that many significant digits;
    if `last_place` is set, they are rounded to that decimal place (1: tenths, -1: tens). `spec` is
    then not used.
    """

    spec: str = ".2f"
    factor: float = 1.0
    unit: str = ""
    last_place: Optional[int] = None
    digits: int = 0

    def write(self, value: float) -> str:
        """Format a value of the data frame in the printed unit, without the unit's name."""
        if self.last_place is None and self.digits:
            return write_digits(self.factor * value, self.digits)
        if self.last_place is None:
            return format(self.factor * value, self.spec)
        return f"{round(self.factor * value, self.last_place):.{max(self.last_place, 0)}f}"

    def limit(self, bounds: "Optional[Interval]") -> "ScaledFormat":
        """Return the format with no more digits than a number's confidence interval justifies.

        These are two significant digits of half the width of the interval `bounds` (GUM, JCGM
        100:2008, 7.2.6). Unchanged without an interval.
        """
        half_width = 0.0 if bounds is None else self.factor * (bounds.high - bounds.low) / 2
        if half_width <= 0:
            return self
        limited = replace(self, last_place=1 - math.floor(math.log10(half_width)))
        is_shorter = len(limited.write(half_width)) < len(self.write(half_width))
        return limited if is_shorter else self


def write_digits(value: float, digits: int = 4) -> str:
    """Format a number with this many significant digits, without exponent: "1705", "0.0123"."""
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - size)}f}"


@dataclass(frozen=True)
class DurationFormat:
    """A format of seconds as durations: "42.1 s", "8 h 45 min"."""

    unit: str = ""

    def write(self, value: float) -> str:
        if round(value, 1) < 60:
            return f"{value:.1f} s"
        minutes, rest = divmod(round(value), 60)
        if minutes < 60:
            return f"{minutes} min {rest} s"
        return f"{minutes // 60} h {minutes % 60} min"

    def limit(self, bounds: "Optional[Interval]") -> "DurationFormat":
        """Return this format unchanged; durations have few digits anyway."""
        return self


RATIO = ScaledFormat()
COUNT = ScaledFormat(".0f")
PERCENT = ScaledFormat(".3f", 100)
SHARE = ScaledFormat(".1f", 100, " %")
MILLISECONDS = ScaledFormat(factor=1000)

# words in place of a missing figure
NO_REFERENCE = "no reference"
UNKNOWN = "unknown"

NumberFormat = Union[ScaledFormat, DurationFormat]
