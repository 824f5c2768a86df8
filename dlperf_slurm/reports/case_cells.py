"""Tables of cases -> cells: accuracy, sources of data, memory and energy, ranks."""

from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST
from dlperf_slurm.reports.cells import (
    COUNT,
    MILLISECONDS,
    PERCENT,
    SHARE,
    Cell,
    Column,
    Duration,
    Number,
    Table,
    make_cell,
    tabulate,
)
from dlperf_slurm.reports.tables.accuracy import AccuracyRow, AccuracyTable
from dlperf_slurm.reports.tables.data import DataRow, DataTable
from dlperf_slurm.reports.tables.ranks import STEP_PERCENTILES, RankRow, RankTable, RankTimes
from dlperf_slurm.reports.tables.resources import ResourceRow, ResourceTable

MIB = Number(".0f", 1 / 2**20)

# of ranks, as many as one would look at
SHOWN_SLOW_RANKS = 3


def count_of(count: Optional[int], total: int, problem: str = "") -> Cell:
    """Such as "2 of 3"."""
    return Cell(count, Number(".0f", unit=f" of {total}"), problem=problem)


def tabulate_accuracy(table: AccuracyTable) -> Table:
    """One row per case, with NVIDIA's figures: average, deviation, extremes, time to train."""
    columns: list[Column[AccuracyRow]] = [
        Column("framework", lambda row: row.label),
        Column("precision", lambda row: row.precision),
        Column("topology", lambda row: row.topology),
        Column("batch size", lambda row: row.batch_size),
        Column("seeds", _count_seeds),
        Column("average top-1 %", lambda row: _percent(row.average, row.problem)),
        Column("deviation", lambda row: _percent(row.deviation, row.problem or "one seed")),
        Column("minimum", lambda row: _percent(min(row.top1, default=None), row.problem)),
        Column("maximum", lambda row: _percent(max(row.top1, default=None), row.problem)),
        Column("epochs", lambda row: Cell(row.epochs, Number("g"), problem=row.problem)),
    ]
    if table.target:
        columns.append(
            Column(
                f"reached {100 * table.target:g} %",
                lambda row: count_of(row.reached, len(row.top1), row.problem),
            )
        )
    columns.append(
        Column(
            "time to train",
            lambda row: Cell(row.train_seconds, Duration(), problem=row.problem or "unknown"),
        )
    )
    if table.reference_precision and len({row.precision for row in table.rows}) > 1:
        columns.append(
            Column(
                f"speedup over {table.reference_precision}",
                lambda row: Cell(
                    row.speedup,
                    interval=row.speedup_interval,
                    problem=row.problem or "no reference",
                ),
            )
        )
    caption = (
        "top-1 after the last epoch, one value per seed; standard deviation (n - 1) in "
        "percentage points; time to train with the validations, median over seeds"
    )
    return tabulate(table.title, columns, table.rows, 3, caption)


def _count_seeds(row: AccuracyRow) -> Cell:
    count = len(row.top1)
    unit = "" if count == row.planned_seeds else f" of {row.planned_seeds}"
    return Cell(count or None, Number(".0f", unit=unit), notes=row.footnotes, problem=row.problem)


def _percent(share: Optional[float], problem: str) -> Cell:
    return Cell(share, PERCENT, problem=problem)


def tabulate_data(table: DataTable) -> Table:
    """One row per case: throughput with the time that ranks waited for data, and without it."""
    columns: list[Column[DataRow]] = [
        Column("framework", lambda row: row.label),
        Column("data", describe_source),
        Column("topology", lambda row: row.topology),
    ]
    if len({row.precision for row in table.rows}) > 1:
        columns.append(Column("precision", lambda row: row.precision))
    text_columns = len(columns)
    if len({row.batch_size for row in table.rows}) > 1:
        columns.append(Column("batch size", lambda row: row.batch_size))
    columns += [
        Column(
            table.unit,
            lambda row: Cell(row.samples_per_s, notes=row.footnotes, problem=row.problem),
        ),
        Column(
            "without waiting",
            lambda row: Cell(row.computed_samples_per_s, problem=row.problem or "unknown"),
        ),
        Column(
            "waiting",
            lambda row: Cell(row.waiting_share, SHARE, problem=row.problem or "unknown"),
        ),
        Column(
            "of data on the device",
            lambda row: Cell(
                row.relative,
                interval=row.relative_interval,
                problem=row.problem or "no reference",
            ),
        ),
    ]
    caption = (
        "medians; waiting: share of the window in which the rank that waited longest had "
        "no batch, by the host's clock"
    )
    return tabulate(table.title, columns, table.rows, text_columns, caption)


def describe_source(row: DataRow) -> str:
    """The data source, with its workers and how far ahead each may be."""
    if row.data in (ON_DEVICE, ON_HOST):
        return row.data
    return f"{row.data}, {row.data_workers} x {row.prefetch_batches}"


def tabulate_resources(table: ResourceTable) -> Table:
    """One row per case; columns that no case knows are left out."""
    columns: list[Column[ResourceRow]] = [
        Column("peak MiB", lambda row: _known(row.peak_memory_bytes, MIB)),
        Column("busy %", lambda row: _known(row.utilization, Number(".0f", 100))),
        Column("W", lambda row: _known(row.power_watts, Number(".1f"))),
        Column(table.unit, lambda row: _known(row.samples_per_joule, Number(".3f"))),
        Column("MHz", lambda row: _known(row.clock_mhz, COUNT)),
        Column("least MHz", lambda row: _known(row.least_clock_mhz, COUNT)),
    ]
    name = Column[ResourceRow]("case", lambda row: Cell(row.case_id, notes=row.footnotes))
    known = [
        c for c in columns if any(make_cell(c.read(row)).figure is not None for row in table.rows)
    ]
    caption = (
        "peak memory of the rank that takes most; use, power and clocks of all devices "
        "(of the hosts' CPUs, where these are the devices) over the window, medians over repeats"
    )
    return tabulate(f"{table.model}: memory and energy", [name, *known], table.rows, 1, caption)


def _known(value: Optional[float], form: Number) -> Cell:
    # not sampled, or not to be had on this hardware
    return Cell(value, form, problem="unknown")


def tabulate_ranks(table: RankTable) -> Table:
    """One row per case of several ranks: who was slow."""
    columns: list[Column[RankRow]] = [
        Column("case", lambda row: row.case_id),
        Column("slowest rank", _name_slowest),
        Column(
            "slowest in", lambda row: count_of(row.ranks[0].slowest_repeats, row.ranks[0].repeats)
        ),
        Column("imbalance", lambda row: Cell(row.imbalance, Number(".3f"))),
        Column("waiting", lambda row: Cell(row.waiting_share, SHARE, problem="none")),
    ]
    caption = (
        "imbalance: the slowest rank's median step over the median rank's; waiting: 1 - "
        "mean over ranks / slowest rank, averaged over steps; medians over repeats. Ranks that "
        "meet within a step, as in an all-reduce, wait there: there may be more of both"
    )
    return tabulate("ranks", columns, table.rows, 2, caption)


def _name_slowest(row: RankRow) -> Cell:
    slowest = row.ranks[0]
    return Cell(f"{_name_rank(slowest)} on {slowest.host}", notes=row.footnotes)


def _name_rank(times: RankTimes) -> str:
    """The device of one host had these ranks in different repeats."""
    return " or ".join(map(str, times.ranks))


def tabulate_rank_times(table: RankTable) -> Table:
    """The slowest ranks of each case and the fastest, with percentiles of their steps."""
    columns: list[Column[tuple[str, RankTimes]]] = [
        Column("case", lambda row: row[0]),
        Column("rank", lambda row: _name_rank(row[1])),
        Column("host", lambda row: row[1].host),
        Column("device", lambda row: row[1].device_name),
        Column("slowest in", lambda row: count_of(row[1].slowest_repeats, row[1].repeats)),
        Column("of the median rank", lambda row: Cell(row[1].slowness, Number(".3f"))),
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
    return tabulate("step times by rank", columns, rows, 4, caption)


def _make_step_column(index: int) -> Column[tuple[str, RankTimes]]:
    return Column(
        f"{STEP_PERCENTILES[index]} % ms",
        lambda row: Cell(row[1].step_seconds[index], MILLISECONDS),
    )
