"""A run's frame, or published figures -> the figures that layouts are made of."""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER, LARGEST, ON_DEVICE, ON_HOST, TRAIN, WORKER
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Note
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.published import PublishedFigure
from dlperf_slurm.stats.median import compute_median

if TYPE_CHECKING:
    from pandas import DataFrame

OUR_SOURCE = "dlperf_slurm"
NO_SOURCE = "-"
# what stands for what nobody measured
ABSENT = "-"
_SHOWN_APART = ("script", "compiler", "gradient_sync", "data")
# tensorpack's words for where a batch lies; nothing is said of one on the device
_DATA_LOCATIONS = {ON_DEVICE: "", ON_HOST: "cpu"}


@dataclass(frozen=True)
class LayoutFigure:
    """One case: its throughput, or in its place the problem.

    `source` is whose script it was, NO_SOURCE if nobody said. `batch_group` is the batch size that
    was asked for: a number, or "max"; `batch_sizes` are those measured, empty where none is known.
    `latency_ms` are the mean, then percentiles in the order of LATENCY_PERCENTILES of
    stats/median.py, as many as there are. `top1` has the fraction of each seed of a training over
    `epochs`, which took `train_seconds`. `table` tells published tables apart whose figures are not
    to be compared; a run's figures have none.
    """

    model: str
    framework: str
    topology: Topology
    source: str = ""
    precision: str = ""
    compiler: str = ""
    batch_sizes: tuple[int, ...] = ()
    batch_group: str = ""
    mode: str = ""
    data_location: str = ""
    variable_update: str = ""
    hardware: str = ""
    table: str = ""
    samples_per_s: Optional[float] = None
    latency_ms: tuple[Optional[float], ...] = ()
    footnotes: tuple[Note, ...] = ()
    problem: str = ""
    top1: tuple[float, ...] = ()
    epochs: int = 0
    train_seconds: Optional[float] = None

    @property
    def is_published(self) -> bool:
        return bool(self.table)

    @property
    def label(self) -> str:
        """The framework, with how it distributes where that is not its own way."""
        is_native = self.variable_update in ("", VARIANT_AXES["gradient_sync"])
        return self.framework if is_native else f"{self.framework} {self.variable_update}"


# in the place of what nobody measured
NO_FIGURE = LayoutFigure("", "", Topology(0, 0), problem=ABSENT)


def make_run_figures(frame: "DataFrame") -> list[LayoutFigure]:
    """One figure per case of a run, in its order; those that were left out have none."""
    return [_make_run_figure(row) for row in list_rows(frame)]


def _make_run_figure(row: CaseRow) -> LayoutFigure:
    return LayoutFigure(
        model=row.model,
        framework=make_label(row, [axis for axis in VARIANT_AXES if axis not in _SHOWN_APART]),
        source=OUR_SOURCE if row.script == WORKER else row.script,
        precision=row.precision,
        compiler=row.compiler,
        topology=parse_topology(row.topology),
        batch_sizes=row.batch_sizes,
        # of a ladder the size that it starts from
        batch_group=row.batch_size_text.partition(" ->")[0],
        mode=row.mode,
        data_location=_DATA_LOCATIONS.get(row.data, row.data),
        variable_update=row.gradient_sync,
        samples_per_s=row.samples_per_s,
        latency_ms=_list_milliseconds(row),
        footnotes=row.case_notes,
        problem=row.problem,
        top1=row.accuracy.top1,
        epochs=row.epochs,
        train_seconds=row.train_seconds,
    )


def _list_milliseconds(row: CaseRow) -> tuple[Optional[float], ...]:
    values = row.latency.values if row.latency else ()
    return tuple(None if value is None else 1000 * value for value in values)


def make_published_figures(published: Iterable[PublishedFigure]) -> list[LayoutFigure]:
    """One figure per published one, in their order; of published repeats their median."""
    repeats: dict[PublishedFigure, list[float]] = {}
    for figure in published:
        key = dataclasses.replace(figure, repeat=0, samples_per_s=0.0, where="")
        # without numbers of repeats two figures of one case stay two
        key = key if figure.repeat else dataclasses.replace(key, where=figure.where)
        repeats.setdefault(key, []).append(figure.samples_per_s)
    return [_make_published_figure(key, compute_median(rates)) for key, rates in repeats.items()]


def _make_published_figure(figure: PublishedFigure, samples_per_s: float) -> LayoutFigure:
    framework, source = _split_software(figure.software)
    note = figure.note
    if note.startswith("W/O "):
        framework = f"{framework} {note}"
    size = figure.batch_size_per_device
    return LayoutFigure(
        model=figure.model,
        framework=framework,
        source=source,
        precision=figure.precision,
        compiler=figure.compiler,
        topology=Topology(figure.nodes, figure.devices_per_node),
        batch_sizes=(size,) if size else (),
        batch_group=_find_batch_group(figure),
        mode=INFER if figure.latency_ms else TRAIN,
        data_location=note[len("w/") :] if note.startswith("w/") else figure.data_location,
        variable_update=figure.variable_update,
        hardware=figure.hardware,
        table=figure.table,
        samples_per_s=samples_per_s,
        latency_ms=figure.latency_ms,
        footnotes=() if not note or note.startswith(("w/", "W/O ")) else (note,),
    )


def _split_software(software: str) -> tuple[str, str]:
    """The framework and whose script it was: "PyTorch (pytorch/examples); CUDA 10.2"."""
    name, _, rest = software.partition(";")[0].partition(" (")
    return name, rest.rstrip(")") or NO_SOURCE


def _find_batch_group(figure: PublishedFigure) -> str:
    """What the table's own title says, else the figure's size."""
    match = re.search(rf"batch size = (\d+|{LARGEST})", figure.table)
    return match[1] if match else str(figure.batch_size_per_device or "unknown")
