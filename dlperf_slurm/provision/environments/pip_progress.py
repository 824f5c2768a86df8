"""The lines that pip has printed so far -> how far it is, in a few words."""

import re
from collections.abc import Sequence

_SIZE = re.compile(r"^\s*(Downloading|Using cached) \S+ \((\d+(?:\.\d+)?) (\S*)B\)")
_MEGABYTES = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}


def describe_pip(lines: Sequence[str], packages: int) -> str:
    """Such as "5 of 31 packages, 120 MB, 30 MB of them from pip's cache".

    `packages` are those that it was asked for; what they need besides counts too. It is empty
    before the first one, and "writing 31 packages" once all are there.
    """
    for line in reversed(lines):
        if line.startswith("Installing collected packages: "):
            count = line.partition(": ")[2].count(",") + 1
            return f"writing {count} package{'s' * (count > 1)}"
    begun = sum(line.startswith("Collecting ") for line in lines)
    if not begun:
        return ""
    megabytes = {"Downloading": 0.0, "Using cached": 0.0}
    for line in lines:
        match = _SIZE.match(line)
        # the hashes of a file are told in lines of their own, with ".metadata"
        if match is not None and ".metadata " not in line:
            megabytes[match[1]] += float(match[2]) * _MEGABYTES.get(match[3], 0.0)
    total = sum(megabytes.values())
    cached = megabytes["Using cached"]
    of_cache = f", {cached:.0f} MB of them from pip's cache" if cached else ""
    return f"{begun} of {max(packages, begun)} packages, {total:.0f} MB{of_cache}"
