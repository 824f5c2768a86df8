"""A frame of cases -> what getting the data of trainings costs, by where the data come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import ON_DEVICE, TRAIN
from dlperf_slurm.results.cases import VARIANT_AXES, list_ratio_notes, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import AXES, CaseRow, list_rows
from dlperf_slurm.results.ratios import DATA_AXES
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class DataRow:
    """One case, medians over its repeats, or the problem in their place.

    `samples_per_s` is with the time that ranks waited for data (NVIDIA's total IPS),
    `computed_samples_per_s` without it (compute IPS), `waiting_share` that time over the window, of
    the rank that waited longest; both are None of logs, which do not tell, and where they would be
    the host's and not the device's (`is_wait_known`). `relative` is the throughput over that of the
    same case with its batch on the device, None where there is none; of that case there is no
    interval.
    """

    case_id: str
    label: str
    data: str
    data_workers: int
    prefetch_batches: int
    precision: str
    topology: str
    batch_size: str
    samples_per_s: Optional[float]
    computed_samples_per_s: Optional[float]
    waiting_share: Optional[float]
    relative: Optional[float]
    relative_interval: Optional[Interval]
    problem: str
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class DataTable:
    """The cases of one model whose batches come from somewhere, and those beside them."""

    model: str
    unit: str
    rows: tuple[DataRow, ...]

    @property
    def title(self) -> str:
        return f"{self.model}: where the data come from"


def make_data_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[DataTable, ...]:
    """One table per model that has a case whose batches are not on the device already."""
    training = frame[frame["mode"] == TRAIN]
    return tuple(
        DataTable(model, cases.unit.iloc[0], _make_rows(cases, footnotes))
        for model, cases in training.groupby("model", sort=False)
        if (cases.data != ON_DEVICE).any()
    )


def _make_rows(cases: "DataFrame", footnotes: Footnotes) -> tuple[DataRow, ...]:
    """The data sources of one case stand together."""
    alike = cases.groupby([axis for axis in AXES if axis not in DATA_AXES], sort=False)
    return tuple(_make_row(row, footnotes) for _, group in alike for row in list_rows(group))


def _make_row(row: CaseRow, footnotes: Footnotes) -> DataRow:
    ratio = row.relative_to_device_data
    return DataRow(
        case_id=row.case_id,
        label=make_label(row, set(VARIANT_AXES) - set(DATA_AXES)),
        data=row.data,
        data_workers=row.data_workers,
        prefetch_batches=row.prefetch_batches,
        precision=row.precision,
        topology=row.topology,
        batch_size=row.batch_size_text,
        samples_per_s=row.samples_per_s,
        computed_samples_per_s=row.computed_samples_per_s,
        waiting_share=row.data_waiting_share,
        relative=ratio.value,
        relative_interval=ratio.interval,
        problem=row.problem,
        footnotes=(
            *footnotes.number_all([*row.table_notes, *list_ratio_notes(ratio)]),
            *map(footnotes.number, row.data_notes),
        ),
    )
