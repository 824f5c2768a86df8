"""A frame of cases -> tables of what they took: memory, power, clocks, and samples per joule."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.reports.cells import COUNT, UNKNOWN, Cell, Column, Number, Table, tabulate
from dlperf_slurm.reports.tables import ShownCase
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows

if TYPE_CHECKING:
    from pandas import DataFrame

MEBIBYTES = Number(".0f", 1 / 2**20)
WHOLE_PERCENT = Number(".0f", 100)


@dataclass(frozen=True)
class ResourceTable:
    """The cases of one model of which anything is known; `unit` is that of samples per joule."""

    model: str
    unit: str
    rows: tuple[ShownCase, ...]


def make_resource_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[ResourceTable, ...]:
    """One table per model, in the order of the matrix; none for logs that tell nothing of this."""
    known = frame[frame.is_usage_known.astype(bool)]
    return tuple(
        ResourceTable(
            model=model,
            unit=cases.unit.iloc[0].replace("/s", "/J"),
            rows=tuple(
                ShownCase(**vars(row), footnotes=footnotes.number_all(row.usage_notes))
                for row in list_rows(cases)
            ),
        )
        for model, cases in known.groupby("model", sort=False)
    )


def tabulate_resources(table: ResourceTable) -> Table:
    """One row per case; columns that no case knows are left out.

    Unknown is what was not sampled, or cannot be on this hardware.
    """
    columns: list[Column[ShownCase]] = [
        Column("peak MiB", lambda row: row.usage.peak_memory_bytes, MEBIBYTES, UNKNOWN),
        Column("busy %", lambda row: row.usage.utilization, WHOLE_PERCENT, UNKNOWN),
        Column("W", lambda row: row.usage.power_watts, Number(".1f"), UNKNOWN),
        Column(table.unit, lambda row: row.usage.samples_per_joule, Number(".3f"), UNKNOWN),
        Column("MHz", lambda row: row.usage.clock_mhz, COUNT, UNKNOWN),
        Column("least MHz", lambda row: row.usage.least_clock_mhz, COUNT, UNKNOWN),
    ]
    words = [Column[ShownCase]("case", lambda row: Cell(row.case_id, notes=row.footnotes))]
    known = [c for c in columns if any(c.read(row) is not None for row in table.rows)]
    caption = (
        "peak memory of the rank that takes most (on GPUs what the framework's allocator gave out, "
        "with mxnet and oneflow all that is taken of the device at the end; on CPUs what the "
        "process took); use, power and clocks of all devices "
        "(of the hosts' CPUs, where these are the devices) over the window, medians over repeats"
    )
    return tabulate(f"{table.model}: memory and energy", words, known, table.rows, caption)
