"""A frame of cases -> tables of what they took: memory, power, clocks, and samples per joule."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.usage import Usage

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class ResourceRow(Usage):
    """What one case took."""

    case_id: str = ""
    footnotes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ResourceTable:
    """The cases of one model of which anything is known; `unit` is that of samples per joule."""

    model: str
    unit: str
    rows: tuple[ResourceRow, ...]


def make_resource_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[ResourceTable, ...]:
    """One table per model, in the order of the matrix; none for logs that tell nothing of this."""
    known = frame[frame.is_usage_known.astype(bool)]
    return tuple(
        ResourceTable(model, cases.unit.iloc[0].replace("/s", "/J"), _make_rows(cases, footnotes))
        for model, cases in known.groupby("model", sort=False)
    )


def _make_rows(cases: "DataFrame", footnotes: Footnotes) -> tuple[ResourceRow, ...]:
    return tuple(
        ResourceRow(
            **vars(row.usage),
            case_id=row.case_id,
            footnotes=tuple(map(footnotes.number, row.usage_notes)),
        )
        for row in list_rows(cases)
    )
