"""What scripts print of their arguments -> names and values, as text."""

import re
from typing import Dict, Mapping

# bounded, so that brackets which nobody closes do not make it slow
_ARGUMENT = re.compile(
    r"(\w+)=('[^']{0,4000}'|\"[^\"]{0,4000}\"|\[[^\]]{0,4000}\]|\([^)]{0,4000}\)|[^,]*)"
)


def parse_namespace(text: str) -> Dict[str, str]:
    """The arguments of an argparse `Namespace(...)`, without the quotes around strings."""
    return {name: value.strip("'\"") for name, value in _ARGUMENT.findall(text)}


def read_count(parameters: Mapping[str, str], name: str) -> int:
    """A whole number by its name, 0 if it is missing or none; `20.0` is one."""
    try:
        value = float(parameters.get(name, ""))
    except ValueError:
        return 0
    return int(value) if 0 < value < 1e15 and value == int(value) else 0


def is_true(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").lower() in ("true", "1", "yes")
