"""A run's cases, or published figures -> the figures that layouts are made of."""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.axes import INFER, LARGEST, ON_DEVICE, ON_HOST, TRAIN, WORKER
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.published.figures import PublishedFigure
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.columns import list_values
from dlperf_slurm.results.footnotes import Note
from dlperf_slurm.results.labels import VARIANT_AXES, VARIANTS, label_cases
from dlperf_slurm.results.notes import CASE
from dlperf_slurm.stats.median import LATENCY_NAMES, compute_median

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


def make_run_figures(results: Results) -> list[LayoutFigure]:
    """Make one figure per case of a run, in its order; those that were left out have none."""
    cases, footnotes, top1 = results.cases, _list_footnotes(results), _list_top1(results)
    names = label_cases(cases, [axis for axis in VARIANTS if axis not in _SHOWN_APART])
    figures = zip(list_values(cases.samples_per_s), list_values(cases.train_seconds))
    latencies = [list_values(cases[f"latency_{part}_ms"]) for part in LATENCY_NAMES]
    return [
        LayoutFigure(
            model=case.model,
            framework=name,
            source=OUR_SOURCE if case.script == WORKER else case.script,
            precision=case.precision,
            compiler=case.compiler,
            topology=parse_topology(case.topology),
            batch_sizes=tuple(map(int, case.batch_sizes_measured.split())),
            # of a ladder the size that it starts from
            batch_group=case.batch_size_per_device.partition(" ->")[0],
            mode=case.mode,
            data_location=_DATA_LOCATIONS.get(case.data, case.data),
            variable_update=case.gradient_sync,
            samples_per_s=samples_per_s,
            latency_ms=() if latency_ms[0] is None else latency_ms,
            footnotes=tuple(footnotes.get(case.case_id, ())),
            problem=case.problem,
            top1=tuple(top1.get(case.case_id, ())),
            epochs=case.planned_epochs,
            train_seconds=train_seconds,
        )
        for case, name, (samples_per_s, train_seconds), latency_ms in zip(
            cases.itertuples(), names, figures, zip(*latencies)
        )
    ]


def _list_footnotes(results: Results) -> dict[str, list[Note]]:
    """List the notes for any layout, by case."""
    own = results.notes[results.notes.scope == CASE]
    return {case_id: [*notes] for case_id, notes in own.groupby("case_id").note}


def _list_top1(results: Results) -> dict[str, list[float]]:
    """List top-1 of each seed, by case."""
    repeats = results.frames.repeats
    return {case_id: [*own] for case_id, own in repeats.top1.dropna().groupby(repeats.case_id)}


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
