"""Time stamps of logs -> seconds, good for differences within one log."""

import calendar
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing import Match

# for a format's patterns, as group(s) of their own; days that no calendar has do not match
_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"[0-2]\d:[0-5]\d:[0-6]\d"
DATE_TIME = rf"(?:19|20)\d\d[-/](?:0[1-9]|1[0-2])[-/]{_DAY}[ T]{_CLOCK}(?:[.,]\d{{1,9}})?"
# glog and absl: I0826 15:12:50.113950, without a year
GLOG_TIME = rf"[IWEF](?:0[1-9]|1[0-2]){_DAY} {_CLOCK}\.\d{{1,9}}"

_PARTS = re.compile(
    r"(?:(\d{4})[-/]|[IWEF])(\d\d)[-/]?(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"
)
SECONDS_PER_YEAR = 365 * 86400


def parse_time(text: str) -> float:
    """Seconds of what DATE_TIME or GLOG_TIME matched, in whatever time zone.

    Times without a year are those of 1972, which has a 29th of February.
    """
    match = cast("Match[str]", _PARTS.match(text))
    year, *rest = (int(part or 1972) for part in match.groups()[:6])
    fraction = match.group(7) or "0"
    whole = calendar.timegm((year, rest[0], rest[1], rest[2], rest[3], rest[4], 0, 0, 0))
    return whole + int(fraction) / float(10 ** len(fraction))


def subtract_times(end: float, start: float) -> float:
    """Seconds between two times; New Year may lie between times without a year."""
    seconds = end - start
    if seconds < -SECONDS_PER_YEAR / 2:
        return seconds + SECONDS_PER_YEAR + 86400
    return seconds
