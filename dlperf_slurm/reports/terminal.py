"""Summary, plan and states -> tables on a terminal, through rich; plain text when piped."""

from collections.abc import Sequence
from typing import Optional

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from dlperf_slurm.plan import Plan
from dlperf_slurm.reports.text import describe_run, make_grids
from dlperf_slurm.summarize import Summary

# from here on there is room for a speedup beside each latency
WIDE_COLUMNS = 160


def print_summary(summary: Summary, console: Console) -> None:
    """All tables of a run with their footnotes."""
    console.print(Text(summary.manifest.title, style="bold"))
    console.print(Text(describe_run(summary)))
    for grid in make_grids(summary, is_wide=console.width >= WIDE_COLUMNS):
        console.print()
        print_table(grid.header, grid.rows, console, grid.title, grid.text_columns)
        console.print(Text(grid.caption, style="dim"))
    if summary.footnotes:
        console.print()
    for number, text in enumerate(summary.footnotes, start=1):
        console.print(Text(f"[{number}] {text}"))


def print_plan(plan: Plan, console: Console) -> None:
    """Groups, then cases, then what is left out; totals last."""
    print_table(
        ["group", "array tasks", "nodes", "devices/node", "limit min", "node-hours"],
        [
            [
                group.group_id,
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
                f"{plan.find_node_hours(case):.1f}",
            ]
            for case in plan.cases
        ],
        console,
        title="cases, with warm-up + measured steps",
    )
    if plan.left_out:
        console.print()
        rows = [[left_out.case.case_id, left_out.reason] for left_out in plan.left_out]
        print_table(["case", "why"], rows, console, title="left out", text_columns=None)
    console.print()
    console.print(
        Text(
            f"{len(plan.cases)} cases, {len(plan.groups)} groups (sbatch calls), "
            f"{plan.array_task_count} array tasks, at most {plan.node_hours:.1f} node-hours",
            style="bold",
        )
    )


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    console: Console,
    title: str = "",
    text_columns: Optional[int] = 1,
) -> None:
    """A table whose first columns are text; the others, if any, are figures and flush right."""
    table = RichTable(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for index, head in enumerate(header):
        # folded where it does not fit: rich would cut it and print an ellipsis
        is_text = text_columns is None or index < text_columns
        justify: JustifyMethod = "left" if is_text else "right"
        table.add_column(Text(head), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    console.print(table)
