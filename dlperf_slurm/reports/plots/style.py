"""Colours, marks and sizes of all figures; a figure -> SVG, PDF, PNG: same input, same bytes.

The only module that sets matplotlib up. People with colour-blind eyes tell the colours apart; a
marker and a line style go with each, for those who print in grey.
"""

import io
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# what a page that shows the SVG may replace by colours of its own
INK = "#1b1b1b"
MUTED = "#5a5a5a"
RULE = "#d5d5d5"
FAINT = "#b4b4b4"
# Okabe and Ito's, without the yellow and the black: one is lost on paper, one is the text; brown
# and azure stand for their orange and sky blue, whose contrast with white is below WCAG 2.1's 3
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

# a column of a page or half of a screen's, with text that is read at its own size
WIDTH_INCHES = 4.2
WIDE_INCHES = 7.2

LEGEND_POINTS = 10
POINTS_PER_INCH = 72
PNG_DOTS_PER_INCH = 200

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
    # TrueType: text that can be searched, and that journals take
    "pdf.fonttype": 42,
    "savefig.facecolor": "none",
    # text stays text: for searches, screen readers and the page's own fonts
    "svg.fonttype": "none",
    "svg.hashsalt": "dlperf_slurm",
    "text.color": INK,
    # a dollar in a name is a dollar
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
# not to be set once a figure is on a screen, which ours never are
_OF_SCREENS = ("backend", "backend_fallback", "interactive")


@contextmanager
def use_style() -> Iterator[None]:
    """Draw as all figures do, whatever the user's own matplotlibrc says."""
    matplotlib = _import_matplotlib()
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, **_SETTINGS}
    with matplotlib.rc_context({k: v for k, v in settings.items() if k not in _OF_SCREENS}):
        yield


def _import_matplotlib() -> Any:
    """The package, which at its import reads a matplotlibrc of the working directory first.

    That may be a stranger's run directory, and the file a pipe: it is imported from elsewhere. A
    backend that the environment names is for screens.
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
    """An empty figure; its parts make room for each other, unless they are placed by hand."""
    from matplotlib.figure import Figure

    size = (width_inches, height_inches)
    return Figure(figsize=size, layout=None if is_by_hand else "constrained")


def mark_series(index: int) -> dict[str, Any]:
    """How the series with this index is drawn; the sixth and later ones differ in two of three."""
    return {
        "color": SERIES_COLORS[index % len(SERIES_COLORS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
    }


def add_legend(figure: "Figure", handles: "Mapping[str, Artist]") -> None:
    """Above the axes, never over the data; in as many columns as the names leave room for."""
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper left",
        ncols=_count_columns(figure.get_figwidth(), list(handles)),
        borderpad=0.2,
    )


def list_handles(panels: "Sequence[Axes]") -> "dict[str, Artist]":
    """What is drawn in any of the panels under a name, each name once."""
    drawn: dict[str, Artist] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        drawn.update(zip(map(str, labels), handles))
    return drawn


def find_legend_inches(width_inches: float, names: Sequence[str]) -> float:
    """The height of a legend, for figures that are placed by hand; 0 without names."""
    if not names:
        return 0.0
    rows = math.ceil(len(names) / _count_columns(width_inches, names))
    # of its own size a line takes 1.5, with what is between lines; the border above takes 0.7
    return (1.5 * rows + 0.7) * LEGEND_POINTS / POINTS_PER_INCH


def _count_columns(width_inches: float, names: Sequence[str]) -> int:
    # in characters of 6.3 points: a name has its line before it and a gap behind it, the last none
    room = 11.4 * width_inches + 3
    return max(1, min(len(names), int(room / (9 + max(map(len, names))))))


def lay_out(figure: "Figure") -> None:
    """Place all parts, once for every format."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def save_svg(figure: "Figure") -> bytes:
    """The SVG by its own canvas: `savefig` draws all twice, to find a place that is known here."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer, dpi = io.BytesIO(), figure.dpi
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    # which it sets to that of the format
    figure.dpi = dpi
    return buffer.getvalue()


def save_pdf(figure: "Figure") -> bytes:
    return _save(figure, "pdf", {"CreationDate": None, "Creator": None, "Producer": None})


def save_png(figure: "Figure") -> bytes:
    """The PNG for slides and mails: on white, as dense as print."""
    look = {"dpi": PNG_DOTS_PER_INCH, "facecolor": "white"}
    return _save(figure, "png", {"Software": None}, **look)


def _save(figure: "Figure", suffix: str, metadata: dict[str, Any], **look: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=metadata, **look)
    return buffer.getvalue()
