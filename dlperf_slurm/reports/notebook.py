"""Tables of cells with footnotes -> tables that notebooks display, as HTML, LaTeX or text."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Union

from dlperf_slurm.config.suggestions import describe_unknown
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats.latex import make_table as make_latex_table
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.plots import Plot
from dlperf_slurm.reports.terminal import show_table

# width of tables as text
TEXT_COLUMNS = 160


@dataclass(frozen=True, repr=False)
class ShownTable:
    """A table with the footnotes that its cells refer to, by number."""

    table: Table
    notes: dict[int, str]

    @property
    def title(self) -> str:
        return self.table.title

    def latex(self, label: str = "tab:dlperf") -> str:
        """Return the table with its footnotes as a LaTeX table environment (booktabs)."""
        return make_latex_table(self.table, label, self.notes)

    def __repr__(self) -> str:
        file = io.StringIO()
        console = PlainConsole(file, TEXT_COLUMNS)
        show_table(self.table, console)
        for number, text in self.notes.items():
            console.print(f"[{number}] {text}")
        return file.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        """Return the table as an HTML fragment, with all text escaped; Jupyter calls this."""
        header = "".join(_make_cell("th", _escape(text), False) for text in self.table.header)
        rows = "\n".join(f"<tr>{''.join(self._list_cells(row))}</tr>" for row in self.table.rows)
        below = [self.table.caption, *(f"[{n}] {text}" for n, text in self.notes.items())]
        parts = [f"<p><b>{escape(self.table.heading)}</b></p>"] * bool(self.title)
        parts.append(
            f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
        )
        lines = [_escape(text) for text in below if text]
        parts += [f"<p><small>{'<br>'.join(lines)}</small></p>"] * bool(lines)
        return "\n".join(parts)

    def _list_cells(self, row: Sequence[Cell]) -> Iterable[str]:
        """Yield the HTML cells of a row, with superscript footnote numbers."""
        for column, cell in enumerate(row):
            marks = f"<sup>{', '.join(map(str, cell.marks))}</sup>" if cell.marks else ""
            is_figure = column >= self.table.text_columns
            yield _make_cell("td", _escape(cell.unmarked) + marks, is_figure)


class ShownTables(tuple[ShownTable, ...]):
    """The tables of a report, in order."""

    __slots__ = ()

    def find(self, words: str) -> ShownTable:
        """Return the first table whose title contains `words`.

        Raises InputError, which lists the titles, if there is none.
        """
        for table in self:
            if words in table.title:
                return table
        titles = "; ".join(table.title for table in self)
        raise InputError(f"no table has {words!r} in its title; titles: {titles}")

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "\n".join(table._repr_html_() for table in self)


@dataclass(frozen=True, repr=False)
class ShownPlot:
    """A figure of the report, which notebooks display."""

    plot: Plot

    def save(self, path: Union[str, Path]) -> Path:
        """Write a .svg, .pdf or .png file and return its path; InputError for another ending."""
        file = Path(path)
        content = self.plot.files.get(f"{self.plot.name}{file.suffix}")
        if content is None:
            raise InputError(f"{path}: the file name must end with .svg, .pdf or .png")
        file.write_bytes(content)
        return file

    def __repr__(self) -> str:
        return f"<figure {self.plot.name}: {self.plot.title}>"

    def _repr_svg_(self) -> str:
        return self.plot.svg.decode()


def find_plot(plots: Iterable[Plot], words: str) -> ShownPlot:
    """Return the first figure whose name or title contains `words`; InputError if there is none."""
    names = []
    for plot in plots:
        if words in plot.name or words in plot.title:
            return ShownPlot(plot)
        names.append(plot.name)
    raise InputError(describe_unknown(words, names, "in the name or title of a figure"))


def add_notes(table: Table, footnotes: Sequence[str]) -> ShownTable:
    """Return a table with the footnotes that it refers to; `footnotes[n - 1]` is footnote n."""
    return ShownTable(table, {number: footnotes[number - 1] for number in table.marks})


def _make_cell(tag: str, markup: str, is_figure: bool) -> str:
    """Make an HTML cell, "th" or "td"; a figure is aligned right, its interval is not broken."""
    side, between = ("right", "&nbsp;to&nbsp;") if is_figure else ("left", " to ")
    return f'<{tag} style="text-align: {side}">{markup.replace(" to ", between)}</{tag}>'


def _escape(text: str) -> str:
    """Escape a text for HTML and keep its line breaks."""
    return "<br>".join(map(escape, text.split("\n")))
