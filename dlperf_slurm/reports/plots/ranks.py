"""Step times of a case -> a heat map of ranks x steps, of the repeat in the middle."""

from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.case_steps import CaseSteps, RepeatSteps
from dlperf_slurm.reports.plots.style import HEAT_COLORS, WIDTH_INCHES, open_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# more rows than these have no room for a name each: then the first of each host has one
MOST_NAMES = 16
# of the steps; what is slower than the rest shows at the end of the scale
SCALE_PERCENTILE = 99


def plot_ranks(case: CaseSteps) -> Optional[Plot]:
    """None for a case of one rank."""
    repeat = case.middle
    if len(repeat.seconds) < 2:
        return None
    caption = (
        f"Step time of each rank in repeat {repeat.repeat} of {len(case.repeats)}, the one of "
        f"median throughput. The scale ends at the {SCALE_PERCENTILE} % quantile."
    )
    return make_plot("ranks", case.case_id, "Step times by rank", caption, lambda: _draw(repeat))


def _draw(repeat: RepeatSteps) -> "Figure":
    import numpy

    milliseconds: Any = 1000 * repeat.seconds
    ranks, steps = milliseconds.shape
    figure = open_figure(WIDTH_INCHES, 1.3 + min(0.24 * ranks, 4.0))
    axes = figure.add_subplot()
    image = axes.imshow(
        milliseconds,
        cmap=HEAT_COLORS,
        aspect="auto",
        interpolation="nearest",
        vmin=milliseconds.min(),
        vmax=numpy.percentile(milliseconds, SCALE_PERCENTILE),
        extent=(0.5, steps + 0.5, ranks - 0.5, -0.5),
    )
    axes.grid(False)
    axes.set_xlabel("measured step")
    axes.set_ylabel("rank")
    names = list_row_names(repeat)
    if names:
        axes.set_yticks([row for row, _ in names], [name for _, name in names])
    bar = figure.colorbar(image, extend="max", label="step time, ms", location="top", shrink=0.6)
    bar.outline.set_visible(False)
    return figure


def list_row_names(repeat: RepeatSteps) -> list[tuple[int, str]]:
    """Rows with their names: all, or the first of each host, or none where these are too many."""
    rows = list(range(len(repeat.hosts)))
    if len(rows) > MOST_NAMES:
        rows = [row for row in rows if row == 0 or repeat.hosts[row] != repeat.hosts[row - 1]]
    if len(rows) > MOST_NAMES:
        return []
    return [(row, f"{repeat.ranks[row]} on {repeat.hosts[row]}") for row in rows]
