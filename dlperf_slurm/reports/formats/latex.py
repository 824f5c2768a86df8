"""Report -> LaTeX tables to \\input, in the style of booktabs."""

from collections.abc import Iterator, Mapping

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report

FILE_NAME = "report.tex"
SHOWS_PLOTS = False

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
    """Serialize the tables as LaTeX table environments, each with its footnotes."""
    summary = report.summary
    blocks = [
        "% needs \\usepackage[T1]{fontenc} and \\usepackage{booktabs}",
        f"% {_make_line(summary.manifest.title)}\n% {_make_line(summary.description)}",
        f"% {summary.method}",
        *([f"% {_make_line(summary.banner)}"] if summary.banner else []),
    ]
    blocks += [
        make_table(table, f"tab:dlperf-{number}", dict(enumerate(summary.footnotes, start=1)))
        for number, table in enumerate(summary.tables, start=1)
    ]
    return {FILE_NAME: ("\n\n".join(blocks) + "\n").encode()}


def make_table(table: Table, label: str, footnotes: Mapping[int, str]) -> str:
    """Format a table environment with this label; `footnotes` has the report's texts by number."""
    figures = len(table.header) - table.text_columns
    raised = {number for row in table.rows for cell in row for number in cell.marks}
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{{'l' * table.text_columns}{'r' * figures}}}",
        r"\toprule",
        _join_cells(map(escape_latex, table.header)),
        r"\midrule",
        *(_join_cells(map(_make_cell, row)) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"\smallskip",
        r"\begin{minipage}{\linewidth}",
        escape_latex(table.caption) + ".",
        *(_make_note(number, footnotes[number]) for number in sorted(raised)),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _join_cells(cells: Iterator[str]) -> str:
    """Join the escaped cells of a row, and end the row."""
    # braces, because LaTeX parses "[" at the start of a row as an argument of \\
    return " & ".join(f"{{{cell}}}" for cell in cells) + r" \\"


def _make_cell(cell: Cell) -> str:
    """Format a cell, with its footnote numbers as superscript."""
    marks = f"\\textsuperscript{{{','.join(map(str, cell.marks))}}}" if cell.marks else ""
    return escape_latex(cell.unmarked) + marks


def _make_note(number: int, text: str) -> str:
    """Format a footnote with its number, which is the same in all formats."""
    return rf"\par\textsuperscript{{{number}}} {escape_latex(text)}"


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX; line ends and control characters become spaces."""
    return "".join(_SPECIAL.get(character, character) for character in _make_line(text))


def _make_line(text: str) -> str:
    """Replace line ends and control characters by spaces, so that the text fits a comment line."""
    return "".join(character if character.isprintable() else " " for character in text)
