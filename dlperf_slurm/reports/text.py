"""Tables -> rows of short texts, the same in every format that people read."""

from collections.abc import Sequence

from dlperf_slurm.summarize import Cell, Column, Summary, Table


def make_header(table: Table) -> list[str]:
    return ["framework", "topology", table.unit, "speedup", "efficiency", "TFLOP/s per device"]


def make_rows(table: Table) -> list[list[str]]:
    """One row per case of the matrix, as texts; never an empty cell."""
    return [
        [column.label, str(topology), *format_cell(cell)]
        for column in table.columns
        for topology, cell in zip(table.topologies, column.cells)
        if cell.case_id
    ]


def format_cell(cell: Cell) -> list[str]:
    """Throughput with its interval or range, then what follows from it; or the problem."""
    marks = "".join(f"[{number}]" for number in cell.footnotes)
    if cell.median is None:
        return [f"{cell.problem} {marks}".strip(), *[cell.problem] * 3]
    if cell.interval is not None:
        spread = f" ({cell.interval.low:.2f} to {cell.interval.high:.2f})"
    elif len(cell.samples_per_s) > 1:
        spread = f" {{{min(cell.samples_per_s):.2f} to {max(cell.samples_per_s):.2f}}}"
    else:
        spread = ""
    count = len(cell.samples_per_s)
    missing = f" n={count} of {cell.planned_repeats}" if count < cell.planned_repeats else ""
    return [
        f"{cell.median:.2f}{spread}{missing} {marks}".rstrip(),
        f"{cell.speedup:.2f}",
        f"{cell.efficiency:.1%}".replace("%", " %"),
        f"{cell.tflops_per_device:.3g}",
    ]


def describe_baselines(columns: Sequence[Column]) -> str:
    """Which topology the speedups of a table are relative to."""
    baselines = {str(column.baseline) for column in columns if column.baseline is not None}
    if not baselines:
        return "no case of this table was measured"
    if len(baselines) == 1:
        return f"speedup and weak-scaling efficiency against {min(baselines)}"
    each = (f"{c.label}: {c.baseline}" for c in columns if c.baseline is not None)
    return "speedup and weak-scaling efficiency against " + ", ".join(each)


def describe_run(summary: Summary) -> str:
    """One line under the title: which run, where, when, how much of it is there."""
    manifest = summary.manifest
    version = f"{manifest.tool_version} {manifest.tool_git}".strip()
    return (
        f"run {manifest.run_id}, site {manifest.site_name}, {manifest.created_at}, "
        f"dlperf_slurm {version}, {summary.ok_repeats} of {summary.planned_repeats} "
        "repeats measured"
    )


METHOD = (
    "Throughput: median over independent repeats of global batch size x measured steps / window "
    "of the slowest rank; in parentheses its 95 % interval. TFLOP/s: matrix products and "
    "convolutions of the model's definition, forward and backward, over the same time."
)
