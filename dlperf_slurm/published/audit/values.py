"""The text of a cell -> the values in it, each with its unit, variant and batch size."""

import dataclasses
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

from dlperf_slurm.published.audit.headers import PrintedColumn
from dlperf_slurm.published.audit.rounding import (
    TRAINING_TIME,
    PrintedCell,
    RoundingInterval,
    make_cell,
)

# additions to a value in our and DLPerf's tables: (39.1 to 41.0), {39.1 to 41.0}, [1], n=5 of 7
_BESIDE = re.compile(r"\([^)]*\)|\{[^}]*\}|\[[0-9]+\]|n=[0-9]+ of [0-9]+")
_LINK = re.compile(r"\[([^][]*)\]\([^)]*\)")
_TAG = re.compile(r"</?su[pb]>|<br ?/?>|\*\*|`")
_SPREAD = re.compile(r"[({]([0-9.]+) to ([0-9.]+)[)}]")
# a number with a space between thousands: 29 911
_SPACED = re.compile(r"[0-9]{1,3}(?: [0-9]{3})+(?:\.[0-9]+)?")
# a number with other text next to it is no value: "1h02min", "-1.5"
_VALUE = re.compile(
    r"(?<!\S)x?(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?(?:e[-+][0-9]{2})?)"
    r"(?:(?P<percent> ?%)|(?P<thousands>\s?[kMG](?![a-z]))"
    r"|(?P<unit>\s?(?:ms|us|s|sec|min|h|hrs?|hours?)))?"
    r"x?(?=\s|$|w/)"
    r"\s*(?P<variant>(?:w/o|w/)\s?[a-z]+)?\s*(?:bsz=(?P<size>[0-9]+))?",
    re.IGNORECASE,
)
_DURATION = re.compile(r"(?P<hours>[0-9]{1,4}) ?h(?:rs?|ours?)? ?(?P<minutes>[0-9]{1,2}) ?m(?:in)?")
_CLOCK = re.compile(r"([0-9]{1,4}):([0-9]{2}):([0-9]{2})")
_NO_VALUE = re.compile(
    r"[-\u2013\u2014]+|n\.?/?a\.?|oom|failed|missing|not run|not in the matrix|no reference"
    r"|unknown|\s*"
)
_THOUSANDS = {"k": Fraction(10**3), "m": Fraction(10**6), "g": Fraction(10**9)}
# in milliseconds
_UNITS = {
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "sec": Fraction(1000),
    "min": Fraction(60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Fraction(3_600_000)),
}


@dataclass(frozen=True)
class CellValue:
    """One value of a cell, with its variant ("w/o clip") and batch size, "" if it names none."""

    cell: PrintedCell
    variant: str
    batch_size: str


def read_values(text: str, column: PrintedColumn) -> list[CellValue]:
    """Parse the values of a cell; [] if it has none, or several that no variant name distinguishes.

    Values of a list, "1.2 / 3.4", that have no variant names get "value 1" and "value 2".
    """
    duration = _read_duration(text, column)
    if duration is not None:
        return [CellValue(duration, column.variant, "")]
    matches = list(_VALUE.finditer(_clean(text)))
    is_list = " / " in text
    values = []
    for position, match in enumerate(matches):
        cell = _make_cell(match, column)
        variants = {(each["variant"] or "").lower() for each in matches}
        if cell is None or (not is_list and len(variants) < len(matches)):
            return []
        variant = (match["variant"] or "").lower()
        if is_list and not variant:
            variant = f"value {position + 1}"
        cell = dataclasses.replace(cell, spread=_find_spread(text, column.header))
        values.append(CellValue(cell, variant or column.variant, match["size"] or ""))
    return values


def _read_duration(text: str, column: PrintedColumn) -> Optional[PrintedCell]:
    """Parse a training time such as 1h02min or 1:02:00; None for any other text or column."""
    if column.quantity != TRAINING_TIME:
        return None
    words, clock = _DURATION.fullmatch(_clean(text)), _CLOCK.fullmatch(_clean(text))
    if words is not None:
        minutes = int(words["hours"]) * 60 + int(words["minutes"])
        return PrintedCell(str(minutes), column.header, scale=_UNITS["min"]) if minutes else None
    if clock is not None:
        seconds = (int(clock[1]) * 60 + int(clock[2])) * 60 + int(clock[3])
        return PrintedCell(str(seconds), column.header, scale=_UNITS["s"]) if seconds else None
    return None


def has_no_value(text: str) -> bool:
    """Return whether a cell stands for no value: it is empty, a dash, or a word such as n/a."""
    return _NO_VALUE.fullmatch(_clean(text).strip().lower()) is not None


def is_number(text: str) -> bool:
    """Return whether a cell has one number and nothing else but its unit, variant or batch size."""
    return _VALUE.fullmatch(_clean(text).strip()) is not None


def _find_spread(text: str, header: str) -> Optional[RoundingInterval]:
    """Return the range of the repeats after a median, as our reports print it, or None.

    "40.2 (39.1 to 41.0)" gives 39.1 to 41.0.
    """
    match = _SPREAD.search(text)
    low, high = (make_cell(match[side], header) for side in (1, 2)) if match else (None, None)
    return RoundingInterval(low.rounded.low, high.rounded.high) if low and high else None


def _clean(text: str) -> str:
    """Return a cell's text without links, tags, footnote marks, ranges and thousands' spaces."""
    text = _BESIDE.sub("", _LINK.sub(r"\1", _TAG.sub(" ", text))).strip().replace("\u00d7", "x")
    return text.replace(" ", "") if _SPACED.fullmatch(text) else text


def _make_cell(match: "re.Match[str]", column: PrintedColumn) -> Optional[PrintedCell]:
    """Make the cell of a matched number: a percentage as a fraction, a unit as the cell's scale."""
    if match["percent"]:
        whole, _, digits = match["number"].partition(".")
        return make_cell(f"{whole.zfill(3)[:-2]}.{whole.zfill(3)[-2:]}{digits}", column.header)
    cell = make_cell(match["number"].lower(), column.header)
    return cell and dataclasses.replace(cell, scale=_find_scale(match, column))


def _find_scale(match: "re.Match[str]", column: PrintedColumn) -> Optional[Fraction]:
    """Return the factor from a number's unit to samples/s or ms, or None if the unit is unknown.

    A unit or a prefix in the cell, as in "1.2 s" or "3k", overrides the header's unit. `match` has
    the groups of _VALUE.
    """
    if match["thousands"]:
        return _THOUSANDS[match["thousands"].strip().lower()]
    is_time = column.quantity.startswith("latency") or column.quantity == TRAINING_TIME
    if match["unit"] and is_time:
        return _UNITS[match["unit"].strip().lower()]
    return column.scale


def is_rate(text: str) -> bool:
    """Return whether a cell has a rate, such as img/s, after its number."""
    return re.search(r"[a-z] ?/ ?s(ec|econd)?\b", text.lower()) is not None
