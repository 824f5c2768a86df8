"""The tables of a run -> an overview of each model: a row per series, a column per place."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.matrix.axes import list_variants
from dlperf_slurm.reports.cells import (
    NO_REFERENCE,
    SHARE,
    Cell,
    Column,
    Table,
    tabulate,
)
from dlperf_slurm.reports.tables import NO_CASE, ShownCase, make_throughput_cell
from dlperf_slurm.reports.tables.latency import LatencyTable
from dlperf_slurm.reports.tables.throughput import (
    ThroughputTable,
    explain_limits,
    list_figure_columns,
)
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.ratios import Ratio


@dataclass(frozen=True)
class OverviewRow:
    """Cases that differ in nothing but their place; `cells[i]` belongs to the overview's place i.

    `group` is what the row stands for beside its label: of training the batch size per device, of
    inference the topology. A place that the matrix does not have is NO_CASE.
    """

    label: str
    precision: str
    group: str
    cells: tuple[ShownCase, ...]

    @property
    def name(self) -> str:
        return f"{self.label}, {self.precision}, {self.group}"

    @property
    def measured(self) -> tuple[ShownCase, ...]:
        return tuple(case for case in self.cells if case.samples_per_s is not None)


@dataclass(frozen=True)
class Overview:
    """All cases of one model and mode; places are topologies of training, batch sizes of inference.

    `constants` are what all cases share beyond the defaults.
    """

    model: str
    mode: str
    unit: str
    places: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    constants: tuple[str, ...] = ()

    @property
    def is_inference(self) -> bool:
        return self.mode == INFER

    @property
    def title(self) -> str:
        """The model and mode, with what all cases share."""
        what = "inference" if self.is_inference else "training"
        precisions, groups = ({kind[i] for kind in self.kinds} for i in (0, 1))
        group = self.rows[0].group
        shared = [
            *(precisions if len(precisions) == 1 else ()),
            *([self.name_group(group)] if len(groups) == 1 else ()),
        ]
        return ", ".join([f"{self.model} {what}", *shared, *self.constants])

    @property
    def group_header(self) -> str:
        """What the rows' groups are."""
        return "topology" if self.is_inference else "batch size"

    def name_group(self, group: str) -> str:
        """A group where no header says what it is: "1n2g", "batch size 8"."""
        return group if self.is_inference else f"batch size {group}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The frameworks with their variants, each once."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """The precisions with their groups, each pair once."""
        return tuple(dict.fromkeys((row.precision, row.group) for row in self.rows))

    @property
    def has_scaling(self) -> bool:
        """Whether a row was measured at two places at least."""
        return any(len(row.measured) > 1 for row in self.rows)

    @property
    def measured_places(self) -> tuple[int, ...]:
        """The numbers of the places at which anything was measured."""
        return tuple(
            i
            for i in range(len(self.places))
            if any(row.cells[i].samples_per_s is not None for row in self.rows)
        )


def make_overviews(
    throughput_tables: Sequence[ThroughputTable], latency_tables: Sequence[LatencyTable]
) -> tuple[Overview, ...]:
    """One overview per model of training, then of inference, in the order of the tables."""
    trained = (case for t in throughput_tables for column in t.columns for case in column.cells)
    inferred = (case for table in latency_tables for case in table.rows)
    by_model: dict[tuple[str, str], list[ShownCase]] = {}
    for case in (*trained, *inferred):
        if case != NO_CASE:
            by_model.setdefault((case.model, case.mode), []).append(case)
    return tuple(map(_make_overview, by_model.values()))


def _make_overview(cases: Sequence[ShownCase]) -> Overview:
    first = cases[0]
    varying = {axis for axis in VARIANT_AXES if len({getattr(case, axis) for case in cases}) > 1}
    places = _list_places(cases)
    rows: dict[tuple[str, str, str], dict[str, ShownCase]] = {}
    for case in cases:
        key = (make_label(case, varying), case.precision, _name_group(case))
        rows.setdefault(key, {})[_name_place(case)] = case
    return Overview(
        model=first.model,
        mode=first.mode,
        unit=first.unit,
        places=places,
        rows=tuple(
            OverviewRow(*key, cells=tuple(found.get(place, NO_CASE) for place in places))
            for key, found in rows.items()
        ),
        constants=tuple(list_variants(first, set(VARIANT_AXES) - varying)),
    )


def _list_places(cases: Iterable[ShownCase]) -> tuple[str, ...]:
    """Ascending; batch sizes that a job has to find come first."""
    sizes = {_name_place(case): _find_place_key(case) for case in cases}
    return tuple(sorted(sizes, key=lambda name: (sizes[name], name)))


def _find_place_key(case: ShownCase) -> tuple[int, int]:
    if case.mode == INFER:
        return (case.planned_size, 0)
    topology = parse_topology(case.topology)
    return (topology.world_size, topology.nodes)


def _name_place(case: ShownCase) -> str:
    return case.batch_size_text if case.mode == INFER else case.topology


def _name_group(case: ShownCase) -> str:
    return case.topology if case.mode == INFER else case.batch_size_text


# of an overview: how the last place compares with the smallest one and with the other precision
EFFICIENCY = Column[ShownCase](
    "efficiency",
    lambda case: Cell(
        case.weak_scaling_efficiency.value,
        SHARE,
        case.weak_scaling_efficiency.interval,
        hides_bounds=True,
    ),
    missing=NO_REFERENCE,
)


def tabulate_overview(overview: Overview) -> Table:
    """One line per row: its throughputs at each place where anything was measured.

    Behind them stand, at the largest place, the efficiency and what the precision brings.
    """
    shown = overview.measured_places
    words: list[Column[OverviewRow]] = [Column("framework", lambda row: row.label)]
    for column in (
        Column[OverviewRow]("precision", lambda row: row.precision),
        Column[OverviewRow](overview.group_header, lambda row: row.group),
    ):
        # the title has what is the same in all rows
        if len({column.read(row) for row in overview.rows}) > 1:
            words.append(column)
    figures = [_make_place_column(overview.places[i], i) for i in shown]
    if shown:
        largest = shown[-1]
        at = f" at {overview.places[largest]}"
        if overview.has_scaling and not overview.is_inference:
            figures.append(_read_at(largest, f"efficiency{at}", EFFICIENCY))
        cases = [row.cells[largest] for row in overview.rows]
        references = {case.reference_precision for case in cases} - {""}
        if any(_has_speedup(case) for case in cases):
            over = next(iter(references)) if len(references) == 1 else "the reference"
            speedup = Column[ShownCase](
                "", partial(_find_speedup, references), missing=NO_REFERENCE
            )
            figures.append(_read_at(largest, f"times {over}{at}", speedup))
    left = [place for i, place in enumerate(overview.places) if i not in shown]
    unit = f"{overview.unit} at each {'batch size' if overview.is_inference else 'topology'}"
    caption = f"{unit}, medians with their 95 % intervals (or ranges)"
    if left:
        caption += f"; nothing was measured at {', '.join(left)}"
    return tabulate(overview.title, words, figures, overview.rows, caption)


def _find_speedup(references: Collection[str], case: ShownCase) -> Ratio:
    """A case in the reference precision is once itself, also where it was measured in no other."""
    ratio = case.precision_speedup
    is_reference = case.precision in references and case.samples_per_s is not None
    if ratio.value is None and is_reference:
        return Ratio(1.0, None, is_of_itself=True)
    return ratio


def _has_speedup(case: ShownCase) -> bool:
    ratio = case.precision_speedup
    return ratio.value is not None and not ratio.is_of_itself


def _make_place_column(place: str, index: int) -> Column[OverviewRow]:
    return _read_at(index, place, Column("", make_throughput_cell))


def _read_at(index: int, header: str, column: Column[ShownCase]) -> Column[OverviewRow]:
    """The column of rows that shows the figure of their cases at one place."""

    def read(row: OverviewRow) -> Cell:
        return column.show(row.cells[index], row.cells[index].problem)

    return Column(header, read)


def tabulate_cases(overview: Overview) -> Table:
    """One line per case of training: each figure with its interval."""
    cases = [(row, case) for row in overview.rows for case in row.cells if case != NO_CASE]
    words: list[Column[tuple[OverviewRow, ShownCase]]] = [
        Column("framework", lambda pair: pair[0].label),
        Column("precision", lambda pair: pair[0].precision),
        Column("batch size", lambda pair: pair[0].group),
        Column("topology", lambda pair: pair[1].topology),
    ]
    measured = [case for _, case in cases if case.samples]
    searched = any(case.has_batch_search for _, case in cases)
    columns = list_figure_columns(measured, overview.unit, searched)
    if any(_has_speedup(case) for case in measured):
        columns.append(Column("times the reference", lambda case: case.precision_speedup))
    figures = [_read_case(column) for column in columns]
    baselines = sorted({case.baseline for case in measured} - {""})
    references = sorted({case.reference_precision for case in measured} - {""})
    parts = [f"speedup and weak-scaling efficiency against {' or '.join(baselines)}"]
    if references:
        parts.append(f"times the reference: the throughput over that of {' or '.join(references)}")
    caption = "; ".join([*(parts if baselines else []), *explain_limits(columns)])
    caption = caption or "no case of this table was measured"
    title = name_cases(overview)
    return tabulate(title, words, figures, cases, caption, lambda pair: pair[1].problem)


def name_cases(overview: Overview) -> str:
    """The title of the table of its cases."""
    return f"{overview.title}: every case"


def _read_case(column: Column[ShownCase]) -> Column[tuple[OverviewRow, ShownCase]]:
    return Column(column.header, lambda pair: column.read(pair[1]), column.form, column.missing)
