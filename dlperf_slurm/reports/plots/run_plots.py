"""A run's results and step times -> the figures of its report, in the order of its tables."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Optional

from dlperf_slurm.reports.plots import Plot, is_drawn_for_page, make_names_unique, show_source
from dlperf_slurm.reports.plots.distribution import plot_distribution
from dlperf_slurm.reports.plots.latency import plot_latency
from dlperf_slurm.reports.plots.scaling import (
    list_measured,
    plot_efficiency,
    plot_speedup,
    plot_throughput,
)
from dlperf_slurm.reports.plots.steps import (
    ReadRepeat,
    list_case_steps,
    plot_ranks,
    plot_timeline,
)
from dlperf_slurm.reports.plots.style import import_drawing
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.tables import list_groups
from dlperf_slurm.reports.tables.inference import LATENCIES
from dlperf_slurm.reports.tables.training import THROUGHPUT
from dlperf_slurm.results.notes import DOUBT
from dlperf_slurm.results.process_pool import map_on_cores

# draws a figure; None if there is nothing to draw
Drawing = Callable[[], Optional[Plot]]

# drawing a figure takes 50 ms, starting a process 10 ms
WORTH_A_PROCESS = 2

# maximum number of cases per kind of figure, unless figures of all cases are requested
MOST_CASES = 6


def plot_run(summary: Summary, read: ReadRepeat, is_every_case: bool = False) -> list[Plot]:
    """Draw the figures of a run: for each table, and step times of cases.

    Step times in their order are drawn of cases with a warning about steps, those by rank of cases
    on the largest topologies, at most MOST_CASES each; both of all cases if `is_every_case`. Inside
    `draw_for_page`, only what the page shows is drawn. `read` reads the steps of a repeat.
    """
    drawings = [*_list_drawings(summary, read, is_every_case)]
    with _show_run(summary):
        if drawings:
            # before the processes start, so that each need not import it
            import_drawing()
        plots = map_on_cores(lambda drawing: drawing(), drawings, WORTH_A_PROCESS)
        return [*make_names_unique(plot for plot in plots if plot is not None)]


def draw_one_by_one(summary: Summary, read: ReadRepeat) -> Iterator[Plot]:
    """Yield the figures of `plot_run`, each drawn when it is asked for, in this process."""
    with _show_run(summary):
        plots = (drawing() for drawing in _list_drawings(summary, read))
        yield from make_names_unique(plot for plot in plots if plot is not None)


def _show_run(summary: Summary) -> AbstractContextManager[None]:
    """Return the context in which figures in files name the run and what it measured."""
    return show_source(summary.models, f"{summary.place}; run {summary.manifest.run_id}")


def _list_drawings(
    summary: Summary, read: ReadRepeat, is_every_case: bool = False
) -> Iterator[Drawing]:
    """Yield functions that draw the figures of `plot_run`, which has the same parameters."""
    yield from _list_table_drawings(summary)
    notes = summary.results.notes
    doubtful = [*notes.case_id[notes.scope == DOUBT].unique()][:MOST_CASES]
    # the case on the largest measured topology of each series of the throughput tables
    rows = list_measured(THROUGHPUT.rows(summary.results))
    largest = [*rows.drop_duplicates(["table", "column"], keep="last").index][:MOST_CASES]
    for steps in list_case_steps(summary.results, read):
        if is_every_case or steps.case_id in doubtful:
            yield partial(plot_timeline, steps)
        if is_every_case or steps.case_id in largest:
            yield partial(plot_ranks, steps)


def _list_table_drawings(summary: Summary) -> Iterator[Drawing]:
    """Yield functions that draw the figures of throughput and latency tables."""
    frames = summary.results.frames
    slowest = frames.slowest.groupby("case_id", sort=False, observed=True).seconds
    seconds = {case_id: own.tolist() for case_id, own in slowest}
    rates = frames.repeats.dropna(subset="samples_per_s").groupby("case_id").samples_per_s
    repeats = {case_id: own.tolist() for case_id, own in rates}
    for title, rows in list_groups(THROUGHPUT, summary.results):
        if not is_drawn_for_page():
            yield partial(plot_throughput, title, rows, repeats)
            yield partial(plot_speedup, title, rows)
            yield partial(plot_efficiency, title, rows)
        yield partial(plot_distribution, title, rows, seconds)
    for title, rows in list_groups(LATENCIES, summary.results):
        yield partial(plot_latency, title, rows)
