"""Figures -> NVIDIA's tables of training and inference, with two precisions side by side.

The columns are those of the performance sections in NVIDIA's DeepLearningExamples.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.published.figures import LATENCIES
from dlperf_slurm.published.grouping import group_by
from dlperf_slurm.published.layouts.parts.accuracy import make_accuracy_tables
from dlperf_slurm.published.layouts.parts.document import (
    Document,
    LayoutColumn,
    arrange,
    describe_sizes,
    format_device_counts,
    get_unit_name,
    list_footnotes,
    list_topologies,
    make_column_cells,
    make_layout_table,
    make_ratio_cell,
    order_batch_groups,
)
from dlperf_slurm.published.layouts.parts.figures import (
    MEANS,
    NO_FIGURE,
    NO_SOURCE,
    OUR_SOURCE,
    Figure,
    list_figures,
)
from dlperf_slurm.published.layouts.parts.precision_pairs import (
    PrecisionPair,
    format_precision,
    pair_precisions,
)
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.stats.median import LATENCY_NAMES, LATENCY_PERCENTILES, count_needed_batches

if TYPE_CHECKING:
    from pandas import DataFrame

LATENCY_TITLES = ("Avg", "50%", "90%", "95%", "99%", "100%")

# figures with equal values of these share a table
_TRAINING_KEY = ("model", "label", "source", "compiler", "data_location", "table")
_find_training = attrgetter(*_TRAINING_KEY)
_find_inference = attrgetter(*_TRAINING_KEY, "topology")


def lay_out(figures: "DataFrame") -> Document:
    """Make a table per model, framework, compiler and pair of a reduced and the full precision.

    Training throughput comes first, then training to accuracy, then inference. As NVIDIA averages
    epochs, throughputs and latencies of a run are means over its repeats.
    """
    draft = Document()
    is_own = figures.table == ""
    means = {name: figures[name].mask(is_own, figures[mean]) for name, mean in MEANS.items()}
    figures = figures.assign(**means)
    training = list_figures(figures, TRAIN)
    for group in group_by(training, _find_training).values():
        for part in _split_by_batch_group(group):
            for pair in pair_precisions(part, draft):
                draft.tables.append(_make_training_table(part, pair, draft))
    draft.tables += make_accuracy_tables(training, draft)
    inference = list_figures(figures, INFER)
    for group in group_by(inference, _find_inference).values():
        for pair in pair_precisions(group, draft):
            draft.tables.append(_make_inference_table(group, pair, draft))
    for name, found in (("training", training), ("inference", inference)):
        if not found:
            draft.note(f"no {name} cases, so no {name} tables")
    return draft


def _split_by_batch_group(figures: Sequence[Figure]) -> list[list[Figure]]:
    """Split figures into one list per table: by batch size if a precision has several, else all.

    With one batch size each, precisions are side by side in one table.
    """
    by_precision = group_by(figures, lambda figure: figure.precision)
    if all(len({f.batch_group for f in group}) == 1 for group in by_precision.values()):
        return [list(figures)]
    groups = group_by(figures, lambda figure: figure.batch_group)
    return [groups[name] for name in order_batch_groups(groups)]


def _make_training_table(figures: Sequence[Figure], pair: PrecisionPair, draft: Document) -> Table:
    """Make a table with a row per topology: throughputs, their ratio, and weak scaling."""
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    topologies = list_topologies(shown)
    found = arrange(shown, pair.precisions, topologies, draft)
    columns = [
        _make_throughput_column(f"Throughput - {format_precision(precision)}", own, draft)
        for precision, own in found.items()
    ]
    rates = {name: [figure.samples_per_s for figure in own] for name, own in found.items()}
    if pair.is_complete:
        both = f"{format_precision(pair.reference)} - {format_precision(pair.reduced)}"
        ratios = list(map(make_ratio_cell, rates[pair.reduced], rates[pair.reference]))
        columns.append((f"Throughput speedup ({both})", ratios))
    for precision, own in rates.items():
        # relative to the smallest topology that was measured
        base = next((rate for rate in own if rate is not None), None)
        ratios = [make_ratio_cell(rate, base) for rate in own]
        columns.append((f"Weak scaling - {format_precision(precision)}", ratios))
    return make_layout_table(
        f"{_make_title(shown[0])} training",
        [("GPUs", format_device_counts(topologies)), *columns],
        1,
        f"{_describe_columns(shown, pair)}; {_describe_bases(shown, pair)}{_describe_means(shown)}",
    )


def _describe_bases(figures: Sequence[Figure], pair: PrecisionPair) -> str:
    """Return the GPU counts that weak scaling is relative to: each precision's fewest measured."""
    measured = [figure for figure in figures if figure.samples_per_s is not None]
    bases = {
        min((f.topology.world_size for f in measured if f.precision == precision), default=0)
        for precision in pair.precisions
    } - {0}
    counts = " and ".join(f"{count} GPU{'s' * (count > 1)}" for count in sorted(bases))
    return f"weak scaling against {counts}" if counts else "no weak scaling: no case was measured"


def _make_inference_table(figures: Sequence[Figure], pair: PrecisionPair, draft: Document) -> Table:
    """Make a table with a row per batch size: throughputs and latencies, with speedups."""
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    points = draft.index(shown, lambda figure: (figure.precision, figure.batch_group))
    groups = order_batch_groups(figure.batch_group for figure in shown)
    name = pair.reduced or pair.reference
    own = [points.get((name, group), NO_FIGURE) for group in groups]
    both = [(f, points.get((pair.reference, g), NO_FIGURE)) for f, g in zip(own, groups)]
    unit = get_unit_name(figures[0].unit, "img/sec")
    columns = [
        _make_throughput_column(f"Throughput ({unit}) - {format_precision(name)}", own, draft)
    ]
    if pair.is_complete:
        cells = [_make_speedup_cell(a, b, draft) for a, b in both]
        columns.append(("Throughput - speedup", cells))
    for name_of_part, column in _list_latencies(shown).items():
        title = f"{name_of_part} latency"
        cells = make_column_cells(own, column)
        columns.append((f"{title} (ms) - {format_precision(name)}", cells))
        if pair.is_complete:
            ratios = [make_ratio_cell(getattr(b, column), getattr(a, column)) for a, b in both]
            columns.append((f"{title} - speedup", ratios))
    # with the figure's own size if it differs: "max (96)"
    batches = [
        group if figure.batch_sizes in ("", group) else f"{group} ({figure.batch_sizes})"
        for group, figure in zip(groups, own)
    ]
    over = f"speedups over {format_precision(pair.reference)}; " if pair.is_complete else ""
    return make_layout_table(
        f"{_make_title(shown[0])} inference, {shown[0].topology}",
        [("Batch size", batches), *columns],
        1,
        f"{over}latency of one batch{_describe_means(shown)}",
    )


def _describe_means(figures: Sequence[Figure]) -> str:
    """Describe how figures of a run are averaged, and what too few batches bias."""
    if figures[0].table:
        return ""
    text = (
        "means over repeats, where NVIDIA takes means over epochs; the time spent waiting for data "
        "is included"
    )
    batches = min((f.batches for f in figures if f.batches is not None), default=None)
    if batches is None:
        return f"; {text}"
    text += f"; each repeat has {batches:.0f} or more batches, which give its latencies"
    biased = [p for p in LATENCY_PERCENTILES[:-1] if count_needed_batches(p) > batches]
    if biased:
        percents = " and ".join(f"{percent}%" for percent in biased)
        text += (
            f"; {batches:.0f} batches are too few for an accurate latency at {percents} "
            "(docs/statistics.md, Percentiles)"
        )
    return f"; {text}"


def _make_speedup_cell(figure: Figure, reference: Figure, draft: Document) -> Cell:
    """Make the cell of a figure's speedup over `reference`, which has no column of its own.

    If the reference has no figure, the cell shows why. `draft` gets the reference's footnotes.
    """
    if reference.problem:
        return Cell(None, problem=reference.problem, notes=draft.number(reference.footnotes))
    return make_ratio_cell(figure.samples_per_s, reference.samples_per_s)


def _list_latencies(figures: Sequence[Figure]) -> dict[str, str]:
    """Return the names of the frame's latency columns by title; {} if no figure has latencies.

    Publishers do not print the maximum latency.
    """
    if all(figure.latency_avg_ms is None for figure in figures):
        return {}
    parts = LATENCIES if figures[0].table else LATENCY_NAMES
    return {title: f"latency_{part}_ms" for title, part in zip(LATENCY_TITLES, parts)}


def _make_throughput_column(
    header: str, figures: Sequence[Figure], draft: Document
) -> LayoutColumn:
    """Make a column of throughputs with footnote marks; problems where there is no throughput."""
    notes = [draft.number(list_footnotes(figure, figures)) for figure in figures]
    cells = make_column_cells(figures, "samples_per_s")
    return header, [replace(cell, notes=own) for cell, own in zip(cells, notes)]


def _make_title(figure: Figure) -> str:
    """Return the beginning of a table's title: model, framework, source, compiler and hardware."""
    compiler = "" if figure.compiler == "none" else f" {figure.compiler}"
    hardware = f", {figure.hardware}" if figure.hardware else ""
    is_named = figure.source not in (OUR_SOURCE, NO_SOURCE)
    source = f" ({figure.source})" if is_named else ""
    return f"{figure.model_title}: {figure.label}{source}{compiler}{hardware},"


def _describe_columns(figures: Sequence[Figure], pair: PrecisionPair) -> str:
    """Describe the throughput's unit, and the batch size per GPU of each precision in `pair`."""
    sizes = []
    for precision in pair.precisions:
        own = (figure for figure in figures if figure.precision == precision)
        sizes.append(f"{describe_sizes(own)} ({format_precision(precision)})")
    return f"{get_unit_name(figures[0].unit)}; batch size per GPU {', '.join(sizes)}"
