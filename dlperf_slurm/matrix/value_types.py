"""The types of axis values, which pydantic validates, and of bounds on them.

The module does not import pydantic, so that reports, which also use the axes, start fast.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

from annotated_types import Ge

from dlperf_slurm.config.bounds import Bound, parse_bound
from dlperf_slurm.config.suggestions import OneOf
from dlperf_slurm.contract.axes import (
    DATA_SOURCES,
    DYNAMIC,
    LARGEST,
    MODES,
    OPTIMIZERS,
    format_ladder,
)
from dlperf_slurm.contract.topology import PATTERN, parse_topology
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter
from dlperf_slurm.worker.models import list_models

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

JsonSchema = dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """Metadata for a value that `parse` converts from the TOML value, or raises ValueError."""

    parse: Callable[[Any], Any]
    json_schema: JsonSchema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> JsonSchema:
        return dict(self.json_schema)


def list_choices(axis: str) -> list[str]:
    """List the values on an axis that the adapter of any framework supports, without duplicates."""
    offers = (load_adapter(framework).SUPPORTED[axis] for framework in list_frameworks())
    return list(dict.fromkeys(choice for offer in offers for choice in offer))


def _check_topology(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a topology; write a string such as '2n8g'")
    parse_topology(value)
    return value


def _check_loss_scale(value: Any) -> Union[int, str]:
    if value == DYNAMIC or (type(value) is int and value >= 1):
        return str(value) if value == DYNAMIC else int(value)
    raise ValueError(
        f"{value!r} is not a loss scale; write {DYNAMIC!r} or an integer of at least 1"
    )


def parse_batch_size(value: Any) -> Union[int, str]:
    """Parse a number, "max", or sizes such as "256 -> 224"; raise ValueError for all else."""
    if type(value) is int:
        if value < 1:
            raise ValueError(f"{value} is not a batch size; allowed: at least 1")
        return value
    search = parse_batch_search(value) if isinstance(value, str) else None
    if search is None:
        raise ValueError(
            f"{value!r} is not a batch size; write a number, '{LARGEST}' or a descending list "
            "such as '256 -> 224 -> 196'"
        )
    return search


def parse_batch_search(text: str) -> Optional[str]:
    """Parse "max", or batch sizes to try such as "256 -> 224"; None for any other text.

    Returns the text with single spaces. Raises ValueError if the sizes do not descend.
    """
    if text == LARGEST:
        return LARGEST
    if not re.fullmatch(r"\s*\d+\s*(->\s*\d+\s*)+", text):
        return None
    ladder = tuple(int(part) for part in text.split("->"))
    if any(size <= smaller for size, smaller in zip(ladder, ladder[1:])) or ladder[-1] < 1:
        raise ValueError(f"{text!r} must list batch sizes in descending order, each at least 1")
    return format_ladder(ladder)


_COUNT_OR_TEXT = {"type": ["integer", "string"], "minimum": 1}
_NUMBER_OR_TEXT = {"type": ["integer", "string"]}

PositiveInt = Annotated[int, Ge(1)]
NaturalInt = Annotated[int, Ge(0)]
Framework = Annotated[str, OneOf("a framework", list_frameworks)]
Model = Annotated[str, OneOf("a model", list_models)]
TopologyName = Annotated[
    str, Parsed(_check_topology, {"type": "string", "pattern": f"^{PATTERN}$"})
]
Precision = Annotated[str, OneOf("a precision", lambda: list_choices("precision"))]
Compiler = Annotated[str, OneOf("a compiler", lambda: list_choices("compiler"))]
MemoryFormat = Annotated[str, OneOf("a memory format", lambda: list_choices("memory_format"))]
GradientSync = Annotated[str, OneOf("a gradient_sync", lambda: list_choices("gradient_sync"))]
Data = Annotated[str, OneOf("a data source", lambda: DATA_SOURCES)]
Optimizer = Annotated[str, OneOf("an optimizer", lambda: OPTIMIZERS)]
LossScale = Annotated[Union[int, str], Parsed(_check_loss_scale, _COUNT_OR_TEXT)]
Mode = Annotated[str, OneOf("a mode", lambda: MODES)]
AnyBatchSize = Annotated[Union[int, str], Parsed(parse_batch_size, _COUNT_OR_TEXT)]


def _parse_batch_bound(value: Any) -> Union[Bound, str]:
    search = parse_batch_search(value) if isinstance(value, str) else None
    return search or parse_bound(value)


BoundOrNumber = Annotated[Bound, Parsed(parse_bound, _NUMBER_OR_TEXT)]
BatchBound = Annotated[Union[Bound, str], Parsed(_parse_batch_bound, _NUMBER_OR_TEXT)]
