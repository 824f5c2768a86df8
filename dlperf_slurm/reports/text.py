"""Tables -> grids of short texts, the same in every format that people read."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.tables.against import AgainstRow, AgainstTable
from dlperf_slurm.reports.tables.latency import LatencyRow, LatencyTable
from dlperf_slurm.reports.tables.precision import Figure, PrecisionTable
from dlperf_slurm.reports.tables.throughput import Cell, Column, ThroughputTable
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, Interval

METHOD = (
    "Throughput: median over independent repeats of global batch size x measured steps / window "
    "of the slowest rank; in parentheses its 95 % interval. Speedup and efficiency: ratios of "
    "medians; in parentheses their 95 % interval, from the ratios of all pairs of repeats. "
    "TFLOP/s: matrix products and convolutions of the model's definition, forward and backward, "
    "over the same time."
)

_MARKS = re.compile(r"(?P<text>.*?) ?(?P<marks>(?:\[[0-9]{1,9}\])+)", re.DOTALL)


@dataclass(frozen=True)
class Grid:
    """A table in texts, never an empty one; the first `text_columns` are words, not figures.

    `has_marks`: "[1]" at the end of a cell is a footnote's; else it is a part of the text.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int
    caption: str
    has_marks: bool = True


def make_throughput_grid(table: ThroughputTable, is_wide: bool = True) -> Grid:
    """One row per case of the matrix; not wide it has no intervals of efficiencies."""
    texts = ["framework", *(["compiler"] if table.has_compilers else []), "topology"]
    figures = [table.unit, "speedup", "efficiency", "TFLOP/s per device"]
    return Grid(
        title=table.title,
        header=(*texts, *(["batch size"] if table.is_searched else []), *figures),
        rows=tuple(
            (
                column.label,
                *([column.compiler] if table.has_compilers else []),
                str(topology),
                *([_format_batch_sizes(cell.batch_sizes)] if table.is_searched else []),
                *format_cell(cell, is_wide),
            )
            for column in table.columns
            for topology, cell in zip(table.topologies, column.cells)
            if cell.case_id
        ),
        text_columns=len(texts),
        caption=describe_baselines(table.columns),
    )


def format_cell(cell: Cell, is_wide: bool) -> list[str]:
    """Throughput with its interval or range, then what follows from it; or the problem."""
    if cell.median is None:
        return [f"{cell.problem} {mark_footnotes(cell.footnotes)}".strip(), *[cell.problem] * 3]
    work = "unknown" if cell.tflops_per_device is None else f"{cell.tflops_per_device:.3g}"
    return [
        _format_throughput(cell),
        format_ratio(cell.speedup, cell.speedup_interval),
        _format_share(cell.efficiency, cell.efficiency_interval if is_wide else None),
        work,
    ]


def _format_throughput(cell: Union[Cell, LatencyRow]) -> str:
    spread = _format_spread(cell.interval, cell.samples_per_s)
    count = len(cell.samples_per_s)
    missing = f" n={count} of {cell.planned_repeats}" if count < cell.planned_repeats else ""
    return f"{cell.median:.2f}{spread}{missing} {mark_footnotes(cell.footnotes)}".rstrip()


def _format_spread(interval: Optional[Interval], values: Sequence[float]) -> str:
    """The median's interval; without one the range of the values, if they are several."""
    if interval is not None:
        return f" ({interval.low:.2f} to {interval.high:.2f})"
    return f" {{{min(values):.2f} to {max(values):.2f}}}" if len(values) > 1 else ""


def make_precision_grid(table: PrecisionTable) -> Grid:
    """NVIDIA's columns: throughputs, their speedups, their weak scaling; one row per topology."""
    reduced = [c for c in table.columns if c.precision != table.reference_precision]
    compared = reduced if table.reference_precision else []
    header = [
        "topology",
        *(f"{table.unit} {c.precision} bs {c.batch_size}" for c in table.columns),
        *(f"speedup {c.precision} / {table.reference_precision}" for c in compared),
        *(f"weak scaling {c.precision}" for c in table.columns),
    ]
    rows = [
        (
            str(topology),
            *(_join_figures(c.cells[row], "median") for c in table.columns),
            *(_join_figures(c.cells[row], "speedup") for c in compared),
            *(_join_figures(c.cells[row], "weak_scaling") for c in table.columns),
        )
        for row, topology in enumerate(table.topologies)
    ]
    values = f"in a cell: {' / '.join(table.compilers)}; " if len(table.compilers) > 1 else ""
    return Grid(
        title=table.title,
        header=tuple(header),
        rows=tuple(rows),
        text_columns=1,
        caption=f"{values}medians; weak scaling against the smallest topology measured",
    )


def _join_figures(figures: Sequence[Figure], name: str) -> str:
    """One value per compiler, with the case's marks behind the throughput.

    Only the speedups have their intervals: those of the rest stand in the throughput tables.
    """
    texts = []
    for figure in figures:
        value: Optional[float] = getattr(figure, name)
        if value is None and figure.problem:
            texts.append(figure.problem)
        else:
            interval = figure.speedup_interval if name == "speedup" else None
            texts.append(format_ratio(value, interval))
    marks = mark_footnotes(dict.fromkeys(n for f in figures for n in f.footnotes))
    return " / ".join(texts) + (f" {marks}" if marks and name == "median" else "")


def make_latency_grid(table: LatencyTable, is_wide: bool = True) -> Grid:
    """NVIDIA's columns: throughput and latencies in ms, each with its speedup if there is one.

    The mean latency and its speedup have their intervals: with those of the percentiles, which the
    files have, nobody could read the table. Not wide it has neither, nor the latencies' speedups.
    """
    is_compared = len({row.precision for row in table.rows}) > 1 and bool(table.reference_precision)
    names = ["avg ms", *(f"{percent} % ms" for percent in LATENCY_PERCENTILES)]
    header = ["precision", "batch size", table.unit, *(["speedup"] if is_compared else [])]
    for name in names:
        header += [name, *(["speedup"] if is_compared and is_wide else [])]
    reference = f"speedup over {table.reference_precision}; " if is_compared else ""
    return Grid(
        title=table.title,
        header=tuple(header),
        rows=tuple(tuple(_format_latency_row(row, is_compared, is_wide)) for row in table.rows),
        text_columns=1,
        caption=f"{reference}latency of one batch, all ranks' batches alike, medians over repeats; "
        f"their intervals {'but for the average ' if is_wide else ''}are in the report's CSV",
    )


def _format_latency_row(row: LatencyRow, is_compared: bool, is_wide: bool) -> list[str]:
    size = _format_batch_sizes(row.batch_sizes) if row.batch_sizes else row.batch_size
    width = len(LATENCY_PERCENTILES) + 1
    if row.median is None or row.latency is None:
        cells = 1 + width * (2 if is_compared and is_wide else 1) + is_compared
        marked = f"{row.problem} {mark_footnotes(row.footnotes)}".rstrip()
        return [row.precision, size, marked, *[row.problem] * (cells - 1)]
    texts = [row.precision, size, _format_throughput(row)]
    if is_compared:
        texts.append(format_ratio(row.speedup, row.speedup_interval))
    ratios = row.latency_speedup or (None,) * width
    for index, (seconds, ratio) in enumerate(zip(row.latency.values, ratios)):
        has_spread = is_wide and index == 0
        texts.append(f"{1000 * seconds:.2f}{_format_mean_spread(row) if has_spread else ''}")
        if is_compared and is_wide:
            intervals = row.latency_speedup_intervals if has_spread else ()
            texts.append(format_ratio(ratio, next(iter(intervals), None)))
    return texts


def _format_mean_spread(row: LatencyRow) -> str:
    """In milliseconds."""
    interval = row.latency_intervals[0]
    values = [1000 * latency.mean for latency in row.repeat_latencies]
    return _format_spread(None if interval is None else interval.scale(1000), values)


def make_against_grid(table: AgainstTable) -> Grid:
    """Ours, theirs and the ratio, with the hardware of both and what else differs."""
    units = ", ".join(dict.fromkeys(row.unit for row in table.rows))
    return Grid(
        title=table.title,
        header=(
            "case",
            "our hardware",
            "their hardware",
            "theirs differs in",
            "published in",
            "ours",
            "theirs",
            "ours / theirs",
        ),
        rows=tuple(_format_against_row(row) for row in table.rows),
        text_columns=5,
        caption=f"{units}; of the same model the published figure that is nearest to the case, "
        "several where they tie",
        has_marks=False,
    )


def _format_against_row(row: AgainstRow) -> tuple[str, ...]:
    ours = row.problem if row.median is None else f"{row.median:.2f}"
    figure = row.figure
    if figure is None:
        return (
            row.case_id,
            row.hardware,
            "",
            "none of this model and mode",
            "",
            ours,
            "none",
            "none",
        )
    # what of theirs has a variant: "W/O clip", the location of the data
    words = [figure.note, figure.data_location, figure.variable_update]
    return (
        row.case_id,
        row.hardware,
        figure.hardware,
        "; ".join([*row.differences, *filter(None, words)]) or "nothing known",
        figure.where,
        ours,
        f"{figure.samples_per_s:.2f}",
        "none" if row.ratio is None else f"{row.ratio:#.3g}",
    )


def format_ratio(ratio: Optional[float], interval: Optional[Interval] = None) -> str:
    if ratio is None:
        return "no reference"
    spread = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"{ratio:.2f}{spread}"


def _format_share(share: Optional[float], interval: Optional[Interval]) -> str:
    if share is None:
        return "no reference"
    percent = None if interval is None else interval.scale(100)
    spread = "" if percent is None else f" ({percent.low:.1f} to {percent.high:.1f})"
    return f"{100 * share:.1f} %{spread}"


def _format_batch_sizes(sizes: Sequence[int]) -> str:
    return " and ".join(map(str, sizes)) or "none"


def mark_footnotes(footnotes: Iterable[int]) -> str:
    return "".join(f"[{number}]" for number in sorted(set(footnotes)))


def split_marks(text: str, footnotes: int) -> tuple[str, tuple[int, ...]]:
    """A cell without its marks, and their numbers; none where one is of no footnote, 1 to n."""
    match = _MARKS.fullmatch(text)
    numbers = tuple(map(int, re.findall("[0-9]+", match["marks"]))) if match else ()
    if match is None or not all(0 < number <= footnotes for number in numbers):
        return text, ()
    return match["text"], numbers


def describe_baselines(columns: Sequence[Column]) -> str:
    """Which topology the speedups of a table are relative to."""
    baselines = {str(column.baseline) for column in columns if column.baseline is not None}
    if not baselines:
        return "no case of this table was measured"
    if len(baselines) == 1:
        return f"speedup and weak-scaling efficiency against {min(baselines)}"
    each = (f"{c.label}: {c.baseline}" for c in columns if c.baseline is not None)
    return "speedup and weak-scaling efficiency against " + ", ".join(each)


def describe_run(summary: Summary) -> str:
    """One line under the title: which run, where, when, how much of it is there."""
    manifest = summary.manifest
    version = f"{manifest.tool_version} {manifest.tool_git}".strip()
    return (
        f"run {manifest.run_id}, site {manifest.site_name}, {manifest.created_at}, "
        f"dlperf_slurm {version}, {summary.ok_repeats} of {summary.planned_repeats} "
        "repeats measured"
    )
