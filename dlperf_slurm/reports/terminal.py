"""Summary, plan and states -> tables on a terminal, by rich; plain text if piped."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional, Union

from rich import box
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.cells import Cell, Table, make_cell

if TYPE_CHECKING:
    from dlperf_slurm.jobs.plan import Plan
    from dlperf_slurm.reports.summarize import Summary

# terminals at least this wide show wide tables, such as a speedup for each latency
WIDE_COLUMNS = 160

# wider than any table, to measure its natural width
_UNLIMITED_COLUMNS = 10_000

# maximum number of case ids to print per reason of cases left out
_NAMED_CASES = 3

# minimum widths of name columns that are broken into lines: first choice, last resort
_LONG_NAME, _SHORT_NAME = 40, 16

# spaces between columns, one of which is rich's box
_WIDE_GAP, _NARROW_GAP, _LEAST_GAP = 3, 2, 1


def print_summary(summary: "Summary", console: Console) -> None:
    """Print all tables of a run with their footnotes."""
    # imported here, because most commands print no tables
    from dlperf_slurm.reports.summarize import tabulate_run

    console.print(Text(summary.manifest.title, style="bold"))
    console.print(Text(summary.description))
    print_banner(summary, console)
    for table in tabulate_run(summary, is_wide=console.width >= WIDE_COLUMNS):
        console.print()
        show_table(table, console)
    if summary.footnotes:
        console.print()
    print_footnotes(summary.footnotes, console)


def print_banner(summary: "Summary", console: Console) -> None:
    """Print the warning about other users of the machines, if any."""
    if summary.banner:
        console.print(Text(summary.banner, style="bold yellow"))


def print_plan(plan: "Plan", console: Console) -> None:
    """Print the groups and cases of a plan, the cases left out, and totals."""
    if plan.cases:
        _print_planned(plan, console)
    if plan.left_out:
        _print_left_out(plan, console)
    console.print(
        Text(
            f"{count_things(len(plan.cases), 'case')}, "
            f"{count_things(len(plan.groups), 'group')} (sbatch calls), "
            f"{count_things(plan.job_count, 'job')}, "
            f"{count_things(plan.array_task_count, 'array task')}, "
            f"at most {plan.node_hours:.1f} node-hours",
            style="bold",
        )
    )


def _print_left_out(plan: "Plan", console: Console) -> None:
    """Print each reason for cases left out, with the number of cases and some case ids."""
    cases: dict[str, list[str]] = {}
    for left_out in plan.left_out:
        cases.setdefault(left_out.reason, []).append(left_out.case.case_id)
    console.print(Text("left out", style="bold"))
    for reason, names in cases.items():
        count = "1 case" if len(names) == 1 else f"{len(names)} cases"
        more = f", and {len(names) - _NAMED_CASES} more" if len(names) > _NAMED_CASES else ""
        console.print(Text(f"  {count}: {reason}"))
        console.print(Text(f"    {', '.join(names[:_NAMED_CASES])}{more}", style="dim"))
    console.print()


def _print_planned(plan: "Plan", console: Console) -> None:
    """Print tables of the array jobs (groups) and of the cases of a plan."""
    print_table(
        ["group", "jobs", "array tasks", "nodes", "devices/node", "limit min", "node-hours"],
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
        title="array jobs, one sbatch each",
    )
    console.print()
    print_table(
        ["case", "repeats", "steps", "node-hours"],
        [
            [
                case.case_id,
                str(case.protocol.repeats),
                f"{case.protocol.warmup_steps} + {case.protocol.measured_steps}",
                f"{plan.compute_node_hours(case):.1f}",
            ]
            for case in plan.cases
        ],
        console,
        title="cases, with warm-up + measured steps",
    )
    console.print()


def show_table(table: Table, console: Console) -> None:
    """Print a table with its caption."""
    print_table(table.header, table.rows, console, table.title, table.text_columns)
    console.print(Text(table.caption, style="dim"))


def print_footnotes(footnotes: Sequence[str], console: Console) -> None:
    """Print each footnote with its number on a line."""
    for number, text in enumerate(footnotes, start=1):
        console.print(Text(f"[{number}] {text}"))


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[Union[Cell, str]]],
    console: Console,
    title: str = "",
    text_columns: Optional[int] = 1,
) -> None:
    """Print a table; the first `text_columns` are left-aligned (None: all), the others right.

    A table wider than the console gets intervals below their numbers and narrow gaps; then long
    names are broken after hyphens, slashes and underscores; if words still do not fit, the table is
    printed as a list.
    """
    texts = _write_rows(rows, " ")
    table = _make_table(header, texts, title, text_columns, _WIDE_GAP)
    width = _measure(table)
    if width.maximum > console.width:
        texts = _write_rows(rows, "\n")
        columns = zip(*texts) if texts else [()] * len(header)
        header = [_wrap_head(head, column) for head, column in zip(header, columns)]
        table = _make_table(header, texts, title, text_columns, _NARROW_GAP)
        width = _measure(table)
    if width.maximum > console.width:
        table = _make_table(header, texts, title, text_columns, _LEAST_GAP)
        width = _measure(table)
    broken = texts
    # wrap words before breaking names into short pieces
    for shortest, needs in ((_LONG_NAME, "maximum"), (_SHORT_NAME, "minimum")):
        excess = getattr(width, needs) - console.width
        if excess > 0:
            broken = _break_names(texts, excess, shortest)
            table = _make_table(header, broken, title, text_columns, _LEAST_GAP)
            width = _measure(table)
    if width.minimum <= console.width:
        console.print(table)
    else:
        _print_list(header, texts, console, title)


def _write_rows(rows: Sequence[Sequence[Union[Cell, str]]], gap: str) -> list[list[str]]:
    """Format cells as text; `gap` separates numbers from their bounds."""
    return [[make_cell(cell).write(gap) for cell in row] for row in rows]


def _break_names(rows: Sequence[Sequence[str]], excess: int, shortest: int) -> list[list[str]]:
    """Break the names in the widest columns, to reduce the total width by `excess` characters.

    No column becomes narrower than `shortest`, so that the reduction may be less. Only columns
    without spaces, such as case ids and paths, are broken.
    """
    columns = [list(column) for column in zip(*rows)]
    widths = [max(map(len, column)) for column in columns]
    for index in sorted(range(len(columns)), key=lambda index: -widths[index]):
        column = columns[index]
        if excess > 0 and widths[index] > shortest and not any(" " in text for text in column):
            width = max(widths[index] - excess, shortest)
            columns[index] = [_break_name(text, width) for text in column]
            lines = (line for text in columns[index] for line in text.splitlines())
            excess -= widths[index] - max(map(len, lines))
    return [list(row) for row in zip(*columns)]


def _break_name(text: str, width: int) -> str:
    """Break a name after hyphens, slashes and underscores; lines have up to `width` characters."""
    lines = [""]
    for part in re.findall(r"[^-/_]*[-/_]|[^-/_]+", text):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _wrap_head(head: str, column: Iterable[str]) -> str:
    """Wrap a header to the width of the texts in its column, or of its own longest word."""
    lines = [line for text in column for line in text.splitlines()]
    width = max(map(len, [*lines, *head.split(), "."]))
    return "\n".join(textwrap.wrap(head, width, break_on_hyphens=False)) or head


def _measure(table: RichTable) -> Measurement:
    """Measure the minimum and the natural width of a table, in characters."""
    # without a height rich assumes 80 columns on an unknown terminal
    console = Console(width=_UNLIMITED_COLUMNS, height=25)
    return Measurement.get(console, console.options, table)


def _print_list(
    header: Sequence[str], rows: Sequence[Sequence[str]], console: Console, title: str
) -> None:
    """Print each row as a block with one line per cell."""
    if title:
        console.print(Text(title, style="bold"))
    names = [head.replace("\n", " ") for head in header]
    for row in rows:
        console.print()
        for name, text in zip(names, row):
            cell = Text(text.replace("\n", " "), overflow="fold")
            console.print(Text(f"{name}: ").append(cell))
    console.print()


def _make_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    text_columns: Optional[int],
    gap: int,
) -> RichTable:
    """Make a rich table; `gap` is the number of spaces between columns."""
    table = RichTable(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=0 if gap == _LEAST_GAP else (0, 1),
        collapse_padding=gap == _NARROW_GAP,
    )
    for index, head in enumerate(header):
        # fold text that does not fit: by default rich cuts it and prints an ellipsis
        is_text = text_columns is None or index < text_columns
        justify: JustifyMethod = "left" if is_text else "right"
        # rich narrows the widest column first and would cut words without spaces
        has_words = any(" " in line for row in rows for line in row[index].splitlines())
        table.add_column(Text(head), justify=justify, overflow="fold", no_wrap=not has_words)
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    return table
