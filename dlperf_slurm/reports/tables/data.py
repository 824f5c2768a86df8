"""A frame of cases -> what getting the data of trainings costs, by where the data come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST, TRAIN
from dlperf_slurm.reports.cells import NO_REFERENCE, SHARE, UNKNOWN, Column, Table, tabulate
from dlperf_slurm.reports.tables import ShownCase, make_plain_throughput_cell, show_ratio
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import AXES, list_rows
from dlperf_slurm.results.ratios import DATA_AXES

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class DataTable:
    """The cases of one model whose batches come from somewhere, and those beside them."""

    model: str
    unit: str
    rows: tuple[ShownCase, ...]

    @property
    def title(self) -> str:
        return f"{self.model}: where the data come from"


def make_data_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[DataTable, ...]:
    """One table per model that has a case whose batches are not on the device already."""
    training = frame[frame["mode"] == TRAIN]
    return tuple(
        DataTable(model, cases.unit.iloc[0], _list_rows(cases, footnotes))
        for model, cases in training.groupby("model", sort=False)
        if (cases.data != ON_DEVICE).any()
    )


def _list_rows(cases: "DataFrame", footnotes: Footnotes) -> tuple[ShownCase, ...]:
    """The data sources of one case stand together."""
    alike = cases.groupby([axis for axis in AXES if axis not in DATA_AXES], sort=False)
    return tuple(
        show_ratio(row, footnotes, row.relative_to_device_data, row.data_notes)
        for _, group in alike
        for row in list_rows(group)
    )


def find_label(row: ShownCase) -> str:
    """The case's framework with its variant but for where data come from."""
    return make_label(row, set(VARIANT_AXES) - set(DATA_AXES))


def tabulate_data(table: DataTable) -> Table:
    """One row per case: throughput with the time that ranks waited for data, and without it.

    In NVIDIA's words these are total IPS and compute IPS.
    """
    words: list[Column[ShownCase]] = [
        Column("framework", find_label),
        Column("data", describe_source),
        Column("topology", lambda row: row.topology),
    ]
    figures: list[Column[ShownCase]] = [
        Column(table.unit, make_plain_throughput_cell),
        Column("without waiting", lambda row: row.computed_samples_per_s, missing=UNKNOWN),
        Column("waiting", lambda row: row.data_waiting_share, SHARE, UNKNOWN),
        Column(
            "of data on the device",
            lambda row: row.relative_to_device_data,
            missing=NO_REFERENCE,
        ),
    ]
    if len({row.precision for row in table.rows}) > 1:
        words.append(Column("precision", lambda row: row.precision))
    if len({row.batch_size_text for row in table.rows}) > 1:
        figures.insert(0, Column("batch size", lambda row: row.batch_size_text))
    caption = (
        "medians; waiting: share of the window in which the rank that waited longest had "
        "no batch, by the host's clock"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def describe_source(row: ShownCase) -> str:
    """The data source, with its workers and how far ahead each may be."""
    if row.data in (ON_DEVICE, ON_HOST):
        return row.data
    return f"{row.data}, {row.data_workers} x {row.prefetch_batches}"
