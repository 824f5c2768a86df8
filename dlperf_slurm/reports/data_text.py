"""Data tables -> grids: throughput with the time that ranks waited for data, and without it."""

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST
from dlperf_slurm.reports.tables.data import DataRow, DataTable
from dlperf_slurm.reports.text import Grid, format_ratio, mark_footnotes


def make_data_grid(table: DataTable) -> Grid:
    """One row per case."""
    has_precisions = len({row.precision for row in table.rows}) > 1
    has_sizes = len({row.batch_size for row in table.rows}) > 1
    return Grid(
        title=table.title,
        header=(
            *("framework", "data", "topology"),
            *(["precision"] if has_precisions else []),
            *(["batch size"] if has_sizes else []),
            *(table.unit, "without waiting", "waiting", "of data on the device"),
        ),
        rows=tuple(_format_row(row, has_precisions, has_sizes) for row in table.rows),
        text_columns=3 + has_precisions,
        caption="medians; waiting: share of the window in which the rank that waited longest had "
        "no batch, by the host's clock",
    )


def _format_row(row: DataRow, has_precisions: bool, has_sizes: bool) -> tuple[str, ...]:
    words = (
        row.label,
        describe_source(row),
        row.topology,
        *([row.precision] if has_precisions else []),
        *([row.batch_size] if has_sizes else []),
    )
    marks = mark_footnotes(row.footnotes)
    if row.samples_per_s is None:
        return (*words, f"{row.problem} {marks}".rstrip(), *[row.problem] * 3)
    return (
        *words,
        f"{row.samples_per_s:.2f} {marks}".rstrip(),
        "unknown" if row.computed_samples_per_s is None else f"{row.computed_samples_per_s:.2f}",
        "unknown" if row.waiting_share is None else f"{100 * row.waiting_share:.1f} %",
        format_ratio(row.relative, row.relative_interval),
    )


def describe_source(row: DataRow) -> str:
    """The data source, with its workers and how far ahead each may be."""
    if row.data in (ON_DEVICE, ON_HOST):
        return row.data
    return f"{row.data}, {row.data_workers} x {row.prefetch_batches}"
