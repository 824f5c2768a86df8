"""Cases of a run and a published source -> a table of each case beside the nearest figure."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.published.figures import find_source_file, read_source
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.model_hardware import describe_model
from dlperf_slurm.results.number_formats import ScaledFormat
from dlperf_slurm.results.reference import ReferenceCase

if TYPE_CHECKING:
    from pandas import DataFrame

    from dlperf_slurm.reports.summarize import TableMaker

HEADER = ("case", "hardware of this run", "published hardware", "differences", "published in",
    "this run", "published", "this run / published")  # fmt: skip
# columns that a narrow terminal leaves out first
OMIT_FIRST = tuple(
    map(HEADER.index, ("published in", "hardware of this run", "published hardware"))
)

# what must be equal, so that a figure is set beside ours
COMPARABLE = ("model", "precision", "batch size")

# rows of two data frames: Case of the run's cases, Figure of the published figures
Case = Any
Figure = Any


def choose_sources(names: Sequence[str]) -> dict[str, "TableMaker"]:
    """Return, for each published source in `names`, the function that makes its comparison table.

    Raises InputError for an unknown source.
    """
    for name in names:
        find_source_file(name)
    return {name: partial(make_against_table, name) for name in names}


def make_against_table(name: str, cases: "DataFrame") -> Table:
    """Make a table of a run's cases, each beside the nearest figures of a published source.

    `name` is the source, such as "dlperf"; `cases` has a row per case. Columns name the hardware of
    both, and what else differs. A case has one row per nearest figure, as of variants and machines
    that tie; of figures that are not comparable only the first. Raises InputError, which lists the
    known sources, if `name` is not one.
    """
    figures = read_source(name)
    rows = []
    for case in cases.itertuples():
        nearest = find_nearest(case, figures)
        comparable = [figure for figure in nearest if _is_comparable(case, figure)]
        rows += [_make_row(case, figure) for figure in comparable or nearest[:1] or (None,)]
    return make_table(
        f"against {name}, published by {figures.source.iloc[0]}",
        HEADER,
        rows,
        HEADER.index("this run"),
        f"{', '.join(cases.unit.unique())}; each case stands beside the most similar published "
        "result of the same model, or several if equally similar; the ratio is shown only if "
        "model sizes, precision and batch size are equal",
        OMIT_FIRST,
    )


def make_reference(name: str, outcomes: Sequence[CaseOutcomes]) -> list[ReferenceCase]:
    """Return the published figures that a run's cases can be compared with, as a reference.

    Each is the least throughput per device of a case, in samples/s. A case needs a figure from
    which it differs in nothing. If several figures are such, as two variants, the fastest counts.
    Raises InputError if no case has one.
    """
    figures = read_source(name)
    found = []
    for case in analyze(outcomes).cases.itertuples():
        own = [f for f in find_nearest(case, figures) if not list_differences(case, f)]
        if own:
            per_device = max(figure.samples_per_s for figure in own) / case.world_size
            found.append(
                ReferenceCase(case=case.case_id, at_least_samples_per_s_per_device=per_device)
            )
    if not found:
        raise InputError(
            f"--reference {name}: no case of the run has the same model and settings as a "
            f"published figure; the command `report --against {name}` lists the differences"
        )
    return found


def _make_row(case: Case, figure: Optional[Figure]) -> list[Cell]:
    """Return the cells of a case beside a published figure.

    `figure` is None if no figure is of the case's model and mode.
    """
    differences = []
    if figure:
        # with the published variant: "W/O clip", the location of the data
        variant = (figure.note, figure.data_location, figure.variable_update)
        differences = [*list_differences(case, figure), *filter(None, variant)]
    ours = None if math.isnan(case.samples_per_s) else case.samples_per_s
    theirs = figure.samples_per_s if figure and _is_comparable(case, figure) else None
    ratio = ours / theirs if ours and theirs else None
    words = (
        case.case_id,
        case.hardware,
        figure.hardware if figure else "",
        "; ".join(differences) or "none known"
        if figure
        else "no published result of this model and mode",
        figure.where if figure else "",
    )
    return [
        *map(Cell, words),
        Cell(ours, problem=case.problem),
        Cell(theirs, problem="not comparable" if figure else "none"),
        Cell(ratio, ScaledFormat(digits=3), problem="none"),
    ]


def _is_comparable(case: Case, figure: Figure) -> bool:
    return not any(text.startswith(COMPARABLE) for text in list_differences(case, figure))


def find_nearest(case: Case, figures: "DataFrame") -> list[Figure]:
    """Find the published figure of the case's model and mode nearest to it; several if they tie.

    Framework counts most, then precision, devices, nodes, batch size and compiler. [] if none.
    """
    alike = [*figures[(figures.model == case.model) & (figures["mode"] == case.mode)].itertuples()]
    distances = [_measure_distance(case, figure) for figure in alike]
    smallest = min(distances, default=())
    return [figure for figure, distance in zip(alike, distances) if distance == smallest]


def _measure_distance(case: Case, figure: Figure) -> tuple[float, ...]:
    """Return how far a figure is from a case, as a tuple with the most important property first."""
    ours, theirs = _find_batch_size(case), figure.batch_size_per_device
    return (
        figure.framework != case.framework,
        figure.precision != case.precision,
        figure.precision.partition("-")[0] != case.precision.partition("-")[0],
        abs(math.log2(figure.world_size / case.world_size)),
        figure.nodes != case.nodes,
        # infinite if one of the two is unknown
        abs(math.log2(theirs / ours)) if ours and theirs else math.inf,
        figure.compiler != case.compiler,
        # if two are equally near, the smaller one
        figure.world_size,
        figure.batch_size_per_device,
    )


def _find_batch_size(case: Case) -> int:
    """Return the largest measured batch size, or the planned one if nothing was measured."""
    return max(map(int, case.batch_sizes_measured.split()), default=case.planned_size)


def list_differences(case: Case, figure: Figure) -> tuple[str, ...]:
    """List what differs between a figure and a case, with the figure's values: "precision fp32"."""
    # a published figure is that of the model with its published sizes
    published = describe_model(case.model, {})
    differences = [
        f"{name} {theirs}"
        for name, theirs, ours in (
            ("model", published, case.model_title),
            ("framework", figure.framework, case.framework),
            ("precision", figure.precision, case.precision),
            ("nodes", figure.nodes, case.nodes),
            ("devices", figure.world_size, case.world_size),
            ("compiler", figure.compiler, case.compiler),
        )
        if theirs != ours
    ]
    if figure.batch_size_per_device != _find_batch_size(case):
        size = figure.batch_size_per_device or "not printed"
        differences.append(f"batch size {size}")
    return tuple(differences)
