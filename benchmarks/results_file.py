"""Rows of all benchmarks, and the machine that measured them <-> the Markdown of RESULTS.md."""

from collections.abc import Mapping, Sequence
from typing import Optional

from rows import Row

# titles of the parts, in order; `PrintedRow.part` is the key
TITLES = {
    1: "Files: nothing per task before it runs",
    2: "Plan and render",
    3: "Start-up",
    4: "Status and tracking",
    5: "Aggregation",
    6: "Beyond one machine",
    7: "Gather",
    8: "Cost of measuring",
    9: "From sbatch to the first step",
}
HEAD = """\
# Results of `make bench`

Made by one run of it. CPU seconds are user and system, of a process and of all that it starts.
A target is the most that a figure, or its ratio to the peer's, may be.
"""
COLUMNS = ("what", "measured", "target", "peer", "ratio", "met", "command")
# the share by which figures of a shared machine differ without a cause
NOISE = 0.15
VERDICTS = {True: "yes", False: "**no**", None: ""}


def write_results(
    rows: Sequence[Row], machine: Mapping[str, str], failures: Mapping[str, str]
) -> str:
    """Return the document; `failures` are the benchmarks without rows, and why."""
    lines = [HEAD, *make_table(("", ""), list(machine.items())), ""]
    missed = [row for row in rows if row.is_met is False]
    met = sum(row.is_met is True for row in rows)
    lines += [f"{met} targets met, {len(missed)} missed.", ""]
    if failures:
        lines += [
            "## Benchmarks without figures",
            "",
            *make_table(("benchmark", "why"), [*failures.items()]),
        ]
        lines += [""]
    for part, title in TITLES.items():
        of_part = [row for row in rows if row.part == part]
        lines += [f"## {part}. {title}", "", *write_part(of_part), ""]
    return "\n".join(lines)


def list_slower(rows: Sequence[Row], before: str) -> list[str]:
    """List the rows that are above their figure in an earlier document by more than NOISE.

    The ratio to a peer is compared if both have one, as it depends less on the machine and its
    load. Rows of another name, such as those of another size, are not compared.
    """
    earlier = {(cells[0], cells[3].partition(":")[0]): cells for cells in _read_cells(before)}
    lines = []
    for row in rows:
        now = list_cells(row)
        then = earlier.get((row.name, row.peer))
        place = 4 if then and now[4] and then[4] else 1
        old, new = (_read_number(cells[place]) if cells else None for cells in (then, now))
        if old is not None and new is not None and new > old * (1 + NOISE):
            lines.append(f"slower: {row.name}: {new:g}, was {old:g} ({COLUMNS[place]})")
    return lines


def _read_cells(text: str) -> list[list[str]]:
    """Read the rows of all tables with COLUMNS from the document."""
    lines = (line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| "))
    return [cells for cells in lines if len(cells) == len(COLUMNS)]


def _read_number(cell: str) -> Optional[float]:
    """Return the number at the beginning of a cell; None if there is none."""
    try:
        return float(cell.partition(" ")[0].replace(",", ""))
    except ValueError:
        return None


def write_part(rows: Sequence[Row]) -> list[str]:
    """Return the table of a part, followed by reasons for missed targets and missing figures."""
    if not rows:
        return ["No benchmark gave a row."]
    lines = make_table(COLUMNS, [list_cells(row) for row in rows])
    reasons = [f"- {row.name}: missed. {row.why_missed}" for row in rows if row.is_met is False]
    reasons += [f"- {row.name}: not measured. {row.problem}" for row in rows if row.problem]
    return [*lines, *([""] if reasons else []), *reasons]


def list_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of COLUMNS."""
    peer = format_figure(row.peer_measured, row.unit)
    limits = [format_figure(row.target, row.unit)] if row.target is not None else []
    if row.target_ratio is not None:
        limits.append(f"{format_number(row.target_ratio)} x {row.peer}")
    return (
        row.name,
        format_figure(row.measured, row.unit),
        " and ".join(limits),
        f"{row.peer}: {peer or '?'}" if row.peer else "",
        "" if row.ratio is None else format_number(row.ratio),
        VERDICTS[row.is_met],
        f"`{row.command}`",
    )


def format_figure(value: Optional[float], unit: str) -> str:
    """Format a figure with its unit, or '' for None."""
    return "" if value is None else f"{format_number(value)} {unit}".strip()


def format_number(value: float) -> str:
    """Format a number with three significant digits, or all digits before the point."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def make_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *cells]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
