"""The results of a run -> an overview of each model: a row per series, a column per place.

A place is the column of a case: its topology in training, its batch size in inference. A series has
the cases that differ in nothing else.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.reports.tables import (
    COLUMNS,
    FootnoteMarks,
    ShownColumn,
    join_subject,
    split_rows,
)
from dlperf_slurm.reports.tables.inference import LATENCIES
from dlperf_slurm.reports.tables.training import (
    THROUGHPUT,
    describe_scaling,
    explain_limits,
    find_efficiencies,
    show_training_figures,
)
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.columns import list_values
from dlperf_slurm.results.labels import VARIANTS, describe_variants, label_cases
from dlperf_slurm.results.model_hardware import describe_devices
from dlperf_slurm.results.number_formats import NO_REFERENCE

if TYPE_CHECKING:
    from pandas import DataFrame, Series

NOT_IN_MATRIX = Cell(None, problem="not in the matrix")


@dataclass(frozen=True)
class OverviewRow:
    """A series: cases that differ only in topology (in inference, in batch size).

    `cases[i]` is the position, in the overview's frame, of the case at x value i of
    `Overview.places`; None if the matrix has no such case. `label` is framework and variant;
    `group` is the batch size per device in training, the topology in inference.
    """

    label: str
    precision: str
    group: str
    cases: tuple[Optional[int], ...]

    @property
    def name(self) -> str:
        """The name of the series: "jax xla, amp, 64"."""
        return f"{self.label}, {self.precision}, {self.group}"


@dataclass(frozen=True)
class Overview:
    """All cases of one model and mode (training or inference), with a row per series.

    `cases` are rows of the data frame of cases; `places` are topologies, or batch sizes in
    inference, in ascending order. `constants` are the non-default values that all cases share,
    `subject` is that of its tables.
    """

    cases: "DataFrame"
    places: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    constants: tuple[str, ...] = ()
    subject: str = ""

    @property
    def model(self) -> str:
        return str(self.cases.model.iloc[0])

    @property
    def unit(self) -> str:
        return str(self.cases.unit.iloc[0])

    @property
    def is_inference(self) -> bool:
        return bool(self.cases["mode"].iloc[0] == INFER)

    @property
    def title(self) -> str:
        """The model and mode, with the values that all cases share: "ResNet-50 training, amp"."""
        what = "inference" if self.is_inference else "training"
        precisions, groups = ({kind[i] for kind in self.kinds} for i in (0, 1))
        group = self.rows[0].group
        shared = [
            *(precisions if len(precisions) == 1 else ()),
            *([self.name_group(group)] if len(groups) == 1 else ()),
        ]
        title = self.cases.model_title.iloc[0]
        return ", ".join([f"{title} {what}", *shared, *self.constants])

    def name_group(self, group: str) -> str:
        """Return a row's group in words: the topology "1n2g", or "batch size 8"."""
        return group if self.is_inference else f"batch size {group}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels of rows: frameworks with their variants."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """The distinct pairs of precision and group of rows."""
        return tuple(dict.fromkeys((row.precision, row.group) for row in self.rows))

    def read(self, name: str) -> list[Optional[float]]:
        """Return the values of the column `name` in the order of the cases; None where missing."""
        return list_values(self.cases[name])

    @cached_property
    def is_measured(self) -> tuple[bool, ...]:
        """Whether each case was measured, in the order of the cases."""
        return tuple(self.cases.samples_per_s.notna())

    @property
    def has_scaling(self) -> bool:
        """Whether any row was measured at two or more topologies or batch sizes."""
        return any(sum(self._list_measured(row)) > 1 for row in self.rows)

    @property
    def measured_places(self) -> tuple[int, ...]:
        """The indices in `places` at which any case was measured."""
        found = zip(*map(self._list_measured, self.rows))
        return tuple(i for i, is_measured in enumerate(found) if any(is_measured))

    def _list_measured(self, row: OverviewRow) -> list[bool]:
        """Return for each of `places` whether the row was measured there."""
        return [case is not None and self.is_measured[case] for case in row.cases]


def make_overviews(
    results: Results, marks: FootnoteMarks, created_at: str = ""
) -> tuple[Overview, ...]:
    """Make the overviews: training of each model first, then inference of each.

    `created_at` is the time of the run, for the subjects of tables; "" for no subject.
    """
    found = []
    for spec in (THROUGHPUT, LATENCIES):
        rows = marks.add(spec.rows(results), spec.notes)
        # in the order of its tables
        rows = rows.iloc[[place for part in split_rows(spec, rows) for place in part]]
        groups = rows.groupby("model", sort=False).indices.values()
        parts = sorted(groups, key=lambda group: group[0])
        found += [_make_overview(rows.iloc[part], created_at) for part in parts]
    return tuple(found)


def _make_overview(cases: "DataFrame", created_at: str) -> Overview:
    """Make the overview of cases of one model and mode; `created_at` is as in `make_overviews`."""
    varying = [axis for axis in VARIANTS if cases[axis].nunique(dropna=False) > 1]
    constant = describe_variants(cases[:1], set(VARIANTS) - set(varying)).iloc[0]
    is_inference = cases["mode"].iloc[0] == INFER
    of_place, of_group = (
        (cases.batch_size_per_device, cases.topology)
        if is_inference
        else (cases.topology, cases.fixed_batch_size)
    )
    places = _list_places(of_place, cases)
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    keys = zip(label_cases(cases, varying), cases.precision, of_group)
    for position, (key, place) in enumerate(zip(keys, of_place)):
        found.setdefault(key, {})[place] = position
    rows = (OverviewRow(*key, tuple(map(own.get, places))) for key, own in found.items())
    subject = join_subject(describe_devices(cases), created_at) if created_at else ""
    return Overview(cases, places, tuple(rows), tuple(filter(None, constant)), subject)


def _list_places(names: "Series", cases: "DataFrame") -> tuple[str, ...]:
    """Return the distinct topologies or batch sizes, ascending: ("1n1g", "1n8g", "2n8g").

    `names` has that of each case. Batch sizes that a search determines, such as "max", come first.
    """
    if cases["mode"].iloc[0] == INFER:
        sizes = dict(zip(names, ((size, 0) for size in cases.planned_size)))
    else:
        topologies = {name: parse_topology(name) for name in names}
        sizes = {name: (t.world_size, t.nodes) for name, t in topologies.items()}
    return tuple(sorted(sizes, key=lambda name: (sizes[name], name)))


def choose_rows(overview: Overview, limit: int) -> Overview:
    """Return an overview of up to `limit` rows: the fastest of each label, then the fastest others.

    A label is a framework with its variant. Rows are compared at the largest topology or batch size
    that was measured.
    """
    rates = overview.read("samples_per_s")
    place = overview.measured_places[-1] if overview.measured_places else 0

    def get_rate(row: OverviewRow) -> float:
        case = row.cases[place]
        return (rates[case] or 0.0) if case is not None else 0.0

    ordered = sorted(overview.rows, key=get_rate, reverse=True)
    best = {row.label: row for row in reversed(ordered)}
    ordered.sort(key=lambda row: best[row.label] is not row)
    kept = ordered[:limit]
    return replace(overview, rows=tuple(row for row in overview.rows if row in kept))


def tabulate_overview(overview: Overview, marks: bool = False) -> Table:
    """Make a table with a row per series, and its throughput in a column per topology.

    In inference there is a column per batch size. The last columns are efficiency and precision
    speedup at the largest one measured. `marks` adds marks to the places not measured.
    """
    shown = overview.measured_places
    columns: dict[str, Sequence[Cell]] = {"framework": [Cell(row.label) for row in overview.rows]}
    # values that all rows share are in the title
    if len({row.precision for row in overview.rows}) > 1:
        columns["precision"] = [Cell(row.precision) for row in overview.rows]
    if len({row.group for row in overview.rows}) > 1:
        header = "topology" if overview.is_inference else "batch size"
        columns[header] = [Cell(row.group) for row in overview.rows]
    text_columns = len(columns)
    throughputs = ShownColumn("samples_per_s", marks=True, counts=True).make_cells(overview.cases)
    for i in shown:
        columns[overview.places[i]] = _read_at(overview, i, throughputs)
    if shown:
        largest = shown[-1]
        at = f" at {overview.places[largest]}"
        if overview.has_scaling and not overview.is_inference:
            for name in find_efficiencies(overview.cases):
                show = ShownColumn(name, bounds=False)
                cells = show.make_cells(overview.cases)
                columns[f"{COLUMNS[name].header}{at}"] = _read_at(overview, largest, cells)
        positions = [row.cases[largest] for row in overview.rows]
        there = overview.cases.iloc[[p for p in positions if p is not None]]
        if has_speedup(there).any():
            references = set(there.reference_precision) - {""}
            over = next(iter(references)) if len(references) == 1 else "the reference precision"
            cells = _make_speedup_cells(overview.cases, references)
            columns[f"speedup over {over}{at}"] = _read_at(overview, largest, cells)
    unit = f"{overview.unit} at each {'batch size' if overview.is_inference else 'topology'}"
    caption = f"{unit}, medians with 95 % intervals"
    if left := [i for i in range(len(overview.places)) if i not in shown]:
        places = (overview.places[i] + _mark_place(overview, i) * marks for i in left)
        caption = f"{caption * bool(shown)}; not measured: {', '.join(places)}".lstrip("; ")
    last = text_columns + len(shown)
    # a narrow terminal shows the largest place, then the smallest, efficiency and speedup
    omit_first = [*range(text_columns + 1, last - 1), *reversed(range(last, len(columns)))]
    omit_first += [text_columns] * (len(shown) > 1)
    table = (overview.title, columns, zip(*columns.values()), text_columns, caption, omit_first)
    return make_table(*table, overview.subject)


def _mark_place(overview: Overview, place: int) -> str:
    """Return the marks of the footnotes on cases at the index `place` of `Overview.places`."""
    cases = [row.cases[place] for row in overview.rows]
    found = overview.cases.marks.iloc[[case for case in cases if case is not None]]
    numbers = [f"[{number}]" for number in sorted({*chain(*found)})]
    return " " * bool(numbers) + "".join(numbers)


def _read_at(overview: Overview, place: int, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cell of each row at the index `place` of `Overview.places`.

    `cells` are by position of the case.
    """
    positions = [row.cases[place] for row in overview.rows]
    return [NOT_IN_MATRIX if position is None else cells[position] for position in positions]


def _make_speedup_cells(cases: "DataFrame", references: Collection[str]) -> list[Cell]:
    """Make cells of precision speedups; 1 for measured cases in one of the precisions `references`.

    In the data frame, a reference that is the only precision has no speedup.
    """
    is_reference = cases.precision.isin(references) & cases.samples_per_s.notna()
    speedup = cases.precision_speedup.mask(cases.precision_speedup.isna() & is_reference, 1.0)
    shown = ShownColumn("precision_speedup", missing=NO_REFERENCE)
    return shown.make_cells(cases.assign(precision_speedup=speedup))


def has_speedup(cases: "DataFrame") -> "Series":
    """Return whether each case has a speedup over another precision than its own: bool [cases]."""
    return cases.precision_speedup.notna() & ~cases.precision_speedup_is_baseline


def tabulate_cases(overview: Overview) -> Table:
    """Make a table with one row per case of a training overview, each number with its interval."""
    order = [(row, p) for row in overview.rows for p in row.cases if p is not None]
    cases = overview.cases.iloc[[position for _, position in order]]
    measured = cases[cases.repeats_measured > 0]
    figures = show_training_figures(cases)
    if has_speedup(measured).any():
        header = "speedup over the reference precision"
        figures.append(ShownColumn("precision_speedup", header, missing=""))
    words = {
        "framework": [row.label for row, _ in order],
        "precision": [row.precision for row, _ in order],
        "batch size": [row.group for row, _ in order],
        "topology": [*cases.topology],
    }
    cells = [show.make_cells(cases) for show in figures]
    baselines, references = (
        sorted({*measured[name]} - {""}) for name in ("baseline", "reference_precision")
    )
    parts = [f"{describe_scaling(cases)} against {' or '.join(baselines)}"]
    if references:
        parts.append(
            "speedup over the reference precision: throughput divided by that in "
            f"{' or '.join(references)}"
        )
    caption = "; ".join([*(parts if baselines else []), *explain_limits(measured)])
    return make_table(
        name_cases(overview),
        [*words, *(show.make_header(cases) for show in figures)],
        zip(*words.values(), *cells),
        len(words),
        caption or "no case of this table was measured",
        subject=overview.subject,
    )


def name_cases(overview: Overview) -> str:
    """Return the title of the table that `tabulate_cases` makes."""
    return f"{overview.title}: every case"
