"""Resource tables -> grids of short texts."""

from typing import Optional

from dlperf_slurm.reports.tables.resources import ResourceRow, ResourceTable
from dlperf_slurm.reports.text import Grid, mark_footnotes

MIB = 2**20

# what was not sampled, or cannot be on this hardware
UNKNOWN = "unknown"


def make_resource_grid(table: ResourceTable) -> Grid:
    """One row per case; columns that no case knows are left out."""
    columns = {
        "peak MiB": [_format(row.peak_memory_bytes, 1 / MIB, 0) for row in table.rows],
        "busy %": [_format(row.utilization, 100, 0) for row in table.rows],
        "W": [_format(row.power_watts, 1, 1) for row in table.rows],
        table.unit: [_format(row.samples_per_joule, 1, 3) for row in table.rows],
        "MHz": [_format(row.clock_mhz, 1, 0) for row in table.rows],
        "least MHz": [_format(row.least_clock_mhz, 1, 0) for row in table.rows],
    }
    known = {name: cells for name, cells in columns.items() if set(cells) != {UNKNOWN}}
    return Grid(
        title=f"{table.model}: memory and energy",
        header=("case", *known),
        rows=tuple((_name(row), *cells) for row, *cells in zip(table.rows, *known.values())),
        text_columns=1,
        caption="peak memory of the rank that takes most; use, power and clocks of all devices "
        "(of the hosts' CPUs, where these are the devices) over the window, medians over repeats",
    )


def _name(row: ResourceRow) -> str:
    return f"{row.case_id} {mark_footnotes(row.footnotes)}".rstrip()


def _format(value: Optional[float], factor: float, digits: int) -> str:
    return UNKNOWN if value is None else f"{factor * value:.{digits}f}"
