"""Cases -> their labels: the framework and the axis values that are not the default."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.matrix.axes import AXES, VARIANT_SPECS
from dlperf_slurm.results.columns import COUNT, FLAG, TEXT, list_values
from dlperf_slurm.worker.models import list_models, load_model

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from dlperf_slurm.jobs.manifest import PlannedCase

# axes that distinguish the columns of a table, with their default, which labels omit
VARIANT_AXES = {spec.name: spec.default for spec in VARIANT_SPECS}
VARIANTS = tuple(VARIANT_AXES)
_DTYPES: Mapping[object, str] = {str: TEXT, int: COUNT, bool: FLAG}
_TYPES = {axis.name: axis.type for axis in fields(Axes)} | {"loss_scale": int}
# the columns that identify a case in data frames with cases of several runs
IDENTITY = {
    **dict.fromkeys(("case_id", "model"), TEXT),
    **{axis: _DTYPES.get(_TYPES[axis], TEXT) for axis in AXES},
    "unit": TEXT,
}


def describe_variants(rows: "DataFrame", axes: Collection[str] = VARIANTS) -> "DataFrame":
    """Describe the values of each case that are not the default: texts [cases, axes].

    The text of a default is "". Only `axes` are described, in the order of labels.
    """
    from pandas import DataFrame

    found = {}
    for spec in VARIANT_SPECS:
        if spec.name in axes:
            found[spec.name] = [
                "" if value is None or value == spec.default else spec.label.format(value)
                for value in list_values(rows[spec.name])
            ]
    return DataFrame(found, index=rows.index, dtype=object)


def join_words(words: "DataFrame", *before: "Series") -> "Series":
    """Join the non-empty texts of each row with spaces; the columns `before` come first."""
    from pandas import Series

    columns = [*before, *(words[name] for name in words)]
    texts = [" ".join(filter(None, own)) for own in zip(*columns)]
    return Series(texts, index=words.index, dtype="string")


def label_cases(rows: "DataFrame", axes: Collection[str] = VARIANTS) -> "Series":
    """Return a label for each case: its framework and its non-default values on `axes`."""
    return join_words(describe_variants(rows, axes), rows.framework)


def list_keys(rows: "DataFrame", names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return each case's values in the columns `names`, as a tuple.

    For as many columns as there are axes, tuples are ten times as fast as `groupby` or `merge`.
    """
    return list(zip(*(rows[name].tolist() for name in names)))


def number_groups(rows: "DataFrame", names: Sequence[str]) -> list[int]:
    """Return the group number of each case, from 0 in order of appearance.

    A group has the cases with equal values in the columns `names`.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in list_keys(rows, names)]


def flag_varying(rows: "DataFrame", by: Sequence[str]) -> "DataFrame":
    """Return for each case the axes on which its group differs: bool [cases, axes].

    A group has the cases with equal values in the columns `by`, such as those of one table.
    """
    from pandas import DataFrame

    groups, flags = number_groups(rows, by), {}
    for axis in VARIANTS:
        values: dict[int, set[Any]] = {}
        for group, value in zip(groups, rows[axis].tolist()):
            values.setdefault(group, set()).add(value)
        flags[axis] = [len(values[group]) > 1 for group in groups]
    return DataFrame(flags, index=rows.index)


def list_axes(axes: Axes) -> dict[str, Any]:
    """Return the value of a case on each axis, by name, as data frames store it.

    A batch size is text, because it may be "max" or a ladder, "256 -> 224"; a dynamic loss scale is
    None.
    """
    return {
        **{name: getattr(axes, name) for name in AXES},
        "batch_size_per_device": str(axes.batch_size_per_device),
        "loss_scale": axes.constant_loss_scale,
    }


# cached, as it lists the folder of models
@cache
def get_unit(model: str, own: str = "") -> str:
    """Return a throughput unit, such as images/s; `own` is what samples of a user's script are."""
    unit = load_model(model).SAMPLE_UNIT if model in list_models() else own or "samples"
    return f"{unit}/s"


def list_identity(case: "PlannedCase") -> list[object]:
    """Return the values of the columns IDENTITY for a planned case: id, model, axes and unit."""
    unit = get_unit(case.model, case.unit)
    return [case.case_id, case.model, *list_axes(case.axes).values(), unit]
