"""Repeats -> figures of a case's step times: a strip per repeat, and a heat map by rank."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.record import RankResult
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import HEADROOM, is_wide_range, set_log_scale
from dlperf_slurm.reports.plots.style import (
    HEAT_COLORS,
    INK,
    MUTED,
    SERIES_COLORS,
    WIDTH_INCHES,
    add_legend,
    find_legend_inches,
    mark_series,
    open_figure,
)
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.collect import Outcome
from dlperf_slurm.stats.step_times import STALL_FACTOR, find_slow_stretch, list_stalls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# more ranks are shown as a band from the fastest to the slowest
MOST_RANKS = 8
# of more repeats only the first are shown
MOST_REPEATS = 7
# markers on the line of a rank
MARKS_PER_LINE = 5
# not a marker of any rank
STALL_MARK = "*"

STRIP_INCHES = 0.55
# characters of a strip's title at full font size
LONGEST_TITLE = 48
# space above a strip for its title
GAP_INCHES = 0.25
# margins for tick labels and axis labels
BOTTOM_INCHES = 0.55
LEFT_INCHES = 0.75

# of more rows only the first of each host is labelled
MOST_NAMES = 16
# upper end of the colour scale; slower steps have the last colour
SCALE_PERCENTILE = 99


# reads a repeat by case id and repeat number
ReadRepeat = Callable[[str, int], Outcome]


@dataclass(frozen=True)
class CaseSteps:
    """The repeats of a case that have step times: `repeats` has their throughputs by number.

    `read` reads the step times of a repeat to draw, and raises InputError if files changed since
    the report began.
    """

    case_id: str
    repeats: Mapping[int, float]
    read: ReadRepeat

    @property
    def shown(self) -> list[Outcome]:
        """The first MOST_REPEATS repeats, which are read from their files."""
        return [self._load(repeat) for repeat in [*self.repeats][:MOST_REPEATS]]

    @property
    def middle(self) -> Outcome:
        """The repeat of median throughput; of two such the slower one."""
        ordered = sorted(self.repeats, key=lambda repeat: (self.repeats[repeat], repeat))
        return self._load(ordered[(len(ordered) - 1) // 2])

    def _load(self, repeat: int) -> Outcome:
        """Read a repeat with its step times by its number."""
        outcome = self.read(self.case_id, repeat)
        if outcome.record is None or outcome.rank_step_seconds is None:
            text = f"{self.case_id}: repeat {repeat} changed while the report was made"
            raise InputError(f"{text}; run the command again")
        return outcome


def list_case_steps(results: Results, read: ReadRepeat) -> list[CaseSteps]:
    """List the cases that have step times, which `read` reads; imported logs have none."""
    repeats = results.frames.repeats
    timed = repeats[repeats.has_steps.fillna(False)]
    return [
        CaseSteps(case_id, dict(zip(own.repeat.tolist(), own.samples_per_s.tolist())), read)
        for case_id, own in timed.groupby("case_id", sort=False)
    ]


def plot_timeline(case: CaseSteps) -> Plot:
    """Plot the step times of a case in their order, with a strip (panel) per repeat."""
    shown = case.shown
    ranks = len(shown[0].rank_step_seconds)
    what = (
        "the slowest rank, with the range of all ranks" if ranks > MOST_RANKS else "a line per rank"
    )
    repeats = f"the first {len(shown)} of {len(case.repeats)} repeats"
    if len(shown) == len(case.repeats):
        repeats = "1 repeat" if len(shown) == 1 else f"all {len(shown)} repeats"
    if ranks == 1:
        what = "the only rank"
    caption = (
        f"Step time over step number, {repeats}; {what}. Grey dashes: median of the repeat. "
        f"Stars: stalls, which are steps over {STALL_FACTOR:.0f} times the median."
    )
    return make_plot(
        "steps", case.case_id, "Step times in their order", caption, lambda: draw_timeline(shown)
    )


def draw_timeline(repeats: Sequence[Outcome]) -> "Figure":
    """Draw the step times of repeats with the same ranks, in strips that share both axes."""
    ranks = _list_ranks(repeats[0])
    names = [f"rank {one.rank}" for one in ranks] if 1 < len(ranks) <= MOST_RANKS else []
    figure = open_strips(len(repeats), find_legend_inches(WIDTH_INCHES, names))
    strips = figure.axes
    for axes, repeat in zip(strips, repeats):
        _draw_strip(axes, repeat)
    for axes in strips[:-1]:
        axes.xaxis.set_visible(False)
    times = [repeat.rank_step_seconds for repeat in repeats]
    values = [1000 * float(value) for own in times for value in (own.min(), own.max())]
    if is_wide_range(values):
        set_log_scale(strips[0], "y")
    else:
        strips[0].set_ylim(0, HEADROOM * max(values))
    strips[-1].set_xlabel("measured step")
    figure.supylabel("step time, ms (lower: faster)", x=0.01)
    if names:
        add_legend(figure, dict(zip(names, strips[0].get_lines())))
    return figure


def open_strips(count: int, head_inches: float) -> "Figure":
    """Open a figure with `count` empty strips below a legend of `head_inches`.

    They are placed by hand, because automatic layout is slow.
    """
    height = head_inches + BOTTOM_INCHES + count * (STRIP_INCHES + GAP_INCHES)
    figure = open_figure(WIDTH_INCHES, height, is_by_hand=True)
    figure.subplots(count, 1, sharex=True, sharey=True, squeeze=False)
    figure.subplots_adjust(
        left=LEFT_INCHES / WIDTH_INCHES,
        right=0.96,
        bottom=BOTTOM_INCHES / height,
        top=1 - (head_inches + GAP_INCHES) / height,
        hspace=GAP_INCHES / STRIP_INCHES,
    )
    return figure


def _draw_strip(axes: "Axes", repeat: Outcome) -> None:
    """Draw the step times of a repeat: a line per rank, or a band of many; stars for stalls."""
    ranks, steps = repeat.rank_step_seconds.shape
    numbers = range(1, steps + 1)
    slowest = [1000 * seconds for seconds in repeat.step_seconds]
    if ranks > MOST_RANKS:
        fastest = 1000 * repeat.rank_step_seconds.min(axis=0)
        axes.fill_between(numbers, fastest, slowest, color=SERIES_COLORS[5], alpha=0.5, linewidth=0)
        axes.plot(numbers, slowest, color=SERIES_COLORS[0], linewidth=0.9)
    else:
        for row, seconds in enumerate(repeat.rank_step_seconds):
            look = {**mark_series(row), "markevery": _place_marks(row, steps), "markersize": 3.5}
            axes.plot(numbers, 1000 * seconds, linewidth=0.9, **look)
    median = statistics.median(slowest)
    axes.axhline(median, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    stalls = list_stalls(slowest)
    axes.plot(
        [number + 1 for number in stalls], [slowest[number] for number in stalls],
        STALL_MARK, color=INK, markersize=7,
    )  # fmt: skip
    text = _describe(repeat, slowest, len(stalls))
    # a longer title would be cut off
    axes.set_title(text, fontsize=9 if len(text) <= LONGEST_TITLE else 7.5, pad=2)
    axes.margins(x=0.01)


def _place_marks(row: int, steps: int) -> list[int]:
    """Return the step indices of a line's markers, shifted by `row` so that none overlap."""
    gap = steps / MARKS_PER_LINE
    return sorted({int((mark + (row + 0.5) / MOST_RANKS) * gap) for mark in range(MARKS_PER_LINE)})


def _describe(repeat: Outcome, slowest: Sequence[float], stalls: int) -> str:
    """Describe a repeat's median step, slow stretch and stalls, as the title of its strip.

    `slowest` has the slowest rank's time of each step in ms; `stalls` counts the stalls.
    """
    texts = [f"repeat {repeat.repeat}", f"median {statistics.median(slowest):.3g} ms"]
    stretch = find_slow_stretch(slowest)
    if stretch:
        excess = f"{100 * stretch.excess:.0f} % slower"
        texts.append(f"steps {stretch.start + 1} to {stretch.end}: {excess}")
    if stalls:
        texts.append("1 stall" if stalls == 1 else f"{stalls} stalls")
    return ", ".join(texts)


def plot_ranks(case: CaseSteps) -> Optional[Plot]:
    """Plot ranks' step times in the median-throughput repeat as a heat map; None for one rank."""
    repeat = case.middle
    if len(repeat.rank_step_seconds) < 2:
        return None
    caption = (
        f"Step time of each rank in repeat {repeat.repeat} of {len(case.repeats)}, the one with "
        f"the median throughput. The colour scale ends at the {SCALE_PERCENTILE} % quantile of the "
        "step times."
    )
    return make_plot(
        "ranks", case.case_id, "Step times by rank", caption, lambda: _draw_ranks(repeat)
    )


def _draw_ranks(repeat: Outcome) -> "Figure":
    """Draw the step times [ranks, steps] of a repeat as a heat map."""
    import numpy

    milliseconds: Any = 1000 * repeat.rank_step_seconds
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


def list_row_names(repeat: Outcome) -> list[tuple[int, str]]:
    """List (row, label) of the heat map's rows that get a label: "3 on node01" (rank, host).

    Each row, or with more than MOST_NAMES the first of each host; [] if these are still too many.
    """
    ranks = _list_ranks(repeat)
    rows = list(range(len(ranks)))
    if len(rows) > MOST_NAMES:
        rows = [row for row in rows if row == 0 or ranks[row].host != ranks[row - 1].host]
    if len(rows) > MOST_NAMES:
        return []
    return [(row, f"{ranks[row].rank} on {ranks[row].host}") for row in rows]


def _list_ranks(repeat: Outcome) -> Sequence[RankResult]:
    return repeat.record.ranks if repeat.record else ()
