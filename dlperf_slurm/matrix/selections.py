"""The matrix tables whose keys are axes: the axes themselves, selections, and conditions."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model

from dlperf_slurm.config.toml_tables import OneOrMore, TomlModel
from dlperf_slurm.matrix.axes import AXES, AXIS_SPECS, DEFAULTS
from dlperf_slurm.matrix.value_types import BoundOrNumber

Item = TypeVar("Item")

# the parts of `topology` that can be keys of conditions
TOPOLOGY_PARTS = {
    "nodes": "Number of nodes of the topology.",
    "devices_per_node": "Number of devices on each node of the topology.",
    "world_size": "Number of devices of the topology; there is one rank per device.",
}

# defaults in a matrix; a batch size of 0 follows from the global one, or is missing
OPTIONAL = {**DEFAULTS, "batch_size_per_device": 0}

# maximum number of values of an axis
MAX_VALUES = 1_000


def check_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of an axis unchanged; raise ValueError if none, or if two are equal."""
    if not values:
        raise ValueError("is an empty list; give at least one value")
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise ValueError(
            f"{repeated!r} is in the list twice, which would make duplicate cases; remove one"
        )
    return values


def _check_length(values: Any) -> Any:
    # checked before each value is compared with all known names
    if isinstance(values, list) and len(values) > MAX_VALUES:
        raise ValueError(f"has {len(values)} values; at most {MAX_VALUES} are allowed")
    return values


Values = Annotated[OneOrMore[Item], AfterValidator(check_values), BeforeValidator(_check_length)]


class AxisTable(TomlModel):
    """Values of axes; an axis that is not named is an empty tuple."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def named_axes(self) -> tuple[str, ...]:
        """Return the axes that the table names, in the order of AXES."""
        return tuple(axis for axis in AXES if self.get_values(axis))

    def get_values(self, axis: str) -> tuple[Any, ...]:
        """Return the values that the table has for an axis; () if it does not name the axis."""
        values: tuple[Any, ...] = getattr(self, axis)
        return values


def _make_field(kind: Any, description: str, default: Any = ()) -> tuple[Any, Any]:
    """Return the pydantic field of an axis, as (type, field), for a table of axes."""
    return Values[kind], Field(default, description=description)


if TYPE_CHECKING:
    # the real classes get their fields from AXIS_SPECS; only `get_values` reads them

    class Condition(AxisTable): ...

    class Selection(AxisTable): ...

    class AxesTable(Selection): ...

else:
    Condition = create_model(
        "Condition",
        __base__=AxisTable,
        __doc__='Cases that have one of these values on each axis named here; ">=256" '
        "stands for all numbers from 256 on.",
        model=_make_field(str, "Name of a model, or of a model of a script."),
        **{s.name: _make_field(s.bound or s.kind, s.description) for s in AXIS_SPECS},
        **{part: _make_field(BoundOrNumber, text) for part, text in TOPOLOGY_PARTS.items()},
    )
    Selection = create_model(
        "Selection",
        __base__=AxisTable,
        __doc__="Values for some of the axes; axes that are not named are empty tuples.",
        **{s.name: _make_field(s.kind, s.description) for s in AXIS_SPECS},
    )
    AxesTable = create_model(
        "AxesTable",
        __base__=Selection,
        __doc__="Lists of values for each axis; the cases are all combinations.",
        **{
            s.name: _make_field(
                s.kind, s.description, (OPTIONAL[s.name],) if s.name in OPTIONAL else ...
            )
            for s in AXIS_SPECS
        },
    )
