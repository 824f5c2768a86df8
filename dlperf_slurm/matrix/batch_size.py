"""What a matrix says of a batch size -> a number, "max", or a ladder: "256 -> 224"."""

import re
from typing import Any, Optional, Union

from dlperf_slurm.contract.axes import LARGEST, format_ladder


def parse_batch_size(value: Any) -> Union[int, str]:
    """A value of the axis as `Axes` has it; raises ValueError, which says what is allowed."""
    if type(value) is int:
        if value < 1:
            raise ValueError(f"{value} is no batch size; the smallest is 1")
        return value
    search = parse_batch_search(value) if isinstance(value, str) else None
    if search is None:
        raise ValueError(
            f"{value!r} is neither a number nor '{LARGEST}' nor a ladder such as "
            "'256 -> 224 -> 196'"
        )
    return search


def parse_batch_search(text: str) -> Optional[str]:
    """The search that a text asks for, as `Axes` has it; None when it asks for none.

    Raises ValueError for a ladder that does not descend.
    """
    if text == LARGEST:
        return LARGEST
    if not re.fullmatch(r"\s*\d+\s*(->\s*\d+\s*)+", text):
        return None
    ladder = tuple(int(part) for part in text.split("->"))
    if any(size <= smaller for size, smaller in zip(ladder, ladder[1:])) or ladder[-1] < 1:
        raise ValueError(f"{text!r} must descend, from the largest batch size to try; least is 1")
    return format_ladder(ladder)
