"""Parts of the formats' patterns -> values of what they matched: numbers, times, arguments."""

import calendar
import re
from typing import Dict, Mapping, Match, Pattern, cast

# prefix of Python's logging: INFO:root:, or a time with name and level
LOGGER_PREFIX = (
    r"(?:INFO:[\w.]{0,60}:\s?"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?[\s:-]{0,4}"
    r"(?:[\w.]{1,60}[\s:-]{1,4}){0,2})?"
)
# one group for a possibly long line; parse_namespace splits it
NAMESPACE = r"Namespace\((?P<namespace>.*)\)\s*$"
COUNT = r"\d{1,9}"
DECIMAL = r"\d{1,9}\.\d{1,9}"
# bounded, so that float() is finite; commas separate thousands
NUMBER = r"[-+]?\d[\d,]{0,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,2})?"

# days such as 00 and 32 do not match
_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"[0-2]\d:[0-5]\d:[0-6]\d"
DATE_TIME = rf"(?:19|20)\d\d[-/](?:0[1-9]|1[0-2])[-/]{_DAY}[ T]{_CLOCK}(?:[.,]\d{{1,9}})?"
# glog and absl: I0826 15:12:50.113950, without a year
GLOG_TIME = rf"[IWEF](?:0[1-9]|1[0-2]){_DAY} {_CLOCK}\.\d{{1,9}}"

PRECISIONS = {
    "fp32": "fp32",
    "float32": "fp32",
    "tf32": "tf32",
    "amp": "amp-fp16",
    "fp16": "amp-fp16",
    "float16": "amp-fp16",
    "bf16": "amp-bf16",
    "bfloat16": "amp-bf16",
}
"""Names of precisions in logs and file names -> this project's names.

With `float16`, scripts keep the optimizer's weights in float32, which is mixed precision.
"""

SECONDS_PER_YEAR = 365 * 86400

_PARTS = re.compile(
    r"(?:(\d{4})[-/]|[IWEF])(\d\d)[-/]?(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"
)
# bounded repeats keep text with unclosed brackets fast
_ARGUMENT = re.compile(
    r"(\w+)=('[^']{0,4000}'|\"[^\"]{0,4000}\"|\[[^\]]{0,4000}\]|\([^)]{0,4000}\)|[^,]*)"
)


def join_patterns(*patterns: Pattern[str]) -> Pattern[str]:
    """Return a pattern that matches if any of these does, without their group names."""
    bare = (re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern) for pattern in patterns)
    return re.compile("|".join(f"(?:{each})" for each in bare))


def parse_number(text: str) -> float:
    """Parse a number that NUMBER matched; the result is always finite."""
    return float(text.replace(",", ""))


def parse_time(text: str) -> float:
    """Parse a time that DATE_TIME or GLOG_TIME matched into seconds since 1970, as if it were UTC.

    Times without a year are in 1972, which has a 29th of February.
    """
    match = cast("Match[str]", _PARTS.match(text))
    year, *rest = (int(part or 1972) for part in match.groups()[:6])
    fraction = match.group(7) or "0"
    whole = calendar.timegm((year, rest[0], rest[1], rest[2], rest[3], rest[4], 0, 0, 0))
    return whole + int(fraction) / float(10 ** len(fraction))


def subtract_times(end: float, start: float) -> float:
    """Return the seconds between two times, also across New Year if they have no year."""
    seconds = end - start
    if seconds < -SECONDS_PER_YEAR / 2:
        return seconds + SECONDS_PER_YEAR + 86400
    return seconds


def parse_namespace(text: str) -> Dict[str, str]:
    """Parse the text inside an argparse `Namespace(...)` to name -> value, without quotes."""
    return {name: value.strip("'\"") for name, value in _ARGUMENT.findall(text)}


def read_count(parameters: Mapping[str, str], name: str) -> int:
    """Return a parameter as a whole number above 0 (`20.0` too), or 0 if it is not one."""
    try:
        value = float(parameters.get(name, ""))
    except ValueError:
        return 0
    return int(value) if 0 < value < 1e15 and value == int(value) else 0


def is_true(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").lower() in ("true", "1", "yes")


def get_precision(parameters: Mapping[str, str], *flags: str) -> str:
    """Return amp-fp16 if one of these `flags` in the log is true, else fp32; "" if it has none."""
    if not any(flag in parameters for flag in flags):
        return ""
    return "amp-fp16" if any(is_true(parameters, flag) for flag in flags) else "fp32"
