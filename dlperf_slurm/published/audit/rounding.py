"""A printed number -> the interval of values that round to it; rows of cells, and findings."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import Optional

WRONG = "wrong"
TRUNCATED = "truncated"
STALE = "stale"
SWAPPED = "swapped columns"
ABOVE_DEVICES = "speedup above the device count"
OUT_OF_ORDER = "percentiles out of order"
LATENCY_OFF = "throughput x latency is not the batch size"
IN_SPREAD = (
    "throughput x latency differs from the batch size, but within the spread of the latencies in "
    "the row"
)
CONTRADICTION = "speedups contradict each other"
DUPLICATE = "printed twice with different values"

SAMPLES_PER_S = "samples_per_s"
SPEEDUP = "speedup"
EFFICIENCY = "efficiency"
PRECISION_SPEEDUP = "precision_speedup"
TRAINING_TIME = "time"
TIME_SPEEDUP = "time_speedup"
LATENCY_AVG = "latency_avg"

FULL_PRECISIONS = ("fp32", "tf32")
# mixed precision of a kind that the table does not name
REDUCED = "amp-fp16"

# relative error of a double after division, printing with all digits and parsing
EXACT_TOLERANCE = Fraction(1, 10**9)

# longer numbers are no figures, and Python limits the digits that int() converts
_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,2})?")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class RoundingInterval:
    """A closed interval: the values that a printed number, or a quotient of such, may stand for."""

    low: Fraction
    high: Fraction

    def __truediv__(self, other: "RoundingInterval") -> "RoundingInterval":
        return RoundingInterval(self.low / other.high, self.high / other.low)

    def __mul__(self, other: "RoundingInterval") -> "RoundingInterval":
        return RoundingInterval(self.low * other.low, self.high * other.high)

    def meets(self, other: "RoundingInterval") -> bool:
        """Return whether the intervals have a value in common."""
        return self.low <= other.high and other.low <= self.high


ONE = RoundingInterval(Fraction(1), Fraction(1))


@dataclass(frozen=True)
class PrintedCell:
    """A positive number as it was printed in a column.

    With `is_exact` it was printed with all digits, as in our own CSV; otherwise its last digit is
    rounded. `spread` is the range of the repeats of which it is the median, if the table prints it.
    The number times `scale` is in samples/s or ms; without a known unit it is not scaled.
    """

    text: str
    column: str
    is_exact: bool = False
    spread: Optional[RoundingInterval] = None
    scale: Optional[Fraction] = None

    @cached_property
    def value(self) -> Fraction:
        return Fraction(self.text) * (self.scale or 1)

    @cached_property
    def unit(self) -> Fraction:
        """The value of one unit in the last printed digit: 0.1 for "12.5", in the base unit."""
        return Fraction(10) ** -_count_digits(self.text) * (self.scale or 1)

    @cached_property
    def rounded(self) -> RoundingInterval:
        """The values that round to the printed number: within half a unit of its last digit."""
        half = self.value * EXACT_TOLERANCE if self.is_exact else self.unit / 2
        return RoundingInterval(self.value - half, self.value + half)

    @property
    def cut(self) -> RoundingInterval:
        """The values that give the printed number if their further digits are cut off."""
        if self.is_exact:
            return self.rounded
        # truncation removes less than a whole unit
        return RoundingInterval(self.value, self.value + self.unit * (1 - EXACT_TOLERANCE))


_CONFIGURATION: Callable[["PrintedRow"], tuple[object, ...]] = attrgetter(
    *("model", "framework", "precision", "compiler", "batch_size", "hardware", "concurrency")
)


@dataclass(frozen=True)
class PrintedRow:
    """One configuration of a table, with the cells that were printed for it.

    `cells` are by quantity: one of the constants above, such as SPEEDUP, or "latency_p99". `where`
    is the line in the publisher's repository, if the file is a copy. `software`, `note` and `table`
    distinguish figures of one configuration; so does `remark`, text after the figures, except for
    speedups. `batch_size` and `topology` are "", and `devices` is 0, if they were not printed. A
    printed line of several precisions becomes one row for each. `section` is shared by tables of
    one setting that belong together, such as one for each precision. `concurrency` is the number of
    clients of a server under load, 0 otherwise. `numbers` are the cells of all columns of the line,
    None for a cell that is no number.
    """

    file: str
    line: int
    table: str
    model: str
    framework: str
    precision: str
    compiler: str
    batch_size: str
    devices: int
    cells: Mapping[str, PrintedCell]
    where: str = ""
    software: str = ""
    note: str = ""
    hardware: str = ""
    repeat: int = 0
    remark: str = ""
    topology: str = ""
    section: str = ""
    concurrency: int = 0
    numbers: tuple[Optional[PrintedCell], ...] = ()

    @property
    def configuration(self) -> tuple[object, ...]:
        """The settings, except devices, that define a row's configuration: model, precision etc."""
        return _CONFIGURATION(self)

    @property
    def printed_line(self) -> tuple[str, int, str, str]:
        """The line's key: (file, line, publisher's place, table); line is 0 if there is a place."""
        return (self.file, 0 if self.where else self.line, self.where, self.table)

    @property
    def samples_per_s(self) -> Optional[PrintedCell]:
        return self.cells.get(SAMPLES_PER_S)

    def name_cell(self, cell: PrintedCell) -> str:
        """Return a cell's name for messages: its column, and the known parts of its row."""
        words = [
            self.software or self.framework,
            self.model,
            self.topology or (f"{self.devices} devices" if self.devices else ""),
            f"batch size {self.batch_size}" if self.batch_size else "",
            self.precision,
            "" if self.compiler in ("", "none") else self.compiler,
            self.note,
        ]
        return f"{cell.column}: " + ", ".join(word for word in words if word)


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
    factor: Fraction = Fraction(1)
    limit: Optional[Fraction] = None
    others: Mapping[str, RoundingInterval] = field(default_factory=dict)
    alternatives: tuple[RoundingInterval, ...] = ()

    @property
    def value(self) -> Fraction:
        """The expected value: factor * numerator / denominator, with these as they are printed."""
        return self.factor * self.numerator.value / self.denominator.value

    @property
    def expected(self) -> RoundingInterval:
        """The values that the cell may have: its inputs before rounding, divided."""
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
        """The smallest expected value, for inputs anywhere within their repeats or rounding."""
        if self.numerator is self.denominator:
            return self.factor
        least = self.numerator.spread or self.numerator.rounded
        most = self.denominator.spread or self.denominator.rounded
        return self.factor * (least / most).low


@dataclass(frozen=True)
class Discrepancy:
    """A finding: a cell that contradicts others, with its printed text and what follows from them.

    `excess` is the relative deviation beyond what rounding explains (0.01 is 1 %), or None for a
    kind without such a measure. `kind` is one of the texts above, such as STALE.
    """

    file: str
    line: int
    where: str
    cell: str
    published: str
    follows: str
    kind: str
    reason: str
    excess: Optional[float] = None


@dataclass(frozen=True)
class NotAudited:
    """A table, column or cell that was not recomputed, and why."""

    file: str
    line: int
    what: str
    reason: str


def make_finding(
    row: PrintedRow,
    cell: PrintedCell,
    kind: str,
    follows: str,
    reason: str,
    excess: Optional[float] = None,
) -> Discrepancy:
    """Make the finding of a row's cell; `follows` is the value that other cells give for it.

    `kind` is a constant of this module, such as STALE. `excess` is the relative deviation beyond
    rounding: 0.01 is 1 %, None if it was not measured.
    """
    name = row.name_cell(cell)
    return Discrepancy(
        row.file, row.line, row.where, name, cell.text, follows, kind, reason, excess
    )


def measure_gap(one: RoundingInterval, other: RoundingInterval) -> float:
    """Return the gap of two intervals: higher low end / lower high end - 1; 0 if they overlap."""
    low, high = (one, other) if one.high < other.high else (other, one)
    return max(0.0, float(high.low / low.high - 1)) if low.high > 0 else 0.0


def _count_digits(text: str) -> int:
    """Return the number of decimals of a printed number: 1 for "1.5"; -2 for "3e2"."""
    number, _, exponent = text.partition("e")
    return len(number.partition(".")[2]) - int(exponent or 0)


def make_cell(text: str, column: str, is_exact: bool = False) -> Optional[PrintedCell]:
    """Make the cell of a positive number such as "1,430.1"; None for any other text.

    `column` is its header. With `is_exact` the number has its full precision: no digit is rounded.
    """
    number = text.strip().replace(",", "")
    if _NUMBER.fullmatch(number) is None or not Fraction(number):
        return None
    return PrintedCell(number, column, is_exact)


def read_count(text: str) -> int:
    """Parse a number of devices or samples; return 0 for a text that is no whole number."""
    return int(text) if _COUNT.fullmatch(text) else 0


def format_value(value: Fraction, cell: PrintedCell) -> str:
    """Format a value in the cell's unit, two digits longer, to show if it is above or below it."""
    digits = max(_count_digits(cell.text) + 2, 0)
    return f"{float(value / (cell.scale or 1)):.{min(digits, 6)}f}"
