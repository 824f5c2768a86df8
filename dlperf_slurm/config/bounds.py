"""A number to compare with, as conditions of matrices and sites have it: 256, or ">=256"."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bound:
    """A number to compare with: 256, or ">=256" with one of the operators < <= > >= !=."""

    operator: str
    number: int

    def holds(self, value: int) -> bool:
        """Whether a value is within the bound."""
        return {
            "=": value == self.number,
            "!=": value != self.number,
            "<": value < self.number,
            "<=": value <= self.number,
            ">": value > self.number,
            ">=": value >= self.number,
        }[self.operator]


def parse_bound(value: Any) -> Bound:
    """The bound that a TOML value stands for; raises ValueError when it is none."""
    if type(value) is int:
        return Bound("=", value)
    match = re.fullmatch(r"(<=|>=|!=|<|>)\s*(\d+)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is neither a number nor a comparison such as '>=256'")
    return Bound(match[1], int(match[2]))
