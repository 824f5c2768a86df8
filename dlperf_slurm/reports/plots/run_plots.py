"""A run's tables and step times -> the figures of its report, in the tables' order."""

from collections.abc import Iterator, Sequence

from dlperf_slurm.reports.plots import Plot, name_apart
from dlperf_slurm.reports.plots.distribution import plot_distribution
from dlperf_slurm.reports.plots.latency import plot_latency
from dlperf_slurm.reports.plots.scaling import plot_efficiency, plot_speedup, plot_throughput
from dlperf_slurm.reports.plots.steps import (
    list_case_steps,
    list_doubtful,
    plot_ranks,
    plot_timeline,
)
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.collect import CaseOutcomes

# that are shown of a kind, where not all are asked for
MOST_CASES = 6


def plot_run(
    summary: Summary, cases: Sequence[CaseOutcomes], is_every_case: bool = False
) -> list[Plot]:
    """Figures of the tables, then of steps and ranks: of every case, or of those worth a look.

    These are, for steps, the cases that have a footnote on them, and for ranks the largest
    topologies.
    """
    plots = list(_plot_tables(summary, cases))
    doubtful, largest = list_doubtful(cases)[:MOST_CASES], list_largest(summary)[:MOST_CASES]
    for steps in list_case_steps(cases):
        if is_every_case or steps.case_id in doubtful:
            plots.append(plot_timeline(steps))
        ranks = plot_ranks(steps) if is_every_case or steps.case_id in largest else None
        if ranks is not None:
            plots.append(ranks)
    return name_apart(plots)


def _plot_tables(summary: Summary, cases: Sequence[CaseOutcomes]) -> Iterator[Plot]:
    seconds = {
        c.case.case_id: [s for outcome in c.outcomes for s in outcome.step_seconds] for c in cases
    }
    for table in summary.throughput_tables:
        drawn = (
            plot_throughput(table),
            plot_speedup(table),
            plot_efficiency(table),
            plot_distribution(table, seconds),
        )
        yield from (plot for plot in drawn if plot is not None)
    for latency in summary.latency_tables:
        plot = plot_latency(latency)
        if plot is not None:
            yield plot


def list_largest(summary: Summary) -> list[str]:
    """Ids of the cases on the largest topology that was measured, one per column of a table."""
    columns = (column for table in summary.throughput_tables for column in table.columns)
    return [column.measured[-1].case_id for column in columns if column.measured]
