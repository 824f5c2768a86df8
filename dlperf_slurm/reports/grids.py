"""Summary -> the grids of all its tables, in the order of a report."""

from collections.abc import Iterator

from dlperf_slurm.reports.accuracy_text import make_accuracy_grid
from dlperf_slurm.reports.data_text import make_data_grid
from dlperf_slurm.reports.rank_text import make_rank_grid, make_rank_times_grid
from dlperf_slurm.reports.resource_text import make_resource_grid
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.text import (
    Grid,
    make_against_grid,
    make_latency_grid,
    make_precision_grid,
    make_throughput_grid,
)


def make_grids(summary: Summary, is_wide: bool = True) -> Iterator[Grid]:
    """All tables of a run; not wide they leave out what is least missed.

    These are the intervals of efficiencies, which are those of speedups per device, the speedups of
    latencies, and the step times by rank.
    """
    for throughput in summary.throughput_tables:
        yield make_throughput_grid(throughput, is_wide)
    for precision in summary.precision_tables:
        yield make_precision_grid(precision)
    for data in summary.data_tables:
        yield make_data_grid(data)
    for accuracy in summary.accuracy_tables:
        yield make_accuracy_grid(accuracy)
    for latency in summary.latency_tables:
        yield make_latency_grid(latency, is_wide)
    for against in summary.against_tables:
        yield make_against_grid(against)
    for resources in summary.resource_tables:
        yield make_resource_grid(resources)
    for ranks in summary.rank_tables:
        yield make_rank_grid(ranks)
        if is_wide:
            yield make_rank_times_grid(ranks)
