"""Training figures -> tensorpack's tables: GPUs x sources, with a value per location of the data.

The columns are those of tensorpack's comparison with tensorflow/benchmarks.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.grouping import group_by
from dlperf_slurm.published.layouts.parts.document import (
    Document,
    LayoutColumn,
    describe_sizes,
    disambiguate_name,
    format_device_counts,
    get_unit_name,
    list_footnotes,
    list_topologies,
    make_column_cells,
    make_layout_table,
)
from dlperf_slurm.published.layouts.parts.figures import NO_FIGURE, Figure, list_figures
from dlperf_slurm.reports.cells import Table, join_cells

if TYPE_CHECKING:
    from pandas import DataFrame

LOCATION_NAMES = {"": "GPU", "gpu": "GPU", "cpu": "CPU", "python-queue": "Python"}
# a matrix's gradient_sync -> variable-update of tensorpack and tf_cnn_benchmarks
UPDATE_NAMES = {"native": "replicated"}

# figures with equal values of these share a table
_find_table = attrgetter(
    "model", "precision", "compiler", "batch_group", "variable_update", "hardware"
)


def lay_out(figures: "DataFrame") -> Document:
    """Return tensorpack's tables, one per model, precision, compiler, batch size and hardware.

    Each way of gradient synchronization ("variable update") has tables of its own too.
    """
    draft = Document()
    training = list_figures(figures, TRAIN)
    for group in group_by(training, _find_table).values():
        draft.tables.append(_make_table(group, draft))
    if not training:
        draft.note("no training cases, so no table")
    elif not any(figure.data_location for figure in training):
        draft.note(
            "no case states where its data is read from, so each cell has one value, not one per "
            "data source"
        )
    return draft


def _make_table(figures: Sequence[Figure], draft: Document) -> Table:
    """Make a table of figures that share model, precision, batch size and variable update."""
    first = figures[0]
    topologies = list_topologies(figures)
    names = {(figure.framework, figure.source) for figure in figures}
    # columns are scripts: with a single framework its name is in the caption
    is_one_framework = len(names) > 1 and len({framework for framework, _ in names}) == 1
    columns = [
        _make_column(name, group, topologies, draft)
        for name, group in group_by(
            figures,
            lambda f: f.source if is_one_framework else disambiguate_name(f.framework, f, names),
        ).items()
    ]
    compiler = [] if first.compiler == "none" else [first.compiler]
    framework = [first.framework] if is_one_framework else []
    parts = [
        *framework,
        first.precision,
        *compiler,
        f"batch size {describe_sizes(figures)}",
        first.hardware,
    ]
    return make_layout_table(
        title=f"variable-update={UPDATE_NAMES.get(first.variable_update, first.variable_update)}",
        columns=[("#GPU", format_device_counts(topologies)), *columns],
        text_columns=1,
        caption=f"{first.model_title}, {', '.join(part for part in parts if part)}; "
        f"{get_unit_name(first.unit)}",
    )


def _make_column(
    name: str, figures: Sequence[Figure], topologies: Sequence[Topology], draft: Document
) -> LayoutColumn:
    """Make the column of one script: per topology a value for each location of the data, "1/2"."""
    points = draft.index(figures, lambda figure: (figure.topology, figure.data_location))
    locations = list(dict.fromkeys(figure.data_location for figure in figures))
    names = [LOCATION_NAMES.get(location, location) for location in locations]
    found = [points.get((t, location), NO_FIGURE) for t in topologies for location in locations]
    values = iter(zip(found, make_column_cells(found, "samples_per_s")))
    cells = []
    for _ in topologies:
        parts = [next(values) for _ in locations]
        numbers = draft.number(note for part, _ in parts for note in list_footnotes(part, found))
        cells.append(join_cells([cell for _, cell in parts], "/", numbers))
    return f"{name}({'/'.join(names)})" if len(names) > 1 else name, cells
