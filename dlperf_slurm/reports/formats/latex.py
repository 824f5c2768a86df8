"""Report -> LaTeX tables to \\input, in the style of booktabs."""

from collections.abc import Iterator, Mapping

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.summarize import tabulate_run

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
    # two would make a dash
    "-": r"{-}",
}


def serialize(report: Report) -> dict[str, bytes]:
    """One table environment per table, with the footnotes that it refers to below it."""
    summary = report.summary
    blocks = [
        "% needs \\usepackage[T1]{fontenc} and \\usepackage{booktabs}",
        f"% {_make_line(summary.manifest.title)}\n% {_make_line(summary.description)}",
        f"% {summary.method}",
        *([f"% {_make_line(summary.banner)}"] if summary.banner else []),
    ]
    blocks += [
        make_table(table, f"tab:dlperf-{number}", dict(enumerate(summary.footnotes, start=1)))
        for number, table in enumerate(tabulate_run(summary), start=1)
    ]
    return {FILE_NAME: ("\n\n".join(blocks) + "\n").encode()}


def make_table(table: Table, label: str, footnotes: Mapping[int, str]) -> str:
    """A table environment of this label, with those footnotes below it that its cells refer to."""
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
    # braces: a row that begins with "[" would be taken for an option of \\
    return " & ".join(f"{{{cell}}}" for cell in cells) + r" \\"


def _make_cell(cell: Cell) -> str:
    """What a cell shows, its footnotes raised."""
    marks = f"\\textsuperscript{{{','.join(map(str, cell.marks))}}}" if cell.marks else ""
    return escape_latex(cell.unmarked) + marks


def _make_note(number: int, text: str) -> str:
    """A footnote by the number that it has in all reports."""
    return rf"\par\textsuperscript{{{number}}} {escape_latex(text)}"


def escape_latex(text: str) -> str:
    """The text without any command; line ends and control characters become spaces."""
    return "".join(_SPECIAL.get(character, character) for character in _make_line(text))


def _make_line(text: str) -> str:
    """One line, that a comment may hold too."""
    return "".join(character if character.isprintable() else " " for character in text)
