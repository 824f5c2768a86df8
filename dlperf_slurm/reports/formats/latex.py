"""Report -> LaTeX tables to \\input, in the style of booktabs, at most as wide as the text."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.tables.machines import RANK_TIMES
from dlperf_slurm.results.number_formats import ScaledFormat

FILE_NAME = "report.tex"
SHOWS_PLOTS = False

# a longer table is continued in another; rows with intervals have two lines
MOST_LINES = 34
# longer texts are wrapped
LONGEST_TEXT = 34

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # two hyphens would become a dash
    "-": r"{-}",
}


def serialize(report: Report) -> dict[str, bytes]:
    """Serialize the tables as one LaTeX file of table environments, each with its footnotes.

    The table of step times by rank, which may be long, is left out.
    """
    summary = report.summary
    comments = [summary.manifest.title, summary.description, summary.method, summary.banner]
    tables = [table for table in summary.tables if table.kind != RANK_TIMES.name]
    return {FILE_NAME: write_tables(tables, summary.footnotes, comments).encode()}


def write_tables(tables: Iterable[Table], footnotes: Sequence[str], comments: Iterable[str]) -> str:
    """Return tables as LaTeX, labelled tab:dlperf-1, tab:dlperf-2, ..., after LaTeX comments.

    `footnotes[n - 1]` is footnote n; each text of `comments` becomes a comment line.
    """
    numbered = dict(enumerate(footnotes, start=1))
    blocks = [
        "% needs \\usepackage[T1]{fontenc}, \\usepackage{booktabs,graphicx,siunitx}",
        *(f"% {_make_line(comment)}" for comment in comments if comment),
        *(
            make_table(table, f"tab:dlperf-{number}", numbered)
            for number, table in enumerate(tables, start=1)
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def make_table(table: Table, label: str, footnotes: Mapping[int, str]) -> str:
    """Return a table as a LaTeX environment with this label; `footnotes` has texts by number.

    A long table is several environments, of which the first has the label.
    """
    most = MOST_LINES // (2 if any(cell.spread for row in table.rows for cell in row) else 1)
    parts = [table.rows[i : i + most] for i in range(0, len(table.rows), most)]
    return "\n\n".join(
        _make_part(
            replace(table, rows=rows),
            "" if len(parts) == 1 else f" ({number} of {len(parts)})",
            label if number == 1 else f"{label}-{number}",
            footnotes,
        )
        for number, rows in enumerate(parts, start=1)
    )


def _make_part(table: Table, ending: str, label: str, footnotes: Mapping[int, str]) -> str:
    """Return one LaTeX table environment, scaled down if it would be wider than the text.

    `ending` ends the title of a part of a long table: " (1 of 2)".
    """
    columns = [
        _make_column(header, [row[i] for row in table.rows], i < table.text_columns)
        for i, header in enumerate(table.header)
    ]
    specs, headers, *_ = zip(*columns)
    lines = [
        r"\begin{table}[htbp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape_latex(table.heading + ending)}}}",
        rf"\label{{{label}}}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{{''.join(specs)}}}",
        r"\toprule",
        _join_cells(headers),
        r"\midrule",
        *_list_rows(table, [cells for *_, cells in columns]),
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        "",
        r"\smallskip",
        r"\begin{minipage}{\linewidth}\scriptsize\raggedright",
        _break_words(table.caption) + ".",
        *(
            rf"\par\textsuperscript{{{number}}} {_break_words(footnotes[number])}"
            for number in table.marks
        ),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _make_column(header: str, cells: Sequence[Cell], is_text: bool) -> tuple[str, str, list[str]]:
    """Return a column's alignment, header and cells; numbers are aligned at the decimal point.

    A percent sign that all numbers have moves to the header.
    """
    length = max(len(cell.text) for cell in cells)
    numbers = [cell.number for cell in cells if cell.number]
    forms = {cell.form.unit if isinstance(cell.form, ScaledFormat) else None
        for cell in cells if cell.figure is not None}  # fmt: skip
    if is_text or not numbers or forms not in ({""}, {" %"}):
        spec, write = "l" if is_text else "r", escape_latex
        if is_text and length > LONGEST_TEXT:
            write = _break_words
            spec = rf">{{\raggedright\arraybackslash}}p{{{LONGEST_TEXT / 2:g}em}}"
        texts = [f"{{{write(cell.text)}{_raise_marks(cell)}}}" for cell in cells]
        return spec, _wrap_header(header, length, "l" if is_text else "r"), texts
    whole, places = (max(len(number.partition(".")[i]) for number in numbers) for i in (0, 2))
    marks = max(sum(len(str(number)) + 1 for number in cell.marks) for cell in cells)
    space = rf"@{{\hspace{{{8 + 3 * marks}pt}}}}" if marks else ""
    (unit,) = forms
    return (
        f"S[table-format={whole}.{places}]{space}",
        _wrap_header(f"{header},{unit}" if unit else header, length, "c"),
        [
            cell.number + (f"{{\\rlap{{{_raise_marks(cell)}}}}}" if cell.marks else "")
            if cell.number
            else f"{{{escape_latex(cell.text)}{_raise_marks(cell)}}}"
            for cell in cells
        ],
    )


def _list_rows(table: Table, columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as LaTeX, each followed by a smaller row of its intervals if it has any."""
    for row, cells in zip(table.rows, zip(*columns)):
        yield _join_cells(cells)
        spreads = [escape_latex(cell.spread) for cell in row]
        if any(spreads):
            yield _join_cells(rf"{{\scriptsize {text}}}" if text else "{}" for text in spreads)
            yield r"\addlinespace[2pt]"


def _wrap_header(text: str, length: int, alignment: str) -> str:
    """Wrap a header at `length`, that of its column's texts, or at its longest word.

    Lines of a wrapped header have this `alignment`, such as "r".
    """
    width = max([length, *map(len, text.split())])
    lines = [*map(escape_latex, textwrap.wrap(text, width, break_long_words=False))]
    if len(lines) < 2:
        return f"{{{''.join(lines)}}}"
    stack = r" \\ ".join(f"{{{line}}}" for line in lines)
    return rf"{{\shortstack[{alignment}]{{{stack}}}}}"


def _join_cells(cells: Iterable[str]) -> str:
    """Join the cells of a row, and end the row; text cells are in braces.

    Without braces LaTeX parses "[" at the start of a row as an argument of the line end.
    """
    return " & ".join(cells) + r" \\"


def _raise_marks(cell: Cell) -> str:
    """Return the footnote numbers of a cell as LaTeX superscript, or ""."""
    return rf"\textsuperscript{{{','.join(map(str, cell.marks))}}}" if cell.marks else ""


def _break_words(text: str) -> str:
    """Escape a text for LaTeX, with break points in its case ids and paths."""
    broken = escape_latex(text)
    for mark in ("{-}", r"\_", "/"):
        broken = broken.replace(mark, rf"{mark}\allowbreak{{}}")
    return broken


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX; line ends and control characters become spaces."""
    return "".join(_SPECIAL.get(character, character) for character in _make_line(text))


def _make_line(text: str) -> str:
    """Replace line ends and control characters by spaces, so that the text is one line."""
    return "".join(character if character.isprintable() else " " for character in text)
