"""Duration options such as "90s" -> seconds; estimated seconds -> text."""

import math
import re

from dlperf_slurm.errors import InputError

_UNITS = {"s": 1, "min": 60, "h": 3600}


def parse_duration(text: str, option: str) -> float:
    """Parse "90s", "5min" or "1.5h" into seconds; raises InputError, which names the option."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|min|h)", text.strip(), re.ASCII)
    if found is None or not float(found[1]):
        raise InputError(f"{option}: {text!r} is not a duration, such as 90s, 5min or 1h")
    return float(found[1]) * _UNITS[found[2]]


def write_duration(seconds: float) -> str:
    """Format an estimated duration: "40 s" below 110 s, "12 min" below 90 min, else "1.5 h"."""
    if seconds < 110:
        return f"{max(10, 10 * math.ceil(seconds / 10))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
