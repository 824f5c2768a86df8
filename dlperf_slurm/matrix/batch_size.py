"""What a matrix says of a batch size -> a number, or how to find it: "max", "256 -> 224"."""

import re
from dataclasses import dataclass
from typing import Any, Union

LARGEST = "max"


@dataclass(frozen=True, repr=False)
class BatchSearch:
    """A batch size that the job finds: the first of `ladder` that fits, or, without, the largest.

    A ladder descends strictly.
    """

    ladder: tuple[int, ...]

    def __str__(self) -> str:
        return " -> ".join(map(str, self.ladder)) or LARGEST

    def __repr__(self) -> str:
        return repr(str(self))

    @property
    def name(self) -> str:
        """The same as part of a file name."""
        return "-".join(map(str, self.ladder)) or LARGEST


BatchSize = Union[int, BatchSearch]


def parse_batch_size(value: Any) -> BatchSize:
    """A value of the axis; ValueError says what is allowed."""
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


def parse_batch_search(text: str) -> Union[BatchSearch, None]:
    """The search that a text asks for, or None when it asks for none.

    Raises ValueError for a ladder that does not descend.
    """
    if text == LARGEST:
        return BatchSearch(())
    if not re.fullmatch(r"\s*\d+\s*(->\s*\d+\s*)+", text):
        return None
    ladder = tuple(int(part) for part in text.split("->"))
    if any(size <= smaller for size, smaller in zip(ladder, ladder[1:])) or ladder[-1] < 1:
        raise ValueError(f"{text!r} must descend, from the largest batch size to try; least is 1")
    return BatchSearch(ladder)
