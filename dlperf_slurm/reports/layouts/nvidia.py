"""Figures -> NVIDIA's tables: two precisions side by side, for training and for inference.

The columns are those of the performance sections in NVIDIA's DeepLearningExamples.
"""

from collections.abc import Mapping, Sequence
from typing import Optional

from dlperf_slurm.contract.axes import TRAIN, VAL
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.layouts.document import (
    ABSENT,
    Document,
    Draft,
    describe_sizes,
    divide,
    find_decimals,
    format_number,
    format_ratio,
    format_throughputs,
    group_figures,
    list_footnotes,
    list_sizes,
    list_topologies,
    name_device_counts,
    name_unit,
    order_batch_groups,
)
from dlperf_slurm.reports.layouts.figures import NO_SOURCE, OUR_SOURCE, LayoutFigure
from dlperf_slurm.reports.layouts.nvidia_accuracy import make_accuracy_grids
from dlperf_slurm.reports.layouts.precision_pairs import Pair, name_precision, pair_precisions
from dlperf_slurm.reports.text import Grid

LATENCY_NAMES = ("Avg", "50%", "90%", "95%", "99%", "100%")


def lay_out(figures: Sequence[LayoutFigure]) -> Document:
    """A table per model, framework, compiler and pair of precisions.

    Throughput of training first, then accuracy, then inference.
    """
    draft = Draft()
    training = [figure for figure in figures if figure.mode == TRAIN]
    for group in group_figures(training, _find_training_key).values():
        for part in _split_by_batch_group(group):
            for pair in pair_precisions(part, draft):
                draft.grids.append(_make_training_grid(part, pair, draft))
    draft.grids += make_accuracy_grids(training, draft)
    inference = [figure for figure in figures if figure.mode == VAL]
    for group in group_figures(inference, _find_inference_key).values():
        for pair in pair_precisions(group, draft):
            draft.grids.append(_make_inference_grid(group, pair, draft))
    for name, found in (("training", training), ("inference", inference)):
        if not found:
            draft.notes.append(f"no cases of {name}, so none of its tables")
    return draft.finish()


def _find_training_key(figure: LayoutFigure) -> tuple[str, ...]:
    return (
        figure.model,
        figure.label,
        figure.source,
        figure.compiler,
        figure.data_location,
        figure.table,
    )


def _find_inference_key(figure: LayoutFigure) -> tuple[str, ...]:
    return (*_find_training_key(figure), str(figure.topology))


def _split_by_batch_group(figures: Sequence[LayoutFigure]) -> list[list[LayoutFigure]]:
    """Precisions stand side by side at one batch size, or each at the only one that it has."""
    by_precision = group_figures(figures, lambda figure: figure.precision)
    if all(len({f.batch_group for f in group}) == 1 for group in by_precision.values()):
        return [list(figures)]
    groups = group_figures(figures, lambda figure: figure.batch_group)
    return [groups[name] for name in order_batch_groups(groups)]


def _make_training_grid(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Grid:
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    points = draft.index(shown, lambda figure: (figure.precision, figure.topology))
    topologies = list_topologies(shown)
    columns = [
        _make_throughput_column(
            f"Throughput - {name_precision(precision)}",
            [points.get((precision, topology)) for topology in topologies],
            draft,
        )
        for precision in pair.precisions
    ]
    if pair.is_complete:
        both = f"{name_precision(pair.reference)} - {name_precision(pair.reduced)}"
        name = f"Throughput speedup ({both})"
        ratios = (_find_speedup(points, pair, topology) for topology in topologies)
        columns.append((name, *map(format_ratio, ratios)))
    for precision in pair.precisions:
        rates = [_get_rate(points, precision, topology) for topology in topologies]
        # the smallest topology that was measured
        base = next((rate for rate in rates if rate is not None), None)
        ratios = (divide(rate, base) for rate in rates)
        columns.append((f"Weak scaling - {name_precision(precision)}", *map(format_ratio, ratios)))
    return _make_grid(
        f"{_make_title(shown[0])} training",
        [("GPUs", *name_device_counts(topologies)), *columns],
        f"{_describe_columns(shown, pair)}; {_describe_bases(shown, pair)}",
    )


_Points = Mapping[tuple[str, Topology], LayoutFigure]


def _get_rate(points: _Points, precision: str, topology: Topology) -> Optional[float]:
    figure = points.get((precision, topology))
    return None if figure is None else figure.samples_per_s


def _find_speedup(points: _Points, pair: Pair, topology: Topology) -> Optional[float]:
    reference = _get_rate(points, pair.reference, topology)
    return divide(_get_rate(points, pair.reduced, topology), reference)


def _describe_bases(figures: Sequence[LayoutFigure], pair: Pair) -> str:
    bases = {
        min((f.topology.world_size for f in figures if _is_measured(f, precision)), default=0)
        for precision in pair.precisions
    } - {0}
    counts = " and ".join(f"{count} GPU{'s' * (count > 1)}" for count in sorted(bases))
    return f"weak scaling against {counts or 'nothing: no case was measured'}"


def _is_measured(figure: LayoutFigure, precision: str) -> bool:
    return figure.precision == precision and figure.samples_per_s is not None


def _make_inference_grid(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Grid:
    shown = [figure for figure in figures if figure.precision in pair.precisions]
    points = draft.index(shown, lambda figure: (figure.precision, figure.batch_group))
    groups = order_batch_groups(figure.batch_group for figure in shown)
    name = pair.reduced or pair.reference
    own = [points.get((name, group)) for group in groups]
    others = [points.get((pair.reference, group)) for group in groups]
    unit = name_unit(figures[0].model, "img/sec")
    columns = [_make_throughput_column(f"Throughput ({unit}) - {name_precision(name)}", own, draft)]
    if pair.is_complete:
        cells = (_format_speedup(a, b, draft) for a, b in zip(own, others))
        columns.append(("Throughput - speedup", *cells))
    for index in range(max(len(figure.latency_ms) for figure in shown)):
        title = f"{LATENCY_NAMES[index]} latency"
        columns.append(_make_latency_column(f"{title} (ms) - {name_precision(name)}", own, index))
        if pair.is_complete:
            times = [
                (_read_latency(a, index), _read_latency(b, index)) for a, b in zip(own, others)
            ]
            ratios = [divide(base, time) for time, base in times]
            columns.append((f"{title} - speedup", *map(format_ratio, ratios)))
    over = f"speedups over {name_precision(pair.reference)}; " if pair.is_complete else ""
    return _make_grid(
        f"{_make_title(shown[0])} inference, {shown[0].topology}",
        [("Batch size", *(_name_batch(group, f) for group, f in zip(groups, own))), *columns],
        f"{over}latency of one batch",
    )


def _format_speedup(
    figure: Optional[LayoutFigure], reference: Optional[LayoutFigure], draft: Draft
) -> str:
    """In its place the problem of the reference, which has no column of its own."""
    if reference is not None and reference.problem:
        return f"{reference.problem} {draft.mark(reference.footnotes)}".rstrip()
    return format_ratio(divide(_read_rate(figure), _read_rate(reference)))


def _read_rate(figure: Optional[LayoutFigure]) -> Optional[float]:
    return None if figure is None else figure.samples_per_s


def _read_latency(figure: Optional[LayoutFigure], index: int) -> Optional[float]:
    if figure is None or index >= len(figure.latency_ms):
        return None
    return figure.latency_ms[index]


def _name_batch(group: str, figure: Optional[LayoutFigure]) -> str:
    """What was asked for, with what the job found where that is something else."""
    sizes = list_sizes(figure) if figure is not None else ""
    return group if sizes in ("", group) else f"{group} ({sizes})"


_Column = tuple[str, ...]


def _make_throughput_column(
    header: str, figures: Sequence[Optional[LayoutFigure]], draft: Draft
) -> _Column:
    """Header and cells; each with its problem if there is no figure, and the footnotes' marks."""
    marks = [draft.mark(list_footnotes(f, figures)) if f is not None else "" for f in figures]
    texts = format_throughputs(figures)
    return (header, *(f"{text} {mark}".rstrip() for text, mark in zip(texts, marks)))


def _make_latency_column(
    header: str, figures: Sequence[Optional[LayoutFigure]], index: int
) -> _Column:
    there = [figure for figure in figures if _read_latency(figure, index) is not None]
    decimals = find_decimals(filter(None, there), lambda figure: figure.latency_ms[index])
    values = (_read_latency(figure, index) for figure in figures)
    texts = (ABSENT if value is None else format_number(value, decimals) for value in values)
    return (header, *texts)


def _make_grid(title: str, columns: Sequence[_Column], caption: str) -> Grid:
    header, *rows = zip(*columns)
    return Grid(title, header, tuple(rows), text_columns=1, caption=caption)


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
