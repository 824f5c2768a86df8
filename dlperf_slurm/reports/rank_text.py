"""Rank tables -> grids: who was slow in each case, and how long the steps of single ranks took."""

from dlperf_slurm.reports.tables.ranks import STEP_PERCENTILES, RankRow, RankTable, RankTimes
from dlperf_slurm.reports.text import Grid, mark_footnotes

# as many as one would look at
SHOWN_SLOW_RANKS = 3


def make_rank_grid(table: RankTable) -> Grid:
    """One row per case of several ranks."""
    return Grid(
        title="ranks",
        header=("case", "slowest rank", "slowest in", "imbalance", "waiting"),
        rows=tuple(_format_rank_row(row) for row in table.rows),
        text_columns=2,
        caption="imbalance: the slowest rank's median step over the median rank's; waiting: 1 - "
        "mean over ranks / slowest rank, averaged over steps; medians over repeats. Ranks that "
        "meet within a step, as in an all-reduce, wait there: there may be more of both",
    )


def _format_rank_row(row: RankRow) -> tuple[str, ...]:
    slowest = row.ranks[0]
    waiting = "none" if row.waiting_share is None else f"{100 * row.waiting_share:.1f} %"
    return (
        row.case_id,
        f"{_name_rank(slowest)} on {slowest.host} {mark_footnotes(row.footnotes)}".rstrip(),
        f"{slowest.slowest_repeats} of {slowest.repeats}",
        f"{row.imbalance:.3f}",
        waiting,
    )


def _name_rank(times: RankTimes) -> str:
    """The device of one host had these ranks in different repeats."""
    return " or ".join(map(str, times.ranks))


def make_rank_times_grid(table: RankTable) -> Grid:
    """The slowest ranks of each case and the fastest, with percentiles of their steps."""
    rows = [
        (
            row.case_id,
            _name_rank(times),
            times.host,
            times.device_name,
            f"{times.slowest_repeats} of {times.repeats}",
            f"{times.slowness:.3f}",
            *(f"{1000 * seconds:.2f}" for seconds in times.step_seconds),
        )
        for row in table.rows
        for times in (*row.ranks[:-1][:SHOWN_SLOW_RANKS], row.ranks[-1])
    ]
    return Grid(
        title="step times by rank",
        header=(
            "case",
            "rank",
            "host",
            "device",
            "slowest in",
            "of the median rank",
            *(f"{percent} % ms" for percent in STEP_PERCENTILES),
        ),
        rows=tuple(rows),
        text_columns=4,
        caption=f"up to {SHOWN_SLOW_RANKS} slowest ranks of each case and the fastest; "
        "percentiles of the steps of all repeats. The JSON report has every rank",
        has_marks=False,
    )
