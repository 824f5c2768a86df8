"""Figures -> NVIDIA's tables: two precisions side by side, for training and for inference.

The columns are those of the performance sections in NVIDIA's DeepLearningExamples.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Optional

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.published.layouts.parts.accuracy import make_accuracy_tables
from dlperf_slurm.published.layouts.parts.document import (
    Document,
    Draft,
    LayoutColumn,
    arrange,
    describe_sizes,
    find_decimals,
    group_figures,
    list_footnotes,
    list_sizes,
    list_topologies,
    make_layout_table,
    make_ratio_cell,
    make_throughput_cells,
    name_device_counts,
    name_unit,
    order_batch_groups,
)
from dlperf_slurm.published.layouts.parts.figures import (
    ABSENT,
    NO_FIGURE,
    NO_SOURCE,
    OUR_SOURCE,
    LayoutFigure,
)
from dlperf_slurm.published.layouts.parts.precision_pairs import (
    Pair,
    name_precision,
    pair_precisions,
)
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.results.number_formats import Number

LATENCY_NAMES = ("Avg", "50%", "90%", "95%", "99%", "100%")

# figures with the same have tables of their own
_TRAINING_KEY = ("model", "label", "source", "compiler", "data_location", "table")
_find_training = attrgetter(*_TRAINING_KEY)
_find_inference = attrgetter(*_TRAINING_KEY, "topology")


def lay_out(figures: Sequence[LayoutFigure]) -> Document:
    """A table per model, framework, compiler and pair of precisions.

    Throughput of training first, then accuracy, then inference.
    """
    draft = Draft()
    training = [figure for figure in figures if figure.mode == TRAIN]
    for group in group_figures(training, _find_training).values():
        for part in _split_by_batch_group(group):
            for pair in pair_precisions(part, draft):
                draft.tables.append(_make_training_table(part, pair, draft))
    draft.tables += make_accuracy_tables(training, draft)
    inference = [figure for figure in figures if figure.mode == INFER]
    for group in group_figures(inference, _find_inference).values():
        for pair in pair_precisions(group, draft):
            draft.tables.append(_make_inference_table(group, pair, draft))
    for name, found in (("training", training), ("inference", inference)):
        if not found:
            draft.notes.append(f"no cases of {name}, so none of its tables")
    return draft.finish()


def _split_by_batch_group(figures: Sequence[LayoutFigure]) -> list[list[LayoutFigure]]:
    """Precisions stand side by side at one batch size, or each at the only one that it has."""
    by_precision = group_figures(figures, lambda figure: figure.precision)
    if all(len({f.batch_group for f in group}) == 1 for group in by_precision.values()):
        return [list(figures)]
    groups = group_figures(figures, lambda figure: figure.batch_group)
    return [groups[name] for name in order_batch_groups(groups)]


def _make_training_table(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Table:
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    topologies = list_topologies(shown)
    found = arrange(shown, pair.precisions, topologies, draft)
    columns = [
        _make_throughput_column(f"Throughput - {name_precision(precision)}", own, draft)
        for precision, own in found.items()
    ]
    rates = {name: [figure.samples_per_s for figure in own] for name, own in found.items()}
    if pair.is_complete:
        both = f"{name_precision(pair.reference)} - {name_precision(pair.reduced)}"
        ratios = list(map(make_ratio_cell, rates[pair.reduced], rates[pair.reference]))
        columns.append((f"Throughput speedup ({both})", ratios))
    for precision, own in rates.items():
        # the smallest topology that was measured
        base = next((rate for rate in own if rate is not None), None)
        ratios = [make_ratio_cell(rate, base) for rate in own]
        columns.append((f"Weak scaling - {name_precision(precision)}", ratios))
    return make_layout_table(
        f"{_make_title(shown[0])} training",
        [("GPUs", name_device_counts(topologies)), *columns],
        1,
        f"{_describe_columns(shown, pair)}; {_describe_bases(shown, pair)}",
    )


def _describe_bases(figures: Sequence[LayoutFigure], pair: Pair) -> str:
    bases = {
        min((f.topology.world_size for f in figures if _is_measured(f, precision)), default=0)
        for precision in pair.precisions
    } - {0}
    counts = " and ".join(f"{count} GPU{'s' * (count > 1)}" for count in sorted(bases))
    return f"weak scaling against {counts or 'nothing: no case was measured'}"


def _is_measured(figure: LayoutFigure, precision: str) -> bool:
    return figure.precision == precision and figure.samples_per_s is not None


def _make_inference_table(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Table:
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    points = draft.index(shown, lambda figure: (figure.precision, figure.batch_group))
    groups = order_batch_groups(figure.batch_group for figure in shown)
    name = pair.reduced or pair.reference
    own = [points.get((name, group), NO_FIGURE) for group in groups]
    others = [points.get((pair.reference, group), NO_FIGURE) for group in groups]
    unit = name_unit(figures[0].model, "img/sec")
    columns = [_make_throughput_column(f"Throughput ({unit}) - {name_precision(name)}", own, draft)]
    if pair.is_complete:
        cells = [_make_speedup_cell(a, b, draft) for a, b in zip(own, others)]
        columns.append(("Throughput - speedup", cells))
    for index in range(max(len(figure.latency_ms) for figure in shown)):
        title = f"{LATENCY_NAMES[index]} latency"
        columns.append(_make_latency_column(f"{title} (ms) - {name_precision(name)}", own, index))
        if pair.is_complete:
            cells = [
                make_ratio_cell(_read_latency(b, index), _read_latency(a, index))
                for a, b in zip(own, others)
            ]
            columns.append((f"{title} - speedup", cells))
    over = f"speedups over {name_precision(pair.reference)}; " if pair.is_complete else ""
    return make_layout_table(
        f"{_make_title(shown[0])} inference, {shown[0].topology}",
        [("Batch size", list(map(_name_batch, groups, own))), *columns],
        1,
        f"{over}latency of one batch",
    )


def _make_speedup_cell(figure: LayoutFigure, reference: LayoutFigure, draft: Draft) -> Cell:
    """The speedup, or the problem of its reference, which has no column of its own."""
    if reference.problem:
        return Cell(None, problem=reference.problem, notes=draft.number(reference.footnotes))
    return make_ratio_cell(figure.samples_per_s, reference.samples_per_s)


def _read_latency(figure: LayoutFigure, index: int) -> Optional[float]:
    return figure.latency_ms[index] if index < len(figure.latency_ms) else None


def _name_batch(group: str, figure: LayoutFigure) -> str:
    """What was asked for, with what the job found where that is something else."""
    sizes = list_sizes(figure)
    return group if sizes in ("", group) else f"{group} ({sizes})"


def _make_throughput_column(
    header: str, figures: Sequence[LayoutFigure], draft: Draft
) -> LayoutColumn:
    """Header and cells; each with its problem if there is no figure, and the footnotes' marks."""
    notes = [draft.number(list_footnotes(figure, figures)) for figure in figures]
    cells = make_throughput_cells(figures)
    return header, [replace(cell, notes=own) for cell, own in zip(cells, notes)]


def _make_latency_column(header: str, figures: Sequence[LayoutFigure], index: int) -> LayoutColumn:
    there = [figure for figure in figures if _read_latency(figure, index) is not None]
    decimals = find_decimals(there, lambda figure: figure.latency_ms[index] or 0.0)
    form = Number(f".{decimals}f")
    return header, [Cell(_read_latency(figure, index), form, problem=ABSENT) for figure in figures]


def _make_title(figure: LayoutFigure) -> str:
    compiler = "" if figure.compiler == "none" else f" {figure.compiler}"
    hardware = f", {figure.hardware}" if figure.hardware else ""
    is_named = figure.source not in (OUR_SOURCE, NO_SOURCE)
    source = f" ({figure.source})" if is_named else ""
    return f"{figure.model}: {figure.label}{source}{compiler}{hardware},"


def _describe_columns(figures: Sequence[LayoutFigure], pair: Pair) -> str:
    """The unit, and the batch size of each precision."""
    sizes = []
    for precision in pair.precisions:
        own = (figure for figure in figures if figure.precision == precision)
        sizes.append(f"{describe_sizes(own)} ({name_precision(precision)})")
    return f"{name_unit(figures[0].model)}; batch size per GPU {', '.join(sizes)}"
