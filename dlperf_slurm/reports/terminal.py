"""Summary, plan and states -> tables on a terminal; plain text if piped."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from dlperf_slurm.plain_text import count_things, list_some
from dlperf_slurm.reports.plain_console import PlainConsole, Text, measure, wrap

if TYPE_CHECKING:
    from dlperf_slurm.jobs.plan import Plan
    from dlperf_slurm.reports.cells import Cell, Table
    from dlperf_slurm.reports.summarize import Summary

# widths of text columns: longer names are broken before a column is left out; minimum width
_LONG_NAME, _LEAST_TEXT = 40, 16

# spaces between columns
_WIDE_GAP, _NARROW_GAP = 3, 2

# what a run's summary prints, so that it fits on one screen
MAX_FINDINGS = 3
MAX_ROWS = 10
MAX_TABLES = 3
MAX_NOTES = 4
# cases that a plan lists one by one; with more cases, those that look the same share a row
LISTED_CASES = 20


def print_summary(summary: "Summary", console: PlainConsole) -> None:
    """Print a screen of results: sentences, tables per model and mode, warnings, footnotes."""
    from dlperf_slurm.reports.tables.overview import (
        choose_rows,
        make_overviews,
        tabulate_overview,
    )

    _print_head(summary, console)
    overviews = make_overviews(summary.results, summary.marks)
    shown = [choose_rows(o, max(2, MAX_ROWS // len(overviews))) for o in overviews[:MAX_TABLES]]
    numbers: list[int] = []
    for overview, whole in zip(shown, overviews):
        console.print()
        table = tabulate_overview(overview, marks=True)
        if len(table.header) > table.text_columns:
            show_table(table, console)
        else:
            # nothing was measured: no table of frameworks alone
            console.print(Text(table.heading, style="bold"))
            console.print(Text(table.caption, style="dim"))
        # footnotes of cases without a result come first
        cases = sorted({case for row in overview.rows for case in row.cases if case is not None})
        cases.sort(key=overview.is_measured.__getitem__)
        numbers += [number for case in cases for number in sorted(overview.cases.marks.iloc[case])]
        if len(overview.rows) < len(whole.rows):
            text = f"the fastest {len(overview.rows)} of {len(whole.rows)} rows"
            console.print(Text(text, style="dim"))
    for table in summary.against:
        console.print()
        show_table(table, console)
    if len(overviews) > MAX_TABLES:
        left = ", ".join(overview.title for overview in overviews[MAX_TABLES:])
        console.print(Text(f"tables not shown: {left}", style="dim"))
    warnings = [finding.text for finding in summary.findings if finding.is_warning]
    notes = [(number, summary.footnotes[number - 1]) for number in dict.fromkeys(numbers)]
    if warnings or notes:
        console.print()
    for warning in warnings:
        console.print(Text(warning, style="yellow"))
    for number, text in sorted(notes[:MAX_NOTES]):
        short = textwrap.shorten(text, 2 * console.width - 10, placeholder=" ...")
        console.print(Text(f"[{number}] {short}"))
    if len(notes) > MAX_NOTES:
        console.print(f"and {count_things(len(notes) - MAX_NOTES, 'more footnote')}")


def print_whole_report(summary: "Summary", console: PlainConsole) -> None:
    """Print the findings and warnings of a run, and all its tables with all their footnotes."""
    _print_head(summary, console)
    for finding in summary.findings:
        if finding.is_warning:
            console.print(Text(finding.text, style="yellow"))
    for table in summary.tables:
        console.print()
        show_table(table, console)
    if summary.footnotes:
        console.print()
    print_footnotes(summary.footnotes, console)


def _print_head(summary: "Summary", console: PlainConsole) -> None:
    """Print a run's title and description, the warning about other users, and its findings."""
    console.print(Text(summary.manifest.title, style="bold"))
    console.print(Text(summary.description))
    print_banner(summary, console)
    findings = [finding.text for finding in summary.findings if not finding.is_warning]
    if findings:
        console.print("\n".join(["", *findings[:MAX_FINDINGS]]))


def print_banner(summary: "Summary", console: PlainConsole) -> None:
    """Print the warning about other users of the machines, if any."""
    if summary.banner:
        console.print(Text(summary.banner, style="bold yellow"))


def print_plan(plan: "Plan", console: PlainConsole) -> None:
    """Print the groups (array jobs) and cases of a plan, the cases left out, and totals."""
    if plan.cases:
        _print_planned(plan, console)
    if plan.left_out:
        _print_left_out(plan, console)
    calls_sbatch = any(site.scheduler == "slurm" for site in plan.sites.values())
    console.print(
        Text(
            f"{count_things(len(plan.cases), 'case')}, "
            f"{count_things(len(plan.groups), 'sbatch call' if calls_sbatch else 'group')}, "
            f"{count_things(plan.job_count, 'job')}, "
            f"{count_things(plan.array_task_count, 'array task')}, "
            f"at most {plan.node_hours:.1f} node-hours",
            style="bold",
        )
    )


def _print_left_out(plan: "Plan", console: PlainConsole) -> None:
    """Print each reason why cases were left out, with the number of cases and some case ids."""
    cases: dict[str, list[str]] = {}
    for left_out in plan.left_out:
        cases.setdefault(left_out.reason, []).append(left_out.case.case_id)
    console.print(Text("left out", style="bold"))
    for reason, names in cases.items():
        console.print(Text(f"  {count_things(len(names), 'case')}: {reason}"))
        console.print(Text(f"    {list_some(names)}", style="dim"))
    console.print()


def _print_planned(plan: "Plan", console: PlainConsole) -> None:
    """Print tables of the array jobs (groups) and of the cases of a plan."""
    print_table(
        ["group", "jobs", "array tasks", "nodes", "devices/node", "time limit (min)", "node-hours"],
        [
            [
                group.group_id,
                str(group.job_count),
                str(len(group.array_tasks)),
                str(group.topology.nodes),
                str(group.topology.devices_per_node),
                str(group.time_limit_minutes),
                f"{group.node_hours:.1f}",
            ]
            for group in plan.groups
        ],
        console,
        title="groups: one array job each",
    )
    is_listed = len(plan.cases) <= LISTED_CASES
    alike: dict[tuple[str, ...], list[str]] = {}
    for case in plan.cases:
        cells = (
            str(case.protocol.repeats),
            f"{case.protocol.warmup_steps} + {case.protocol.measured_steps}",
            f"{plan.compute_node_hours(case):.1f}",
        )
        key = case.case_id if is_listed else case.axes.topology
        alike.setdefault((key, *cells), []).append(case.case_id)
    print_table(
        ["case", "repeats", "steps", "node-hours"],
        [
            [names[0], *cells]
            if len(names) == 1
            else [f"{names[0]} and {len(names) - 1} more", *cells[:-1], f"{cells[-1]} each"]
            for (_, *cells), names in alike.items()
        ],
        console,
        title="cases, with warm-up + measured steps"
        + "; to list each case: --json" * (not is_listed),
    )


def show_table(table: "Table", console: PlainConsole) -> None:
    """Print a table with its caption."""
    shown = (table.heading, table.text_columns, table.omit_first)
    print_table(table.header, table.rows, console, *shown)
    console.print(Text(table.caption, style="dim"))


def print_footnotes(footnotes: Sequence[str], console: PlainConsole) -> None:
    """Print each footnote with its number on a line."""
    for number, text in enumerate(footnotes, start=1):
        console.print(Text(f"[{number}] {text}"))


class PrintedColumn(NamedTuple):
    """A column as texts; `number` is its place in the table.

    `is_text` columns are left-aligned; texts that `can_wrap` are broken between words.
    """

    number: int
    head: str
    texts: tuple[str, ...]
    is_text: bool
    can_wrap: bool

    @property
    def width(self) -> int:
        """The width of the header and texts without wrapping, in characters."""
        lines = (line for text in (self.head, *self.texts) for line in text.split("\n"))
        return max(map(measure, lines))

    @property
    def least_width(self) -> int:
        """The width below which words of a text column, or figures, would be broken."""
        if not self.can_wrap:
            return self.width
        words = max(map(measure, " ".join((self.head, *self.texts)).split()), default=1)
        return min(self.width, max(_LEAST_TEXT, min(words, _LONG_NAME)))

    def wrap_head(self) -> "PrintedColumn":
        """Return the column with its header wrapped to the width of its texts, or longest word."""
        width = max(self._replace(head="").width, *map(measure, [*self.head.split(), "."]))
        parts = (textwrap.wrap(p, width, break_on_hyphens=False) for p in self.head.split("\n"))
        return self._replace(head="\n".join(line for lines in parts for line in lines))


def list_columns(
    header: Sequence[str], rows: "Sequence[Sequence[Union[Cell, str]]]", text_columns: int
) -> list[PrintedColumn]:
    """Return the columns of a table as texts; the first `text_columns` are left-aligned."""
    texts = [[cell if isinstance(cell, str) else cell.write() for cell in row] for row in rows]
    cells = list(zip(*texts)) if texts else [()] * len(header)
    words = {
        i
        for row in rows
        for i, cell in enumerate(row)
        if not isinstance(cell, str) and cell.is_word
    }
    return [
        PrintedColumn(i, head, tuple(own), i < text_columns, i < text_columns or i in words)
        for i, (head, own) in enumerate(zip(header, cells))
    ]


def print_table(
    header: Sequence[str],
    rows: "Sequence[Sequence[Union[Cell, str]]]",
    console: PlainConsole,
    title: str = "",
    text_columns: Optional[int] = 1,
    omit_first: Sequence[int] = (),
) -> None:
    """Print a table; the first `text_columns` are left-aligned (None: all), the others right.

    If it is wider than the console, columns are left out and named in a line below: `omit_first`
    (indices, in order), then figures from the right, but not the first. Figures and words stay
    whole: long texts are wrapped between words, and names after hyphens, slashes and underscores.
    """
    count = len(header) if text_columns is None else text_columns
    columns = list_columns(header, rows, count)
    gap, shown, excess = _WIDE_GAP, columns, 0
    if sum_widths(column.width for column in columns) > console.width:
        gap, shown = _NARROW_GAP, [column.wrap_head() for column in columns]
        for number in dict.fromkeys([*omit_first, *reversed(range(count + 1, len(columns)))]):
            if sum_widths((column.least_width for column in shown), gap) > console.width:
                shown = [column for column in shown if column.number != number]
        excess = sum_widths((column.width for column in shown), gap) - console.width
        shown, excess = _break_names(shown, excess)
    if title:
        console.print(Text(title, style="bold"))
    _print_columns(shown, gap, excess, console)
    kept = {column.number for column in shown}
    omitted = ", ".join(column.head for column in columns if column.number not in kept)
    if omitted:
        text = f"columns left out: {omitted}"
        console.print(Text(textwrap.shorten(text, console.width, placeholder=" ..."), style="dim"))


def sum_widths(widths: Iterable[int], gap: int = _WIDE_GAP) -> int:
    """Return the width in characters of a table with these column widths, `gap` between columns."""
    found = [*widths]
    return sum(found) + gap * (len(found) - 1) + 2


def _break_names(columns: Sequence[PrintedColumn], excess: int) -> tuple[list[PrintedColumn], int]:
    """Break the names in the widest columns, to reduce the total width by `excess` characters.

    No column becomes narrower than _LEAST_TEXT. Only columns of texts without spaces, such as case
    ids and paths, are broken. Returns the columns, and by how much they are still too wide.
    """
    found = {column.number: column for column in columns}
    for column in sorted(columns, key=lambda column: -column.width):
        is_name = column.is_text and not any(" " in text for text in column.texts)
        if excess > 0 and is_name and column.width > _LEAST_TEXT:
            width = max(column.width - excess, _LEAST_TEXT)
            broken = column._replace(texts=tuple(_break_name(text, width) for text in column.texts))
            found[column.number] = broken
            excess -= column.width - broken.width
    return [*found.values()], excess


def _break_name(text: str, width: int) -> str:
    """Break a name after hyphens, slashes and underscores; lines have up to `width` characters."""
    lines = [""]
    for part in re.findall(r"[^-/_]*[-/_]|[^-/_]+", text):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _print_columns(
    columns: Sequence[PrintedColumn], gap: int, excess: int, console: PlainConsole
) -> None:
    """Print the columns side by side, with `gap` spaces between them and a line below the headers.

    `excess` is by how many characters they are together wider than the console.
    """
    widths = _narrow(columns, excess)
    console.print()
    for line in _align(columns, [column.head for column in columns], widths, gap, True):
        console.print(Text(line, style="bold"))
    rule = f" {'─' * (sum(widths) + gap * (len(widths) - 1))}"
    rows = zip(*(column.texts for column in columns))
    lines = [line for row in rows for line in _align(columns, row, widths, gap)]
    console.print("\n".join([rule, *lines, ""]))


def _narrow(columns: Sequence[PrintedColumn], excess: int) -> list[int]:
    """Return column widths that are together smaller than the natural ones by `excess`.

    The widest columns are narrowed first: of texts, then all to their longest word, then texts
    further, and last figures.
    """
    widths = [column.width for column in columns]
    if excess <= 0:
        return widths
    words = [max(map(measure, " ".join((c.head, *c.texts)).split()), default=1) for c in columns]
    for limits in (
        [column.least_width for column in columns],
        words,
        [1 if column.can_wrap else word for column, word in zip(columns, words)],
        [1] * len(columns),
    ):
        while excess > 0:
            wide = [i for i, limit in enumerate(limits) if widths[i] > limit]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
            excess -= 1
    return widths


def _align(
    columns: Sequence[PrintedColumn],
    row: Sequence[str],
    widths: Sequence[int],
    gap: int,
    is_header: bool = False,
) -> Iterator[str]:
    """Yield the lines of a row of cells, each padded to its width, `gap` spaces apart.

    Texts are left-aligned, figures right-aligned, and headers at the bottom of their row.
    """
    cells = [
        [part for line in text.split("\n") for part in wrap(line, width)]
        for text, width in zip(row, widths)
    ]
    height = max(map(len, cells), default=0)
    for number, cell in enumerate(cells):
        rest = [""] * (height - len(cell))
        cells[number] = rest + cell if is_header else cell + rest
    for line in zip(*cells):
        parts = []
        for column, text, width in zip(columns, line, widths):
            space = " " * (width - measure(text))
            parts.append(text + space if column.is_text else space + text)
        yield f" {(' ' * gap).join(parts)}".rstrip()
