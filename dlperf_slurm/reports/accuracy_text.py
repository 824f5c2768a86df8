"""Accuracy tables -> grids, with NVIDIA's figures: average, deviation, extremes, time to train."""

import re
from typing import Optional

from dlperf_slurm.reports.tables.accuracy import AccuracyRow, AccuracyTable
from dlperf_slurm.reports.text import Grid, format_ratio, mark_footnotes

_UNIT_SECONDS = {"h": 3600, "min": 60, "s": 1}
_PART = r"([0-9]+(?:\.[0-9]+)?) (h|min|s)"


def make_accuracy_grid(table: AccuracyTable) -> Grid:
    """One row per case."""
    has_speedup = bool(table.reference_precision) and len({r.precision for r in table.rows}) > 1
    speedup = [f"speedup over {table.reference_precision}"] if has_speedup else []
    reached = [f"reached {100 * table.target:g} %"] if table.target else []
    return Grid(
        title=table.title,
        header=(
            *("framework", "precision", "topology", "batch size", "seeds", "average top-1 %"),
            *("deviation", "minimum", "maximum"),
            *("epochs", *reached, "time to train", *speedup),
        ),
        rows=tuple(_format_row(row, bool(reached), has_speedup) for row in table.rows),
        text_columns=3,
        caption="top-1 after the last epoch, one value per seed; standard deviation (n - 1) in "
        "percentage points; time to train with the validations, median over seeds",
    )


def _format_row(row: AccuracyRow, has_target: bool, has_speedup: bool) -> tuple[str, ...]:
    words = (row.label, row.precision, row.topology, row.batch_size)
    marks = mark_footnotes(row.footnotes)
    if row.average is None:
        blank = [row.problem] * (6 + has_target + has_speedup)
        return (*words, f"{row.problem} {marks}".rstrip(), *blank)
    count = len(row.top1)
    seeds = str(count) if count == row.planned_seeds else f"{count} of {row.planned_seeds}"
    return (
        *words,
        f"{seeds} {marks}".rstrip(),
        f"{100 * row.average:.3f}",
        "one seed" if row.deviation is None else f"{100 * row.deviation:.3f}",
        f"{100 * min(row.top1):.3f}",
        f"{100 * max(row.top1):.3f}",
        f"{row.epochs:g}",
        *([f"{row.reached} of {count}"] if has_target else []),
        format_duration(row.train_seconds),
        *([format_ratio(row.speedup, row.speedup_interval)] if has_speedup else []),
    )


def format_duration(seconds: Optional[float]) -> str:
    """As short as it is precise: "42.1 s", "12 min 3 s", "8 h 45 min"."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def read_duration(text: str) -> Optional[float]:
    """Seconds of what `format_duration` wrote; None for any other text."""
    if re.fullmatch(f"{_PART}(?: {_PART})*", text) is None:
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(_PART, text))
