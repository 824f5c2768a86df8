"""Summary -> LaTeX tables to \\input, in the style of booktabs."""

from collections.abc import Iterator

from dlperf_slurm.reports.grids import make_grids
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.text import METHOD, Grid, describe_run, split_marks

FILE_NAME = "report.tex"

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


def serialize(summary: Summary) -> str:
    """One table environment per table, with the footnotes that it refers to below it."""
    blocks = [
        "% needs \\usepackage[T1]{fontenc} and \\usepackage{booktabs}",
        f"% {_make_line(summary.manifest.title)}\n% {_make_line(describe_run(summary))}",
        f"% {METHOD}",
    ]
    blocks += [
        _make_table(grid, number, summary.footnotes)
        for number, grid in enumerate(make_grids(summary), start=1)
    ]
    return "\n\n".join(blocks) + "\n"


def _make_table(grid: Grid, number: int, footnotes: tuple[str, ...]) -> str:
    figures = len(grid.header) - grid.text_columns
    count = len(footnotes) if grid.has_marks else 0
    rows = [[split_marks(text, count) for text in row] for row in grid.rows]
    raised = {number for row in rows for _, numbers in row for number in numbers}
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize",
        rf"\caption{{{escape_latex(grid.title)}}}",
        rf"\label{{tab:dlperf-{number}}}",
        rf"\begin{{tabular}}{{{'l' * grid.text_columns}{'r' * figures}}}",
        r"\toprule",
        _join_cells(map(escape_latex, grid.header)),
        r"\midrule",
        *(_join_cells(_make_cell(text, numbers) for text, numbers in row) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"\smallskip",
        r"\begin{minipage}{\linewidth}",
        escape_latex(grid.caption) + ".",
        *(_make_note(number, footnotes[number - 1]) for number in sorted(raised)),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _join_cells(cells: Iterator[str]) -> str:
    # braces: a row that begins with "[" would be taken for an option of \\
    return " & ".join(f"{{{cell}}}" for cell in cells) + r" \\"


def _make_cell(text: str, numbers: tuple[int, ...]) -> str:
    """The text of a cell, its footnotes raised."""
    marks = rf"\textsuperscript{{{','.join(map(str, numbers))}}}" if numbers else ""
    return escape_latex(text) + marks


def _make_note(number: int, text: str) -> str:
    """A footnote by the number that it has in all reports."""
    return rf"\par\textsuperscript{{{number}}} {escape_latex(text)}"


def escape_latex(text: str) -> str:
    """As text, never as a command; line ends and control characters become spaces."""
    return "".join(_SPECIAL.get(character, character) for character in _make_line(text))


def _make_line(text: str) -> str:
    """One line, that a comment may hold too."""
    return "".join(character if character.isprintable() else " " for character in text)
