"""A frame of cases -> where the time goes before steps are measured, by framework and topology."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.phases import MEANINGS, TO_FIRST_STEP, WARMUP
from dlperf_slurm.reports.cells import COUNT, UNKNOWN, Column, Number, Table, tabulate
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.starts import QUEUE, QUEUE_MEANING, Start, unite_starts

if TYPE_CHECKING:
    from pandas import DataFrame

SECONDS = Number(".1f")
TITLE = "from the submission to the first step, in seconds"


@dataclass(frozen=True)
class StartRow:
    """The cases of one framework on one topology of which the start is known."""

    framework: str
    topology: str
    cases: int
    start: Start


@dataclass(frozen=True)
class StartTable:
    """The frameworks of a run, on each of its topologies."""

    rows: tuple[StartRow, ...]


def make_start_tables(frame: "DataFrame") -> tuple[StartTable, ...]:
    """One table, in the order of the matrix; none where no record tells how its start went."""
    known = frame[frame.start.map(lambda start: bool(start.seconds)).astype(bool)]
    rows = []
    for (framework, topology), cases in known.groupby(["framework", "topology"], sort=False):
        starts = [row.start for row in list_rows(cases)]
        rows.append(StartRow(framework, topology, len(starts), unite_starts(starts)))
    return (StartTable(tuple(rows)),) if rows else ()


def tabulate_starts(table: StartTable) -> Table:
    """A column for each phase up to the first step, their sum, and the rest of the warm-up.

    Phases that no row knows are left out.
    """
    words: list[Column[StartRow]] = [
        Column("framework", lambda row: row.framework),
        Column("topology", lambda row: row.topology),
    ]
    shown = [
        name
        for name in (QUEUE, *TO_FIRST_STEP)
        if any(name in row.start.seconds for row in table.rows)
    ]
    figures: list[Column[StartRow]] = [
        Column("cases", lambda row: row.cases, COUNT),
        *(_show_phase(name) for name in shown),
        Column("script to first step", lambda row: row.start.to_first_step_seconds, SECONDS),
        _show_phase(WARMUP),
    ]
    meanings = {QUEUE: QUEUE_MEANING, **MEANINGS}
    told = "; ".join(f"{name.replace('_', ' ')}: {meanings[name]}" for name in shown)
    caption = f"rank 0, medians over repeats, then over cases. {told}; warmup: {MEANINGS[WARMUP]}"
    return tabulate(TITLE, words, figures, table.rows, caption)


def _show_phase(name: str) -> Column[StartRow]:
    return Column(name.replace("_", " "), partial(_find_seconds, name), SECONDS, UNKNOWN)


def _find_seconds(name: str, row: StartRow) -> Optional[float]:
    return row.start.seconds.get(name)
