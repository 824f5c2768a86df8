"""A number or comparison in a condition of a TOML file, such as 256 or ">=256" -> a Bound."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bound:
    """A comparison with a number, such as >=256; the operator is one of = != < <= > >=."""

    operator: str
    number: int

    def holds(self, value: int) -> bool:
        """Return whether a value satisfies the comparison."""
        return {
            "=": value == self.number,
            "!=": value != self.number,
            "<": value < self.number,
            "<=": value <= self.number,
            ">": value > self.number,
            ">=": value >= self.number,
        }[self.operator]


def parse_bound(value: Any) -> Bound:
    """Parse 256, which means equal, or ">=256"; raise ValueError for anything else."""
    if type(value) is int:
        return Bound("=", value)
    match = re.fullmatch(r"(<=|>=|!=|<|>)\s*(\d+)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a number or a comparison such as '>=256'")
    return Bound(match[1], int(match[2]))
