"""Series of points -> the geometry of the page's interactive SVG charts.

These charts are a twentieth of the size of matplotlib's figures, and their points have tooltips.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Optional

from dlperf_slurm.reports.plots.lines import HEADROOM, PlotPoint, is_wide_range
from dlperf_slurm.reports.plots.style import SERIES_COLORS

# in SVG user units, about one CSS pixel each
WIDTH, HEIGHT = 400.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 10.0, 24.0
MOST_TICKS = 5
MOST_DODGE = 3.0
# of a logarithmic axis: two ticks do not show that it is logarithmic
LEAST_TICKS = 3
_HUES = len(SERIES_COLORS)
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3")
# the SVG path of each marker, centred on the origin
MARKERS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3-3h6v6h-6z",
    "M0-4l3.8 6.6h-7.6z",
    "M0-4.2l4.2 4.2l-4.2 4.2l-4.2-4.2z",
    "M0 4l3.8-6.6h-7.6z",
    "M-1.4-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "M0-4.4l1.4 2.6l3 .5l-2.1 2.1l.4 3l-2.7-1.3l-2.7 1.3l.4-3l-2.1-2.1l3-.5z",
)


@dataclass(frozen=True)
class SeriesStyle:
    """The style of a series in a chart: dashes by `kind`, colour and marker by `hue`.

    `label` (framework and variant) and `kind` (precision and group) are indices in
    `Overview.labels` and `Overview.kinds`. `hue` is the index of the label, or of the kind if all
    series have the same label; None in the legend entry of a kind that several labels share.
    """

    label: int
    kind: int
    hue: Optional[int]

    @property
    def color(self) -> str:
        return "var(--muted)" if self.hue is None else f"var(--series-{self.hue % _HUES + 1})"

    @property
    def marker(self) -> str:
        return MARKERS[(self.hue or 0) % len(MARKERS)]

    @property
    def dashes(self) -> str:
        return DASHES[self.kind % len(DASHES)]

    @property
    def fill(self) -> str:
        """The fill colour of markers: the series' colour for the first kind, else hollow."""
        return "var(--page)" if self.kind else self.color


@dataclass(frozen=True)
class ChartLine:
    """A series of points; `tips[i]` is the tooltip of point i."""

    name: str
    look: SeriesStyle
    points: tuple[PlotPoint, ...]
    tips: tuple[str, ...]


class ChartPoint(NamedTuple):
    """A point in SVG coordinates, with the ends of its error bar and its tooltip."""

    x: float
    y: float
    low: Optional[float]
    high: Optional[float]
    tip: str


@dataclass(frozen=True)
class Chart:
    """Lines or bars over common x ticks; `ideal` is the value of a reference line.

    The y axis of lines begins at zero, or at half of the ideal if all values are above; it is
    logarithmic for a wide range of values without an ideal. That of bars begins at zero.
    """

    title: str
    caption: str
    ticks: tuple[tuple[float, str], ...]
    lines: tuple[ChartLine, ...]
    ideal: Optional[float] = None
    has_bars: bool = False
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def placed_lines(self) -> list[tuple[ChartLine, list[ChartPoint]]]:
        """Each line with its points in SVG coordinates, shifted in x by a multiple of `dodge`."""
        middle, dodge = (len(self.lines) - 1) / 2, self.dodge
        return [
            (line, [*self._place_points(line, (number - middle) * dodge)])
            for number, line in enumerate(self.lines)
        ]

    def _place_points(self, line: ChartLine, shift: float) -> Iterator[ChartPoint]:
        for point, tip in zip(line.points, line.tips):
            low, high = (None if y is None else self.place_y(y) for y in (point.low, point.high))
            x = round(self.place_x(point.x) + shift, 1)
            yield ChartPoint(x, self.place_y(point.y), low, high, tip)

    @property
    def dodge(self) -> float:
        """The distance in x of adjacent series at one tick, so that markers do not overlap."""
        xs = sorted(x for x, _ in self.x_ticks)
        gap = min((b - a for a, b in zip(xs, xs[1:])), default=WIDTH - LEFT - RIGHT)
        share = gap / len(self.lines)
        return round(0.8 * share if self.has_bars else min(MOST_DODGE, 0.4 * share), 1)

    @property
    def bottom(self) -> float:
        """The y coordinate (SVG) of the lower end of bars."""
        return HEIGHT - BOTTOM

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        return [(self.place_x(x), label) for x, label in self.ticks]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        return [(self.place_y(y), f"{y:g}") for y in self._levels]

    @property
    def ideal_y(self) -> Optional[float]:
        return None if self.ideal is None else self.place_y(self.ideal)

    @property
    def _values(self) -> list[float]:
        points = [point for line in self.lines for point in line.points]
        ends = [end for point in points for end in (point.low, point.high) if end is not None]
        return [*(point.y for point in points), *ends, *([self.ideal] if self.ideal else [])]

    @property
    def is_logarithmic(self) -> bool:
        """Whether the y axis is logarithmic: values of a wide range, and no ideal line."""
        return self.ideal is None and is_wide_range(self._values)

    @property
    def _levels(self) -> list[float]:
        """The values of the y axis at which ticks are drawn."""
        if self.is_logarithmic:
            return list_ratio_ticks(min(self._values), max(self._values))
        return list_ticks(HEADROOM * max(self._values), self._floor)

    @property
    def _floor(self) -> float:
        """The value at the bottom of a linear y axis."""
        half = 0.0 if self.ideal is None or self.has_bars else self.ideal / 2
        return half if min(self._values) > half else 0.0

    def place_x(self, x: float) -> float:
        """Convert an x value of the data to an SVG coordinate."""
        xs = [tick for tick, _ in self.ticks]
        low, high = min(xs), max(xs)
        room = WIDTH - LEFT - RIGHT
        inset = (0.5 / len(xs) if self.has_bars else 0.06) * room
        share = (x - low) / (high - low) if high > low else 0.5
        return round(LEFT + inset + share * (room - 2 * inset), 1)

    def place_y(self, y: float) -> float:
        """Convert a y value of the data to an SVG coordinate."""
        room = HEIGHT - TOP - BOTTOM
        levels = self._levels
        if self.is_logarithmic:
            low, high = math.log(levels[0]), math.log(max(levels[-1], max(self._values)))
            share = (math.log(y) - low) / (high - low)
        else:
            highest = max(levels[-1], HEADROOM * max(self._values))
            share = (y - self._floor) / (highest - self._floor)
        return round(HEIGHT - BOTTOM - share * room, 1)


def list_ticks(highest: float, lowest: float = 0.0) -> list[float]:
    """List round, evenly spaced ticks from `lowest` to `highest`, in at most MOST_TICKS steps."""
    if highest <= lowest:
        return [lowest]
    span = highest - lowest
    size = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(size * f for f in (1, 2, 2.5, 5, 10) if span / (size * f) <= MOST_TICKS)
    return [step * i for i in range(math.ceil(lowest / step), int(highest / step) + 1)]


def list_ratio_ticks(lowest: float, highest: float) -> list[float]:
    """List the ticks of a logarithmic axis: powers of ten times 1, 2 and 5.

    The first is the largest not above `lowest`, the last the largest not above `highest`; there are
    at least LEAST_TICKS.
    """
    first = math.floor(math.log10(lowest))
    last = math.ceil(math.log10(highest)) + 1
    every = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
    start = max(i for i, value in enumerate(every) if value <= lowest)
    count = sum(value <= highest for value in every[start:])
    return every[start : start + max(LEAST_TICKS, count)]


# sparklines in table rows
TREND_WIDTH, TREND_HEIGHT = 72.0, 22.0


@dataclass(frozen=True)
class Sparkline:
    """A small line without axes in a table cell, or a bar if there is a value at one x alone.

    `values[i]` is at position `places[i]` of `count`; values are between `lowest` and `highest`;
    `ideal` is the value of a reference line.
    """

    look: SeriesStyle
    places: tuple[int, ...]
    values: tuple[float, ...]
    count: int
    lowest: float
    highest: float
    tip: str
    ideal: Optional[float] = None
    width: float = TREND_WIDTH
    height: float = TREND_HEIGHT

    @property
    def dots(self) -> list[tuple[float, float]]:
        room = TREND_WIDTH - 12
        return [
            (round(6 + room * place / max(1, self.count - 1), 1), self._place(value))
            for place, value in zip(self.places, self.values)
        ]

    @property
    def ideal_y(self) -> Optional[float]:
        return None if self.ideal is None else self._place(self.ideal)

    @property
    def bar(self) -> float:
        """The length in SVG units of the bar that replaces the line if there is only one value."""
        return round(TREND_WIDTH * self.values[0] / self.highest, 1)

    def _place(self, value: float) -> float:
        share = (value - self.lowest) / (self.highest - self.lowest)
        return round(TREND_HEIGHT - 3 - (TREND_HEIGHT - 6) * share, 1)
