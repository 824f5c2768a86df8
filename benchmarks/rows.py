"""Rows that benchmarks measure: `make bench` collects them, and each script prints its own.

A benchmark is a module of this folder with a function `measure_rows(is_quick)`, which returns its
rows, measured at a tenth of the size if `is_quick`. Its main() is `print_rows(measure_rows)`.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Optional


@dataclass(frozen=True)
class Row:
    """A figure, with its largest allowed value, absolute or as a multiple of a peer's figure."""

    part: int  # the table for the row, a key of results_file.TITLES
    name: str
    measured: Optional[float]  # None if it could not be measured: `problem` says why
    unit: str
    command: str = ""  # reproduces the figure; by default that of the script
    target: Optional[float] = None  # the most that `measured` may be
    peer: str = ""
    peer_measured: Optional[float] = None  # in the same unit
    target_ratio: Optional[float] = None  # the most that `ratio` may be
    why_missed: str = ""  # why a target is missed, and what was tried; printed only then
    problem: str = ""  # why there is no figure, of ours or of the peer's

    @property
    def ratio(self) -> Optional[float]:
        """The figure divided by the peer's."""
        if self.measured is None or not self.peer_measured:
            return None
        return self.measured / self.peer_measured

    @property
    def is_met(self) -> Optional[bool]:
        """Whether the figure is within its targets; None if that is unknown."""
        limits = [
            (value, limit)
            for value, limit in ((self.measured, self.target), (self.ratio, self.target_ratio))
            if limit is not None
        ]
        if any(value is not None and value > limit for value, limit in limits):
            return False
        if not limits or any(value is None for value, _ in limits):
            return None
        return True


def print_rows(measure_rows: Callable[[bool], list[Row]]) -> None:
    """Measure, and print a line of JSON per row, without empty fields."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    for row in measure_rows(parser.parse_args().quick):
        fields = {name: value for name, value in asdict(row).items() if value not in (None, "")}
        print(json.dumps({**fields, "ratio": row.ratio, "is_met": row.is_met}), flush=True)
