"""Style of all figures; a figure -> reproducible SVG, PDF and PNG.

This is the only module that configures matplotlib. The colours are safe for colour-blind readers;
markers and line styles distinguish series in grey prints.
"""

import io
import math
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colours that the HTML page replaces in an SVG by its own
INK = "#1b1b1b"
MUTED = "#5a5a5a"
RULE = "#d5d5d5"
FAINT = "#b4b4b4"
# Palette of Okabe and Ito without yellow (invisible on paper) and black (text); brown and azure
# replace orange and sky blue, whose contrast with white is below 3 (WCAG 2.1)
SERIES_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a4700", "#1697f3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (5, 2, 1, 2)),
    (0, (1, 1.5)),
    (0, (8, 2, 1, 2, 1, 2)),
)
HEAT_COLORS = "cividis"

# the width of a text column, so that fonts keep their size
WIDTH_INCHES = 4.2
WIDE_INCHES = 7.2

LEGEND_POINTS = 10
POINTS_PER_INCH = 72
PNG_DOTS_PER_INCH = 200
# font sizes of the title and of the other texts around a figure in a file, and their padding
TITLE_POINTS, SMALL_POINTS, PAD_POINTS = 11, 7.5, 6
_NO_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}

_SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "figure.labelsize": 10,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "legend.fontsize": LEGEND_POINTS,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    # TrueType: searchable text, accepted by journals
    "pdf.fonttype": 42,
    "savefig.facecolor": "none",
    # keep text as text, for searches, screen readers and the page's fonts
    "svg.fonttype": "none",
    "svg.hashsalt": "dlperf_slurm",
    "text.color": INK,
    # "$" in a name does not start a formula
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}
# settings of interactive backends, which must not be reset while figures are open
_OF_SCREENS = ("backend", "backend_fallback", "interactive")


@contextmanager
def use_style() -> Iterator[None]:
    """Apply the common style in a context, independent of the user's matplotlibrc."""
    matplotlib = _import_matplotlib()
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, **_SETTINGS}
    with matplotlib.rc_context({k: v for k, v in settings.items() if k not in _OF_SCREENS}):
        yield


def import_drawing() -> None:
    """Import matplotlib and what it needs to draw and save a figure as SVG."""
    _import_matplotlib()
    for name in ("figure", "lines", "ticker", "backends.backend_svg"):
        import_module(f"matplotlib.{name}")


def _import_matplotlib() -> Any:
    """Import matplotlib with "/" as working directory and without MPLBACKEND.

    On import it reads a matplotlibrc in the working directory, which may be someone else's run
    directory. MPLBACKEND selects a backend for screens.
    """
    if "matplotlib" not in sys.modules:
        backend = os.environ.pop("MPLBACKEND", None)
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        os.chdir("/")
        try:
            import_module("matplotlib")
        finally:
            os.fchdir(here)
            os.close(here)
            if backend is not None:
                os.environ["MPLBACKEND"] = backend
    return import_module("matplotlib")


def open_figure(width_inches: float, height_inches: float, is_by_hand: bool = False) -> "Figure":
    """Open an empty figure, with matplotlib's constrained layout unless `is_by_hand`."""
    from matplotlib.figure import Figure

    size = (width_inches, height_inches)
    return Figure(figsize=size, layout=None if is_by_hand else "constrained")


def mark_series(index: int) -> dict[str, Any]:
    """Return colour, marker and line style of series number `index`, as matplotlib's arguments."""
    return {
        "color": SERIES_COLORS[index % len(SERIES_COLORS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
    }


def add_legend(figure: "Figure", handles: "Mapping[str, Artist]") -> None:
    """Add a legend above the axes with as many columns as fit; `handles` are artists by label."""
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper left",
        ncols=_count_columns(figure.get_figwidth(), list(handles)),
        borderpad=0.2,
    )


def list_handles(panels: "Sequence[Axes]") -> "dict[str, Artist]":
    """Return matplotlib's legend handles for the series of all panels, by label."""
    drawn: dict[str, Artist] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        drawn.update(zip(map(str, labels), handles))
    return drawn


def find_legend_inches(width_inches: float, names: Sequence[str]) -> float:
    """Return the height in inches of a legend with these names; 0 without names.

    It is for figures whose parts are placed by hand.
    """
    if not names:
        return 0.0
    rows = math.ceil(len(names) / _count_columns(width_inches, names))
    # in font sizes: 1.5 per line with its spacing, 0.7 for the border above
    return (1.5 * rows + 0.7) * LEGEND_POINTS / POINTS_PER_INCH


def _count_columns(width_inches: float, names: Sequence[str]) -> int:
    """Return how many columns of a legend fit into a figure's width, by its longest name."""
    # in characters of 6.3 points; each name needs 9 more for its line sample and a gap
    room = 11.4 * width_inches + 3
    return max(1, min(len(names), int(room / (9 + max(map(len, names))))))


def lay_out(figure: "Figure") -> None:
    """Run matplotlib's automatic layout once and keep the result for all formats."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def save_svg(figure: "Figure") -> bytes:
    """Return a figure as SVG, drawn once by its canvas: `savefig` would draw it twice."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer, dpi = io.BytesIO(), figure.dpi
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata=_NO_METADATA["svg"])
    # print_svg changes it
    figure.dpi = dpi
    return buffer.getvalue()


def add_heading(
    figure: "Figure", title: str, lines: Sequence[str], caption: str
) -> "tuple[float, float, float, float]":
    """Write title and lines above a figure, and its caption below.

    They are outside of the figure, whose layout stays. Returns the box of the whole in inches: x,
    y, width and height.
    """
    for legend in figure.legends:
        # keep the legend in the figure: by default it would move to the top of the larger box
        legend.set_bbox_to_anchor((0, 0, 1, 1), transform=figure.transFigure)
    width, height = figure.get_size_inches()
    characters = int(width * POINTS_PER_INCH / (0.55 * SMALL_POINTS))
    above: list[tuple[str, float, str, str]] = [(title, TITLE_POINTS, INK, "bold")]
    for line in lines:
        above += [(part, SMALL_POINTS, MUTED, "normal") for part in textwrap.wrap(line, characters)]
    top = height + 1.4 * sum(points for _, points, *_ in above) / POINTS_PER_INCH
    y = top
    for text, points, color, weight in above:
        y -= 1.4 * points / POINTS_PER_INCH
        figure.text(0.02, y / height, text, fontsize=points, color=color, weight=weight)
    below = textwrap.wrap(caption, characters)
    for number, text in enumerate(below, start=1):
        y = -1.4 * number * SMALL_POINTS / POINTS_PER_INCH
        figure.text(0.02, y / height, text, fontsize=SMALL_POINTS, color=MUTED)
    bottom = -(1.4 * len(below) * SMALL_POINTS + PAD_POINTS) / POINTS_PER_INCH
    return 0.0, bottom, width, top + PAD_POINTS / POINTS_PER_INCH - bottom


def save_file(figure: "Figure", suffix: str, box: "tuple[float, float, float, float]") -> bytes:
    """Return a box (x, y, width, height in inches) of a figure as "svg", "pdf" or "png" file.

    Equal figures have equal files. A PNG is on white and at print resolution, for slides and mails.
    """
    from matplotlib.transforms import Bbox

    buffer = io.BytesIO()
    look: dict[str, Any] = (
        {"dpi": PNG_DOTS_PER_INCH, "facecolor": "white"} if suffix == "png" else {}
    )
    figure.savefig(
        buffer,
        format=suffix,
        metadata=_NO_METADATA[suffix],
        bbox_inches=Bbox.from_bounds(*box),
        **look,
    )
    return buffer.getvalue()
