"""Summary -> all its tables in cells, the same in every format that people read."""

from collections.abc import Iterator, Sequence
from typing import Optional, Union

from dlperf_slurm.reports.case_cells import (
    tabulate_accuracy,
    tabulate_data,
    tabulate_rank_times,
    tabulate_ranks,
    tabulate_resources,
)
from dlperf_slurm.reports.cells import (
    MILLISECONDS,
    NO_REFERENCE,
    SHARE,
    UNKNOWN,
    Cell,
    Column,
    Number,
    Table,
    join_cells,
    join_counts,
    tabulate,
)
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.tables import throughput
from dlperf_slurm.reports.tables.against import AgainstRow, AgainstTable
from dlperf_slurm.reports.tables.latency import LatencyRow, LatencyTable
from dlperf_slurm.reports.tables.precision import PrecisionColumn, PrecisionTable
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, Interval


def tabulate_run(summary: Summary, is_wide: bool = True) -> Iterator[Table]:
    """All tables of a run, in the order of a report; not wide they leave out what is least missed.

    These are the intervals of efficiencies, which are those of speedups per device, the speedups of
    latencies, and the step times by rank.
    """
    for throughput_table in summary.throughput_tables:
        yield tabulate_throughput(throughput_table, is_wide)
    yield from map(tabulate_precision, summary.precision_tables)
    yield from map(tabulate_data, summary.data_tables)
    yield from map(tabulate_accuracy, summary.accuracy_tables)
    for latency in summary.latency_tables:
        yield tabulate_latency(latency, is_wide)
    yield from map(tabulate_against, summary.against_tables)
    yield from map(tabulate_resources, summary.resource_tables)
    for ranks in summary.rank_tables:
        yield tabulate_ranks(ranks)
        if is_wide:
            yield tabulate_rank_times(ranks)


# a case in its place
_Place = tuple[throughput.Column, str, throughput.Cell]


def tabulate_throughput(table: throughput.ThroughputTable, is_wide: bool = True) -> Table:
    """One row per case of the matrix; not wide it has no intervals of efficiencies."""
    words: list[Column[_Place]] = [
        Column("framework", lambda place: place[0].label),
        Column("topology", lambda place: place[1]),
    ]
    figures: list[Column[_Place]] = [
        Column(table.unit, lambda place: _make_throughput_cell(place[2])),
        Column("speedup", lambda place: _make_speedup_cell(place[2]), missing=NO_REFERENCE),
        Column(
            "efficiency",
            lambda place: _make_efficiency_cell(place[2], is_wide),
            missing=NO_REFERENCE,
        ),
        Column(
            "TFLOP/s per device",
            lambda place: place[2].tflops_per_device,
            Number(".3g"),
            UNKNOWN,
        ),
    ]
    if table.has_compilers:
        words.insert(1, Column("compiler", lambda place: place[0].compiler))
    if table.is_searched:
        figures.insert(0, Column("batch size", lambda place: join_counts(place[2].batch_sizes)))
    places = [
        (column, str(topology), cell)
        for column in table.columns
        for topology, cell in zip(table.topologies, column.cells)
        if cell.case_id
    ]
    caption = describe_baselines(table.columns)
    return tabulate(table.title, words, figures, places, caption, lambda place: place[2].problem)


def _make_throughput_cell(row: Union[throughput.Cell, LatencyRow]) -> Cell:
    """Samples per second with their interval, or else their range."""
    count = len(row.samples_per_s)
    return Cell(
        row.median,
        interval=row.interval,
        range=_find_range(row.samples_per_s),
        repeats=(count, row.planned_repeats) if 0 < count < row.planned_repeats else None,
        notes=row.footnotes,
    )


def _find_range(values: Sequence[float]) -> Optional[Interval]:
    return Interval(min(values), max(values)) if len(values) > 1 else None


def _make_speedup_cell(row: Union[throughput.Cell, LatencyRow]) -> Cell:
    return Cell(row.speedup, interval=row.speedup_interval)


def _make_efficiency_cell(cell: throughput.Cell, is_wide: bool) -> Cell:
    return Cell(cell.efficiency, SHARE, cell.efficiency_interval if is_wide else None)


def describe_baselines(columns: Sequence[throughput.Column]) -> str:
    """Which topology the speedups of a table are relative to."""
    baselines = {str(column.baseline) for column in columns if column.baseline is not None}
    if not baselines:
        return "no case of this table was measured"
    if len(baselines) == 1:
        return f"speedup and weak-scaling efficiency against {min(baselines)}"
    each = (f"{c.label}: {c.baseline}" for c in columns if c.baseline is not None)
    return "speedup and weak-scaling efficiency against " + ", ".join(each)


def tabulate_precision(table: PrecisionTable) -> Table:
    """NVIDIA's columns: throughputs, their speedups, their weak scaling; one row per topology."""
    reference = table.reference_precision
    reduced = [c for c in table.columns if reference and c.precision != reference]
    headers = [
        *((f"{table.unit} {c.precision} bs {c.batch_size}", c, "median") for c in table.columns),
        *((f"speedup {c.precision} / {reference}", c, "speedup") for c in reduced),
        *((f"weak scaling {c.precision}", c, "weak_scaling") for c in table.columns),
    ]
    words = [Column[int]("topology", lambda row: str(table.topologies[row]))]
    figures = [_make_precision_column(*header) for header in headers]
    values = f"in a cell: {' / '.join(table.compilers)}; " if len(table.compilers) > 1 else ""
    caption = f"{values}medians; weak scaling against the smallest topology measured"
    return tabulate(table.title, words, figures, range(len(table.topologies)), caption)


def _make_precision_column(header: str, column: PrecisionColumn, name: str) -> Column[int]:
    """One value per compiler, with the case's marks behind the throughput.

    Only the speedups have their intervals: those of the rest stand in the throughput tables.
    """

    def read(row: int) -> Cell:
        figures = column.cells[row]
        cells = [
            Cell(
                getattr(figure, name),
                interval=figure.speedup_interval if name == "speedup" else None,
                problem=figure.problem or NO_REFERENCE,
            )
            for figure in figures
        ]
        notes = [n for f in figures for n in f.footnotes] if name == "median" else ()
        return join_cells(cells, " / ", notes)

    return Column(header, read)


def tabulate_latency(table: LatencyTable, is_wide: bool = True) -> Table:
    """NVIDIA's columns: throughput and latencies in ms, each with its speedup if there is one.

    The mean latency and its speedup have their intervals: with those of the percentiles, which the
    files have, nobody could read the table. Not wide it has neither, nor the latencies' speedups.
    """
    is_compared = len({row.precision for row in table.rows}) > 1 and bool(table.reference_precision)
    figures: list[Column[LatencyRow]] = [
        Column("batch size", _make_batch_size_cell),
        Column(table.unit, _make_throughput_cell),
    ]
    if is_compared:
        figures.append(Column("speedup", _make_speedup_cell, missing=NO_REFERENCE))
    names = ["avg ms", *(f"{percent} % ms" for percent in LATENCY_PERCENTILES)]
    for index, name in enumerate(names):
        figures.append(_make_latency_column(name, index, is_wide))
        if is_compared and is_wide:
            figures.append(_make_latency_speedup_column(index))
    words = [Column[LatencyRow]("precision", lambda row: row.precision)]
    reference = f"speedup over {table.reference_precision}; " if is_compared else ""
    caption = (
        f"{reference}latency of one batch, all ranks' batches alike, medians over repeats; "
        f"their intervals {'but for the average ' if is_wide else ''}are in the report's CSV"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def _make_batch_size_cell(row: LatencyRow) -> Cell:
    return join_counts(row.batch_sizes) if row.batch_sizes else Cell(row.batch_size)


def _make_latency_column(name: str, index: int, is_wide: bool) -> Column[LatencyRow]:
    def read(row: LatencyRow) -> Cell:
        if row.latency is None:
            return Cell(None)
        has_spread = is_wide and index == 0
        return Cell(
            row.latency.values[index],
            MILLISECONDS,
            row.latency_intervals[0] if has_spread else None,
            _find_range([each.mean for each in row.repeat_latencies]) if has_spread else None,
        )

    return Column(name, read)


def _make_latency_speedup_column(index: int) -> Column[LatencyRow]:
    def read(row: LatencyRow) -> Cell:
        ratio = None if row.latency_speedup is None else row.latency_speedup[index]
        intervals = row.latency_speedup_intervals if index == 0 else ()
        return Cell(ratio, interval=next(iter(intervals), None))

    return Column("speedup", read, missing=NO_REFERENCE)


def tabulate_against(table: AgainstTable) -> Table:
    """Ours, theirs and the ratio, with the hardware of both and what else differs."""
    units = ", ".join(dict.fromkeys(row.unit for row in table.rows))
    words: list[Column[AgainstRow]] = [
        Column("case", lambda row: row.case_id),
        Column("our hardware", lambda row: row.hardware),
        Column("their hardware", lambda row: row.figure.hardware if row.figure else ""),
        Column("theirs differs in", _describe_differences),
        Column("published in", lambda row: row.figure.where if row.figure else ""),
    ]
    figures: list[Column[AgainstRow]] = [
        Column("ours", lambda row: Cell(row.median, problem=row.problem)),
        Column("theirs", _get_theirs, missing="none"),
        Column("ours / theirs", lambda row: row.ratio, Number("#.3g"), "none"),
    ]
    caption = (
        f"{units}; of the same model the published figure that is nearest to the case, "
        "several where they tie"
    )
    return tabulate(table.title, words, figures, table.rows, caption)


def _get_theirs(row: AgainstRow) -> Optional[float]:
    return row.figure.samples_per_s if row.figure else None


def _describe_differences(row: AgainstRow) -> str:
    figure = row.figure
    if figure is None:
        return "none of this model and mode"
    # what of theirs has a variant: "W/O clip", the location of the data
    words = [figure.note, figure.data_location, figure.variable_update]
    return "; ".join([*row.differences, *filter(None, words)]) or "nothing known"
