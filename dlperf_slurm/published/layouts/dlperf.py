"""Training figures -> DLPerf's tables: a summary per model, and one table per configuration.

The columns are those of DLPerf's README and of its reports.
"""

import dataclasses
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import LARGEST, TRAIN
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.grouping import group_by
from dlperf_slurm.published.layouts.parts.document import (
    Document,
    LayoutColumn,
    disambiguate_name,
    get_unit_name,
    list_topologies,
    make_column_cells,
    make_layout_table,
    order_batch_groups,
)
from dlperf_slurm.published.layouts.parts.figures import ABSENT, NO_FIGURE, Figure, list_figures
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.results.footnotes import Note
from dlperf_slurm.results.ratios import REFERENCE_PRECISIONS, divide

if TYPE_CHECKING:
    from pandas import DataFrame

PRECISION_NAMES = {"amp-fp16": "AMP", "amp-bf16": "AMP BF16"}
COMPILER_NAMES = {"none": "", "xla": "w/XLA"}
# the only unit in DLPerf's summaries
IMAGES_PER_S = "img/s"


def lay_out(figures: "DataFrame") -> Document:
    """Return DLPerf's tables: a summary per model, and one per model, precision and batch size."""
    draft = Document()
    training = list_figures(figures, TRAIN)
    if not training:
        draft.note("no training cases, so no table")
    for group in group_by(training, lambda figure: figure.model).values():
        draft.tables.append(_make_summary(group, draft))
    for group in group_by(training, attrgetter("model", "precision", "batch_group")).values():
        draft.tables.append(_make_configuration_table(group, draft))
    return draft


def _make_summary(figures: Sequence[Figure], draft: Document) -> Table:
    """Make a model's summary: a row per framework, a column pair per precision and batch size.

    The throughputs are those on the largest topology, the speedups are over the smallest.
    """
    topologies = list_topologies(figures, measured=True) or list_topologies(figures)
    base, largest = topologies[0], topologies[-1]
    # DLPerf has no speedups where each framework has its own batch size
    is_scaled = largest != base and all(figure.batch_group != LARGEST for figure in figures)
    rows = group_by(figures, lambda figure: (figure.label, figure.source))
    columns: list[LayoutColumn] = [
        ("Framework", [label for label, _ in rows]),
        ("Source", [source for _, source in rows]),
    ]
    for precision, group in _list_measurements(figures):
        cells = [
            [f for f in row if (f.precision, f.batch_group) == (precision, group)]
            for row in rows.values()
        ]
        columns += _make_pair(cells, (largest, base), is_scaled, draft)
    _note_missing(figures, largest, is_scaled, draft)
    return make_layout_table(
        title=f"{figures[0].model_title}: summary",
        columns=columns,
        text_columns=2,
        caption=f"throughput on {largest}"
        + (f", speedup over {base}" if is_scaled else "")
        + f"; {get_unit_name(figures[0].unit)}; bsz is the batch size per device",
    )


def _list_measurements(figures: Sequence[Figure]) -> list[tuple[str, str]]:
    """Return the pairs (precision, batch size) of the figures, full precisions first."""
    groups = group_by(figures, lambda figure: figure.precision)
    precisions = sorted(groups, key=lambda precision: precision not in REFERENCE_PRECISIONS)
    return [
        (precision, group)
        for precision in precisions
        for group in order_batch_groups(figure.batch_group for figure in groups[precision])
    ]


def _make_pair(
    cells: Sequence[Sequence[Figure]],
    topologies: tuple[Topology, Topology],
    is_scaled: bool,
    draft: Document,
) -> list[LayoutColumn]:
    """Make the throughput column of a precision and batch size; its speedups too if `is_scaled`.

    `cells[row]` are all figures of a row; `topologies` are the one shown, and the base of speedups.
    """
    largest, base = topologies
    first = next(figure for figures in cells for figure in figures)
    rows = [_choose_parts(figures, largest, draft) for figures in cells]
    values = iter(make_column_cells([part for parts in rows for part in parts], "samples_per_s"))
    size = f"bsz={first.batch_group}"
    unit = f"({IMAGES_PER_S})" if get_unit_name(first.unit) == IMAGES_PER_S else ""
    throughput: LayoutColumn = (
        _join_lines(f"{_name_precision(first.precision)} throughput", unit, size),
        [
            _join_parts([(part, next(values), _name_variant(part)) for part in parts], draft)
            for parts in rows
        ],
    )
    if not is_scaled:
        return [throughput]
    speedups = [
        _join_speedups(parts, [f for f in figures if f.topology == base], draft)
        for figures, parts in zip(cells, rows)
    ]
    header = _join_lines(f"{_name_precision(first.precision)} speedup", size)
    return [throughput, (header, speedups)]


def _choose_parts(figures: Sequence[Figure], topology: Topology, draft: Document) -> list[Figure]:
    """Choose the figures that a cell shows: one per compiler and data location.

    If the batch size is "max", the largest that fits, only the fastest is shown. `draft` gets a
    note if several figures have the same compiler and data location.
    """
    there = [figure for figure in figures if figure.topology == topology]
    parts = list(draft.index(there, _name_variant).values())
    measured = [part for part in parts if part.samples_per_s is not None]
    if measured and measured[0].batch_group == LARGEST:
        return [max(measured, key=lambda part: part.samples_per_s or 0.0)]
    return parts


def _join_speedups(parts: Sequence[Figure], bases: Sequence[Figure], draft: Document) -> Cell:
    """Join the speedups of figures in one cell, one per line.

    `parts` are the figures of one topology, such as with and without a compiler; `bases` are those
    on the topology that speedups are relative to. A footnote says where a figure and its base have
    different batch sizes.
    """
    lines, footnotes = [], []
    for part in parts:
        variant = _name_variant(part)
        own = [base for base in bases if _name_variant(base) == variant]
        base = next((base for base in own if base.samples_per_s is not None), None)
        speedup = divide(part.samples_per_s, base.samples_per_s if base is not None else None)
        lines.append(_append(Cell(speedup, problem=ABSENT), variant))
        if base is not None and speedup is not None and base.batch_sizes != part.batch_sizes:
            footnotes.append(
                f"{_describe(part)}: speedup over the throughput at bsz={base.batch_sizes}"
            )
    return _join_cells(lines, draft.number(footnotes))


def _append(cell: Cell, words: str) -> Cell:
    """Return a cell with words such as "w/XLA" after its figure, or after why it has none."""
    if not words:
        return cell
    form = dataclasses.replace(cell.form, unit=f" {words}")
    return dataclasses.replace(cell, form=form, problem=f"{cell.problem} {words}")


def _join_cells(lines: Sequence[Cell], notes: tuple[int, ...]) -> Cell:
    """Join cells in one, a line each, after all footnote marks; `notes` are footnote numbers."""
    return Cell(
        tuple(lines) or (Cell(None, problem=ABSENT),), joint="\n", notes=notes, marks_first=True
    )


def _describe(part: Figure) -> str:
    """Describe the framework, precision and compiler of a figure: "AMP of OneFlow w/XLA"."""
    return _join(f"{_name_precision(part.precision)} of {part.label}", _name_variant(part))


def _join_parts(parts: Sequence[tuple[Figure, Cell, str]], draft: Document) -> Cell:
    """Join figures in one cell, with their variants, and with batch sizes that the job chose.

    `parts` are (figure, its cell, variant such as "w/XLA"); `draft` numbers their footnotes.
    """
    lines = []
    for figure, cell, variant in parts:
        lines.append(_append(cell, variant))
        if figure.batch_group == LARGEST and figure.batch_sizes:
            lines.append(Cell(f"bsz={figure.batch_sizes}"))
    notes = (note for figure, _, _ in parts for note in _list_footnotes(figure))
    return _join_cells(lines, draft.number(notes))


def _list_footnotes(part: Figure) -> list[Note]:
    """Return a figure's footnotes, and one on its batch size if it is not the one requested."""
    sizes = part.batch_sizes
    if part.batch_group == LARGEST or sizes in ("", part.batch_group):
        return list(part.footnotes)
    return [f"{_describe(part)}: bsz={sizes} in place of {part.batch_group}", *part.footnotes]


def _make_configuration_table(figures: Sequence[Figure], draft: Document) -> Table:
    """Make a table with a row per topology and a column per framework and compiler.

    All figures are of one model, precision and batch size. `draft` gets the footnotes and notes.
    """
    first = figures[0]
    topologies = list_topologies(figures)
    columns: list[LayoutColumn] = [
        ("node num", [str(topology.nodes) for topology in topologies]),
        ("device num", [str(topology.world_size) for topology in topologies]),
    ]
    names = {(figure.label, figure.source) for figure in figures}
    for name, group in group_by(
        figures, lambda f: _join(disambiguate_name(f.label, f, names), _name_variant(f))
    ).items():
        points = draft.index(group, lambda figure: figure.topology)
        found = [points.get(topology, NO_FIGURE) for topology in topologies]
        cells = [
            # the column's header already names the variant
            _join_parts([(figure, cell, "")], draft)
            for figure, cell in zip(found, make_column_cells(found, "samples_per_s"))
        ]
        title = _join_lines(f"{name} throughput", f"({get_unit_name(first.unit)})")
        columns.append((title, cells))
    return make_layout_table(
        title=f"{first.model_title}: {_name_precision(first.precision)}, "
        f"batch size {first.batch_group}",
        columns=columns,
        text_columns=2,
        caption=f"medians, {get_unit_name(first.unit)}",
    )


def _join_lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _name_variant(figure: Figure) -> str:
    """Return what distinguishes the figures of one cell, such as "w/XLA" or "w/DALI", or ""."""
    compiler = COMPILER_NAMES.get(figure.compiler, f"w/{figure.compiler}")
    return _join(compiler, f"w/{figure.data_location}" if figure.data_location else "")


def _name_precision(precision: str) -> str:
    return PRECISION_NAMES.get(precision, precision.upper())


def _join(*texts: str) -> str:
    """Join the texts that are not empty with spaces."""
    return " ".join(text for text in texts if text)


def _note_missing(
    figures: Sequence[Figure], largest: Topology, is_scaled: bool, draft: Document
) -> None:
    """Add notes to `draft` on frameworks without a figure on `largest`, and on missing columns."""
    model = figures[0].model
    absent = {f.label: None for f in figures}
    for figure in figures:
        if figure.topology == largest:
            absent.pop(figure.label, None)
    if absent:
        draft.note(
            f"{model}: the summary table is for {largest}, on which these frameworks were not "
            f"measured: {', '.join(absent)}"
        )
    if all(figure.precision in REFERENCE_PRECISIONS for figure in figures):
        draft.note(f"{model}: no results in mixed precision, so no columns for it")
    if not is_scaled and len(list_topologies(figures, measured=True)) < 2:
        draft.note(f"{model}: one topology, so no speedup")
