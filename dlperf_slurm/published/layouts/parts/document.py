"""Tables and notes -> a document with numbered footnotes; cells and columns of figures."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional, TypeVar, Union

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.grouping import group_by
from dlperf_slurm.published.layouts.parts.figures import ABSENT, NO_FIGURE, Figure
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.footnotes import Footnotes, Note
from dlperf_slurm.results.number_formats import ScaledFormat
from dlperf_slurm.results.ratios import divide

Key = TypeVar("Key", bound=Hashable)

MOST_DECIMALS = 2
AND = " and "

# a header and its cells
LayoutColumn = tuple[str, Sequence[Union[Cell, str]]]


@dataclass
class Document:
    """Tables in a layout, with footnotes and notes, which the functions of the layout add.

    `notes` are lines below the tables, about figures that are missing or were measured twice.
    """

    tables: list[Table] = field(default_factory=list)
    numbered: Footnotes = field(default_factory=Footnotes)
    notes: list[str] = field(default_factory=list)

    @property
    def footnotes(self) -> list[str]:
        """The texts of the footnotes; that of footnote n is at n - 1."""
        return self.numbered.texts

    def note(self, text: str) -> None:
        """Add a line below the tables, unless it is there already."""
        self.notes += [text] * (text not in self.notes)

    def number(self, notes: Iterable[Note]) -> tuple[int, ...]:
        """Return the numbers of footnotes with these texts; a new text gets the next number."""
        return tuple(map(self.numbered.number, notes))

    def index(
        self, figures: Iterable[Figure], find_key: Callable[[Figure], Key]
    ) -> dict[Key, Figure]:
        """Return one figure per key, the first measured or else the first; note values not shown.

        `find_key` returns a figure's place in a table, such as its topology.
        """
        found = group_by(figures, find_key)
        chosen = {
            key: next((f for f in group if f.samples_per_s is not None), group[0])
            for key, group in found.items()
        }
        for key, group in found.items():
            others = [f for f in group if f is not chosen[key] and f.samples_per_s is not None]
            if others:
                values = ", ".join(str(figure.samples_per_s) for figure in others)
                self.note(
                    f"{describe(chosen[key])}: there are several values for one cell; "
                    f"{chosen[key].samples_per_s} is shown, not {values}"
                )
        return chosen


def describe(figure: Figure) -> str:
    """Describe the case of a figure: "pytorch resnet50 1n8g fp32 bsz=128"."""
    parts = [figure.label, figure.model, str(figure.topology), figure.precision, figure.compiler]
    return " ".join([*(part for part in parts if part != "none"), f"bsz={figure.batch_group}"])


def disambiguate_name(name: str, figure: Figure, names: Iterable[tuple[str, str]]) -> str:
    """Return a framework's name, followed by the figure's source if `names` has several for it.

    `names` are the (framework, source) pairs of all columns.
    """
    sources = {source for other, source in names if other == name}
    return f"{name} ({figure.source})" if len(sources) > 1 else name


def list_topologies(figures: Iterable[Figure], measured: bool = False) -> list[Topology]:
    """Return the topologies of the figures, the one with the fewest devices first.

    With `measured`, figures without a throughput are left out.
    """
    topologies = {f.topology for f in figures if not measured or f.samples_per_s is not None}
    return sorted(topologies, key=lambda topology: (topology.world_size, topology))


def arrange(
    figures: Iterable[Figure],
    precisions: Iterable[str],
    topologies: Sequence[Topology],
    draft: Document,
) -> dict[str, list[Figure]]:
    """Return figures in the order of the topologies, by precision; NO_FIGURE where one is missing.

    If several figures have the same precision and topology, the first that was measured is
    returned, and `draft` gets a note with the values of the others.
    """
    points = draft.index(figures, lambda figure: (figure.precision, figure.topology))
    return {
        p: [points.get((p, topology), NO_FIGURE) for topology in topologies] for p in precisions
    }


def format_device_counts(topologies: Sequence[Topology]) -> list[str]:
    """Format the device count of each topology, with the topology if a count is not unique."""
    counts = [topology.world_size for topology in topologies]
    return [
        str(topology.world_size)
        if counts.count(topology.world_size) == 1
        else f"{topology.world_size} ({topology})"
        for topology in topologies
    ]


def order_batch_groups(groups: Iterable[str]) -> list[str]:
    """Return batch sizes sorted as rows of a table: "max" and other words, then numbers."""
    return sorted(
        set(groups), key=lambda group: (group.isdigit(), int(group) if group.isdigit() else 0)
    )


def describe_sizes(figures: Iterable[Figure]) -> str:
    """Describe the requested batch size; if others were measured, these too: "max: 96 and 128"."""
    groups = group_by(figures, lambda figure: figure.batch_group)
    sizes = [size for group in groups.values() for f in group for size in f.batch_sizes.split(AND)]
    asked, found = AND.join(groups), AND.join(dict.fromkeys(filter(None, sizes)))
    return asked if found in ("", asked) else f"{asked}: {found}"


def list_footnotes(figure: Figure, column: Iterable[Figure]) -> tuple[Note, ...]:
    """Return a figure's footnotes, and one on its batch size if a `column` has several sizes.

    That one is added only if the job chose the size: such figures did different work per step.
    """
    sizes = {other.batch_sizes for other in column if other.batch_sizes}
    is_chosen = figure.batch_sizes not in ("", figure.batch_group)
    if not is_chosen or len(sizes) == 1:
        return tuple(figure.footnotes)
    return (f"{describe(figure)}: batch size {figure.batch_sizes}", *figure.footnotes)


def make_column_cells(figures: Sequence[Figure], name: str) -> list[Cell]:
    """Make the cells of a column of a table, one per figure; one without a value shows why.

    `name` is the column of the frame, such as "samples_per_s". Our own measurements have two
    decimals, published figures only as many as they need.
    """
    values = [getattr(figure, name) for figure in figures]
    known = [(figure, value) for figure, value in zip(figures, values) if value is not None]
    decimals, rounded = MOST_DECIMALS, [round(value, MOST_DECIMALS) for _, value in known]
    if all(figure.table for figure, _ in known):
        enough = (n for n in range(MOST_DECIMALS) if all(round(v, n) == v for v in rounded))
        decimals = next(enough, MOST_DECIMALS)
    form = ScaledFormat(f".{decimals}f")
    return [
        Cell(value, form, problem=figure.problem if name == "samples_per_s" else ABSENT)
        for figure, value in zip(figures, values)
    ]


def make_ratio_cell(value: Optional[float], base: Optional[float]) -> Cell:
    """Make the cell of value / base; it shows "-" if one of the two is missing."""
    return Cell(divide(value, base), problem=ABSENT)


def make_layout_table(
    title: str, columns: Sequence[LayoutColumn], text_columns: int, caption: str
) -> Table:
    """Make a table of equally long (header, cells) columns; the first `text_columns` are texts."""
    headers, cells = zip(*columns)
    return make_table(title, headers, zip(*cells), text_columns, caption)


def get_unit_name(unit: str, images: str = "img/s") -> str:
    """Return the name of a throughput's unit; `images` is what the layout writes for images/s."""
    return images if unit == "images/s" else unit
