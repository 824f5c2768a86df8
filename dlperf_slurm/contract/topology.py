"""Text such as "2n8g" <-> a topology of 2 nodes with 8 devices each."""

import re
from functools import lru_cache
from typing import NamedTuple

PATTERN = r"([1-9][0-9]{0,5})n([1-9][0-9]{0,2})g"


class Topology(NamedTuple):
    """`nodes` nodes with `devices_per_node` devices on each; one rank per device."""

    nodes: int
    devices_per_node: int

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.nodes}n{self.devices_per_node}g"


@lru_cache(maxsize=256)
def parse_topology(text: str) -> Topology:
    """Parse a topology such as "2n8g"; raises ValueError, which says what is allowed."""
    match = re.fullmatch(PATTERN, text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a topology; write NODESnDEVICESg with both at least 1, as in '2n8g'"
        )
    return Topology(int(match[1]), int(match[2]))
