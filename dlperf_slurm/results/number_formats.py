"""How figures are printed: the number formats that columns declare, and tables use."""

import math
from dataclasses import dataclass, replace
from typing import Optional, Union

from dlperf_slurm.stats.median import Interval


@dataclass(frozen=True)
class Number:
    """How figures are written: by `spec`, as `format` takes it, and in the unit.

    `factor` is how many of the unit a figure's own unit has; `unit` comes with its blank. Where
    `last_place` is there, figures are written up to it and not by `spec`: 1 is tenths, -1 is tens.
    """

    spec: str = ".2f"
    factor: float = 1.0
    unit: str = ""
    last_place: Optional[int] = None

    def write(self, value: float) -> str:
        if self.last_place is None:
            return format(self.factor * value, self.spec)
        return f"{round(self.factor * value, self.last_place):.{max(self.last_place, 0)}f}"

    def limit(self, bounds: Optional[Interval]) -> "Number":
        """The form that has no more digits than bounds of a figure know: two of their half width.

        These are as many as an uncertainty is given with (GUM, JCGM 100:2008, 7.2.6).
        """
        half_width = 0.0 if bounds is None else self.factor * (bounds.high - bounds.low) / 2
        if half_width <= 0:
            return self
        limited = replace(self, last_place=1 - math.floor(math.log10(half_width)))
        is_shorter = len(limited.write(half_width)) < len(self.write(half_width))
        return limited if is_shorter else self


def write_digits(value: float, digits: int = 4) -> str:
    """A figure with so many digits that count, and never with an exponent: "1705", "0.0123"."""
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - size)}f}"


@dataclass(frozen=True)
class Duration:
    """How seconds are written, as short as they are precise: "42.1 s", "8 h 45 min"."""

    unit: str = ""

    def write(self, value: float) -> str:
        if round(value, 1) < 60:
            return f"{value:.1f} s"
        minutes, rest = divmod(round(value), 60)
        if minutes < 60:
            return f"{minutes} min {rest} s"
        return f"{minutes // 60} h {minutes % 60} min"

    def limit(self, bounds: Optional[Interval]) -> "Duration":
        """The form itself, which is never more than five digits."""
        return self


RATIO = Number()
COUNT = Number(".0f")
PERCENT = Number(".3f", 100)
SHARE = Number(".1f", 100, " %")
MILLISECONDS = Number(factor=1000)

# what stands where there is no figure
NO_REFERENCE = "no reference"
UNKNOWN = "unknown"

NumberFormat = Union[Number, Duration]
