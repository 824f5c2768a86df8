"""Tables: each is declared as a selection of cases, their grouping, and columns.

`tabulate` makes tables of cells from a declaration and the results of a run. The number format of
a column is declared in `results.case_columns`; a table declares only deviations.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Optional, Union

from dlperf_slurm.reports.cells import Cell, Table, join_cells, make_cell
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.columns import Column, list_values
from dlperf_slurm.results.compare import COMPARISON
from dlperf_slurm.results.footnotes import Footnotes, Note
from dlperf_slurm.results.labels import VARIANTS, label_cases
from dlperf_slurm.results.model_hardware import describe_devices
from dlperf_slurm.results.notes import CASE, DOUBT, TABLE
from dlperf_slurm.results.number_formats import COUNT, NumberFormat, ScaledFormat
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLUMNS: Mapping[str, Column] = {column.name: column for column in (*COMPARISON, *CASES)}
# scopes of the notes of every table of cases
OF_CASES = (CASE, DOUBT, TABLE)

# the rows of one table -> a title or caption; the results of a run -> rows; rows -> cells
FromRows = Callable[["DataFrame"], Any]
FromResults = Callable[[Any], "DataFrame"]
MakeCells = Callable[["DataFrame"], Iterable[Union[Cell, str]]]


@dataclass(frozen=True)
class ShownColumn:
    """A column of a table: the name of a frame column, and deviations from its declaration.

    `header`, `form` and `missing` override the declared ones; `{unit}` in a header is replaced by
    the unit of the table's first case. `bounds` prints the interval or, without one, the range;
    without `bounds` they still limit the digits. `marks` prints the row's footnotes in this column;
    `counts` prints the measured and planned repeats if some are missing. `cells` makes the cells
    from the rows, instead of from the frame column.
    """

    name: str
    header: Optional[str] = None
    form: Optional[NumberFormat] = None
    missing: Optional[str] = None
    bounds: bool = True
    marks: bool = False
    counts: bool = False
    cells: Optional[MakeCells] = None

    def make_cells(self, rows: "DataFrame") -> list[Cell]:
        """Make one cell per row; instead of a missing value it shows the problem of the row.

        `rows` has the columns `problem` and, if `marks` is set, `marks` (footnote numbers).
        """
        column, missing = COLUMNS.get(self.name), self.missing
        if missing is None:
            missing = column.missing if column else ""
        cells = map(make_cell, self.cells(rows) if self.cells else self.read_cells(rows))
        marks = rows.marks if self.marks else repeat(())
        return [
            replace(cell, problem=cell.problem or problem or missing, notes=notes or cell.notes)
            if cell.value is None or self.marks
            else cell
            for cell, problem, notes in zip(cells, rows.problem, marks)
        ]

    def make_header(self, rows: "DataFrame") -> str:
        """Return the header of the column, with the unit of the first row in place of "{unit}"."""
        column = COLUMNS.get(self.name)
        text = self.header if self.header is not None else (column and column.header) or self.name
        return text.replace("{unit}", rows.unit.iloc[0]) if "{unit}" in text else text

    def read_cells(self, rows: "DataFrame") -> Iterator[Cell]:
        """Yield the cells of the frame's column `name` with bounds; None for a missing value."""
        column = COLUMNS.get(self.name)
        form = self.form or (column.form if column else ScaledFormat())
        intervals = read_intervals(rows, column.bounds if column else ())
        ranges = read_intervals(rows, column.extremes if column else ())
        counts: Iterable[tuple[int, int]] = repeat((0, 0))
        if self.counts:
            counts = zip(rows.repeats_measured.tolist(), rows.repeats_planned.tolist())
        for value, interval, extent, (count, planned) in zip(
            list_values(rows[self.name]), intervals, ranges, counts
        ):
            repeats = (count, planned) if 0 < count < planned else None
            yield Cell(value, form, interval, extent, hides_bounds=not self.bounds, repeats=repeats)


def read_intervals(rows: "DataFrame", names: Sequence[str]) -> list[Optional[Interval]]:
    """Return each row's interval from columns `names` (low, high); None if missing, or for ()."""
    if not names:
        return [None] * len(rows)
    low, high = names
    return [None if a != a or b != b else Interval(a, b) for a, b in zip(rows[low], rows[high])]


@dataclass(frozen=True)
class TableSpec:
    """The declaration of a table, or of a table for each group of cases.

    `rows` selects and sorts the cases from the results, which are the rows themselves by default;
    each combination of values in the columns `by` has a table, in the order of its first case.
    `words` are the columns of texts, which come first, `figures` those of numbers. `title`,
    `caption`, `words` and `figures` may depend on the cases of a table. `notes` are the scopes of
    its footnotes, which are numbered in the order of the rows.
    """

    name: str
    title: Union[str, FromRows]
    words: Callable[["DataFrame"], Sequence[ShownColumn]]
    figures: Callable[["DataFrame"], Sequence[ShownColumn]]
    caption: Union[str, FromRows]
    rows: FromResults = lambda rows: rows
    by: tuple[str, ...] = ()
    notes: tuple[str, ...] = OF_CASES


class FootnoteMarks:
    """The footnotes of rows, numbered in the order in which tables refer to them.

    `notes` are (row label, scope, note): the label is that of the row in its data frame, such as a
    case id, and the scope says which tables print the note (`results.notes`).
    """

    def __init__(self, notes: Iterable[tuple[Hashable, str, Note]]) -> None:
        self.footnotes = Footnotes()
        self._notes: dict[tuple[Hashable, str], list[Note]] = {}
        for label, scope, note in notes:
            self._notes.setdefault((label, scope), []).append(note)

    def number(self, label: Hashable, scopes: Iterable[str]) -> tuple[int, ...]:
        """Return the footnote numbers of a row for its notes in these scopes."""
        notes = [note for scope in scopes for note in self._notes.get((label, scope), ())]
        return tuple(dict.fromkeys(map(self.footnotes.number, dict.fromkeys(notes))))

    def add(self, rows: "DataFrame", scopes: Iterable[str]) -> "DataFrame":
        """Return the rows with a new column `marks`: footnote numbers of notes in `scopes`."""
        return rows.assign(marks=[self.number(label, scopes) for label in rows.index])


def tabulate(spec: TableSpec, results: Any, marks: FootnoteMarks) -> Iterator[Table]:
    """Yield the tables that `spec` declares, one per group of its `by`; none without rows.

    The rows are `spec.rows(results)`, and `marks` numbers their footnotes. Cells are made once per
    column for all tables, because pandas is slow with hundreds of small frames.
    """
    rows = spec.rows(results)
    if rows.empty:
        return
    rows = marks.add(rows, spec.notes)
    make_cells: Callable[[ShownColumn], list[Cell]] = cache(lambda show: show.make_cells(rows))
    for part in split_rows(spec, rows):
        own = rows.iloc[part]
        words, figures = spec.words(own), spec.figures(own)
        columns = [[found[i] for i in part] for found in map(make_cells, (*words, *figures))]
        yield Table(
            title=spec.title if isinstance(spec.title, str) else spec.title(own),
            header=tuple(show.make_header(own) for show in (*words, *figures)),
            rows=tuple(zip(*columns)),
            text_columns=len(words),
            caption=spec.caption if isinstance(spec.caption, str) else spec.caption(own),
            kind=spec.name,
            model=own.model.iloc[0] if "model" in spec.by else "",
            subject=describe_devices(own) if "hardware" in own else "",
        )


def split_rows(spec: TableSpec, rows: "DataFrame") -> list[Any]:
    """Return the positions of the rows of each table that `spec` declares, in order."""
    if not spec.by:
        return [range(len(rows))]
    groups = rows.groupby([*spec.by], sort=False, dropna=False).indices.values()
    return sorted(groups, key=lambda part: part[0])


def tabulate_rows(
    spec: TableSpec, rows: "DataFrame", texts: Iterable[Iterable[str]]
) -> tuple[list[Table], tuple[str, ...]]:
    """Make the tables of `rows`, which have no problems; `texts` has the footnotes of each row.

    The index of `rows` must be 0, 1, ... Also returns the texts of all footnotes in the order of
    their numbers; empty texts are left out.
    """
    notes = [(row, CASE, text) for row, own in enumerate(texts) for text in own if text]
    marks = FootnoteMarks(notes)
    return [*tabulate(spec, rows.assign(problem=""), marks)], tuple(marks.footnotes.texts)


def join_subject(devices: str, created_at: str) -> str:
    """Join the devices of a table with the day of `created_at`: "8x NVIDIA H200, 2026-11-26"."""
    return ", ".join(filter(None, (devices, created_at[:10])))


def list_groups(spec: TableSpec, results: Results) -> "Iterator[tuple[str, DataFrame]]":
    """Yield the title and the cases (rows) of each table that `spec` declares, to plot them."""
    rows = spec.rows(results)
    for part in split_rows(spec, rows):
        own = rows.iloc[part]
        yield spec.title if isinstance(spec.title, str) else spec.title(own), own


# columns of several tables


def show_label(axes: Collection[str] = VARIANTS, **changes: Any) -> ShownColumn:
    """Return the table column of labels: the framework and its non-default values on `axes`.

    `changes` are other fields of ShownColumn.
    """
    return ShownColumn("framework", cells=_make_label_cells(frozenset(axes)), **changes)


# cached, so that `tabulate` finds equal columns equal
@cache
def _make_label_cells(axes: frozenset[str]) -> MakeCells:
    return lambda rows: label_cases(rows, axes)


def show_throughput(rows: "DataFrame", **changes: Any) -> list[ShownColumn]:
    """Return the table columns of throughput in samples/s and, for models with tokens, tokens/s.

    `changes` are fields of ShownColumn for the column in samples/s.
    """
    in_samples = ShownColumn("samples_per_s", marks=True, counts=True, **changes)
    if (rows.tokens_per_sample > 0).any():
        return [ShownColumn("tokens_per_s", "tokens/s", cells=make_token_cells), in_samples]
    return [in_samples]


def make_token_cells(rows: "DataFrame") -> list[Cell]:
    """Make cells of the throughput in tokens/s: that in samples/s times the tokens per sample."""
    cells = ShownColumn("samples_per_s", bounds=False).make_cells(rows)
    tokens = rows.tokens_per_sample.fillna(1)
    return [
        replace(cell, form=ScaledFormat(factor=int(count) or 1))
        for cell, count in zip(cells, tokens)
    ]


def join_sizes(rows: "DataFrame") -> list[Cell]:
    """Make cells of the measured batch sizes of each case: "16 and 32"; "none" without any."""
    return [
        join_cells([Cell(int(size), COUNT) for size in text.split()]
            or [Cell(None, problem="none")], " and ")
        for text in rows.batch_sizes_measured
    ]  # fmt: skip


def count_of(part: "Series", whole: "Series") -> list[Cell]:
    """Make cells "2 of 3" from a column of counts and a column of totals."""
    return [
        Cell(count, ScaledFormat(".0f", unit=f" of {total}"))
        for count, total in zip(list_values(part), whole)
    ]


def find_known(rows: "DataFrame", *names: str) -> list[str]:
    """Return those of the columns `names` that have a value in any row."""
    return [name for name in names if rows[name].notna().any()]
