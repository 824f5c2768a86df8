"""Tables of cases -> cells: accuracy, sources of data, memory and energy, ranks."""

from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST
from dlperf_slurm.reports.cells import (
    COUNT,
    MILLISECONDS,
    NO_REFERENCE,
    PERCENT,
    SHARE,
    UNKNOWN,
    Cell,
    Column,
    Duration,
    Number,
    Table,
    tabulate,
)
from dlperf_slurm.reports.tables.accuracy import AccuracyRow, AccuracyTable
from dlperf_slurm.reports.tables.data import DataRow, DataTable
from dlperf_slurm.reports.tables.ranks import RankRow, RankTable
from dlperf_slurm.reports.tables.resources import ResourceRow, ResourceTable
from dlperf_slurm.results.rank_times import STEP_PERCENTILES, RankTimes

# of ranks, as many as one would look at
SHOWN_SLOW_RANKS = 3


def _count(count: Optional[int], total: int) -> Cell:
    """Such as "2 of 3"."""
    return Cell(count, Number(".0f", unit=f" of {total}"))


def tabulate_accuracy(table: AccuracyTable) -> Table:
    """One row per case, with NVIDIA's figures: average, deviation, extremes, time to train."""
    words: list[Column[AccuracyRow]] = [
        Column("framework", lambda row: row.label),
        Column("precision", lambda row: row.precision),
        Column("topology", lambda row: row.topology),
    ]
    figures: list[Column[AccuracyRow]] = [
        Column("batch size", lambda row: row.batch_size),
        Column("seeds", _count_seeds),
        Column("average top-1 %", lambda row: row.average, PERCENT),
        Column("deviation", lambda row: row.deviation, PERCENT, "one seed"),
        Column("minimum", lambda row: min(row.top1, default=None), PERCENT),
        Column("maximum", lambda row: max(row.top1, default=None), PERCENT),
        Column("epochs", lambda row: row.epochs, Number("g")),
        Column("time to train", lambda row: row.train_seconds, Duration(), UNKNOWN),
    ]
    if table.target:
        header = f"reached {100 * table.target:g} %"
        figures.insert(-1, Column(header, lambda row: _count(row.reached, len(row.top1))))
    if table.reference_precision and len({row.precision for row in table.rows}) > 1:
        header = f"speedup over {table.reference_precision}"
        figures.append(Column(header, _make_speedup_cell, missing=NO_REFERENCE))
    caption = (
        "top-1 after the last epoch, one value per seed; standard deviation (n - 1) in "
        "percentage points; time to train with the validations, median over seeds"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def _make_speedup_cell(row: AccuracyRow) -> Cell:
    return Cell(row.speedup, interval=row.speedup_interval)


def _count_seeds(row: AccuracyRow) -> Cell:
    count = len(row.top1)
    unit = "" if count == row.planned_seeds else f" of {row.planned_seeds}"
    return Cell(count or None, Number(".0f", unit=unit), notes=row.footnotes)


def tabulate_data(table: DataTable) -> Table:
    """One row per case: throughput with the time that ranks waited for data, and without it."""
    words: list[Column[DataRow]] = [
        Column("framework", lambda row: row.label),
        Column("data", describe_source),
        Column("topology", lambda row: row.topology),
    ]
    figures: list[Column[DataRow]] = [
        Column(table.unit, lambda row: Cell(row.samples_per_s, notes=row.footnotes)),
        Column("without waiting", lambda row: row.computed_samples_per_s, missing=UNKNOWN),
        Column("waiting", lambda row: row.waiting_share, SHARE, UNKNOWN),
        Column("of data on the device", _make_relative_cell, missing=NO_REFERENCE),
    ]
    if len({row.precision for row in table.rows}) > 1:
        words.append(Column("precision", lambda row: row.precision))
    if len({row.batch_size for row in table.rows}) > 1:
        figures.insert(0, Column("batch size", lambda row: row.batch_size))
    caption = (
        "medians; waiting: share of the window in which the rank that waited longest had "
        "no batch, by the host's clock"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def _make_relative_cell(row: DataRow) -> Cell:
    return Cell(row.relative, interval=row.relative_interval)


def describe_source(row: DataRow) -> str:
    """The data source, with its workers and how far ahead each may be."""
    if row.data in (ON_DEVICE, ON_HOST):
        return row.data
    return f"{row.data}, {row.data_workers} x {row.prefetch_batches}"


def tabulate_resources(table: ResourceTable) -> Table:
    """One row per case; columns that no case knows are left out.

    Unknown is what was not sampled, or cannot be on this hardware.
    """
    columns: list[Column[ResourceRow]] = [
        Column("peak MiB", lambda row: row.peak_memory_bytes, Number(".0f", 1 / 2**20), UNKNOWN),
        Column("busy %", lambda row: row.utilization, Number(".0f", 100), UNKNOWN),
        Column("W", lambda row: row.power_watts, Number(".1f"), UNKNOWN),
        Column(table.unit, lambda row: row.samples_per_joule, Number(".3f"), UNKNOWN),
        Column("MHz", lambda row: row.clock_mhz, COUNT, UNKNOWN),
        Column("least MHz", lambda row: row.least_clock_mhz, COUNT, UNKNOWN),
    ]
    words = [Column[ResourceRow]("case", lambda row: Cell(row.case_id, notes=row.footnotes))]
    known = [c for c in columns if any(c.read(row) is not None for row in table.rows)]
    caption = (
        "peak memory of the rank that takes most; use, power and clocks of all devices "
        "(of the hosts' CPUs, where these are the devices) over the window, medians over repeats"
    )
    return tabulate(f"{table.model}: memory and energy", words, known, table.rows, caption)


def tabulate_ranks(table: RankTable) -> Table:
    """One row per case of several ranks: who was slow."""
    words: list[Column[RankRow]] = [
        Column("case", lambda row: row.case_id),
        Column("slowest rank", _name_slowest),
    ]
    figures: list[Column[RankRow]] = [
        Column("slowest in", lambda row: _count_slowest(row.ranks[0])),
        Column("imbalance", lambda row: row.imbalance, Number(".3f")),
        Column("waiting", lambda row: row.waiting_share, SHARE, "none"),
    ]
    caption = (
        "imbalance: the slowest rank's median step over the median rank's; waiting: 1 - "
        "mean over ranks / slowest rank, averaged over steps; medians over repeats. Ranks that "
        "meet within a step, as in an all-reduce, wait there: there may be more of both"
    )
    return tabulate("ranks", words, figures, table.rows, caption)


def _name_slowest(row: RankRow) -> Cell:
    slowest = row.ranks[0]
    return Cell(f"{_name_rank(slowest)} on {slowest.host}", notes=row.footnotes)


def _name_rank(times: RankTimes) -> str:
    """The device of one host had these ranks in different repeats."""
    return " or ".join(map(str, times.ranks))


def _count_slowest(times: RankTimes) -> Cell:
    return _count(times.slowest_repeats, times.repeats)


def tabulate_rank_times(table: RankTable) -> Table:
    """The slowest ranks of each case and the fastest, with percentiles of their steps."""
    words: list[Column[tuple[str, RankTimes]]] = [
        Column("case", lambda row: row[0]),
        Column("rank", lambda row: _name_rank(row[1])),
        Column("host", lambda row: row[1].host),
        Column("device", lambda row: row[1].device_name),
    ]
    figures: list[Column[tuple[str, RankTimes]]] = [
        Column("slowest in", lambda row: _count_slowest(row[1])),
        Column("of the median rank", lambda row: row[1].slowness, Number(".3f")),
        *(_make_step_column(index) for index in range(len(STEP_PERCENTILES))),
    ]
    rows = [
        (row.case_id, times)
        for row in table.rows
        for times in (*row.ranks[:-1][:SHOWN_SLOW_RANKS], row.ranks[-1])
    ]
    caption = (
        f"up to {SHOWN_SLOW_RANKS} slowest ranks of each case and the fastest; "
        "percentiles of the steps of all repeats. The JSON report has every rank"
    )
    return tabulate("step times by rank", words, figures, rows, caption)


def _make_step_column(index: int) -> Column[tuple[str, RankTimes]]:
    header = f"{STEP_PERCENTILES[index]} % ms"
    return Column(header, lambda row: row[1].step_seconds[index], MILLISECONDS)
