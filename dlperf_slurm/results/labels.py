"""Cases -> their labels: the framework with what is not the default on the other axes."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.matrix.axes import AXES, VARIANT_SPECS
from dlperf_slurm.results.columns import list_values
from dlperf_slurm.worker.models import list_models, load_model

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# axes that tell columns of a table apart, with the value that goes without saying
VARIANT_AXES = {spec.name: spec.default for spec in VARIANT_SPECS}
VARIANTS = tuple(VARIANT_AXES)


def find_variants(rows: "DataFrame", axes: Collection[str] = VARIANTS) -> "DataFrame":
    """Describe what each case has on these axes that is not the default: [cases, axes].

    The axes are in the order in which labels have them; the text of a default is empty.
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
    """Join the words of each row by blanks, without those that are empty."""
    from pandas import Series

    columns = [*before, *(words[name] for name in words)]
    texts = [" ".join(filter(None, own)) for own in zip(*columns)]
    return Series(texts, index=words.index, dtype="string")


def label_cases(rows: "DataFrame", axes: Collection[str] = VARIANTS) -> "Series":
    """Name the framework of each case, with what is not the default on these axes."""
    return join_words(find_variants(rows, axes), rows.framework)


def list_keys(rows: "DataFrame", names: Sequence[str]) -> list[tuple[Any, ...]]:
    """List the values of each case in these columns.

    With as many columns as there are axes, tuples are ten times as fast as `groupby` or `merge`.
    """
    return list(zip(*(rows[name].tolist() for name in names)))


def number_groups(rows: "DataFrame", names: Sequence[str]) -> list[int]:
    """Number the groups of cases that are equal in these columns, in order of appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in list_keys(rows, names)]


def find_varying(rows: "DataFrame", by: Sequence[str]) -> "DataFrame":
    """Flag the axes that tell the cases of one group apart: [cases, axes]."""
    from pandas import DataFrame

    groups, flags = number_groups(rows, by), {}
    for axis in VARIANTS:
        values: dict[int, set[Any]] = {}
        for group, value in zip(groups, rows[axis].tolist()):
            values.setdefault(group, set()).add(value)
        flags[axis] = [len(values[group]) > 1 for group in groups]
    return DataFrame(flags, index=rows.index)


def list_axes(axes: Axes) -> dict[str, Any]:
    """List the value on each axis, by name, as frames have it.

    "max" and ladders are no numbers, and a dynamic loss scale is none.
    """
    return {
        **{name: getattr(axes, name) for name in AXES},
        "batch_size_per_device": str(axes.batch_size_per_device),
        "loss_scale": axes.constant_loss_scale,
    }


def find_unit(model: str) -> str:
    """Return the unit of a throughput: images/s; samples/s for a model of another script."""
    unit = load_model(model).SAMPLE_UNIT if model in list_models() else "samples"
    return f"{unit}/s"
