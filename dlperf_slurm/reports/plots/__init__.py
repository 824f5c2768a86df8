"""Tables and step times -> figures by matplotlib, one module per kind of figure."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# which figures to draw: SOME for the page (tables and selected cases), FILES for the same figures
# also as files for documents, ALL for those of every case, NONE
SOME = "some"
FILES = "files"
ALL = "all"
NONE = "none"
CHOICES = (SOME, FILES, ALL, NONE)

# kinds of figures that the HTML page replaces by its own charts
KINDS_OF_PAGE = ("throughput-", "speedup-", "efficiency-")

_IS_FOR_PAGE = ContextVar("_IS_FOR_PAGE", default=False)
# what the figures of a report are about: models; and devices, site, date and run
_SOURCE: ContextVar[tuple[str, str]] = ContextVar("_SOURCE", default=("", ""))


@dataclass(frozen=True)
class Plot:
    """A drawn figure; `name` is the stem of its file names.

    `subject` is what the figure shows: the title of a table, or a case id. The caption explains
    points and bars. `svg` is for the HTML page, which has title and caption as text. The other
    files are for slides and papers, with both in the figure; a figure for the page has none.
    """

    name: str
    subject: str
    title: str
    caption: str
    svg: bytes
    file_svg: bytes = b""
    pdf: bytes = b""
    png: bytes = b""

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of the figure's files by file name, one file per format (SVG, PDF, PNG)."""
        formats = {"svg": self.file_svg or self.svg, "pdf": self.pdf, "png": self.png}
        return {f"{self.name}.{suffix}": content for suffix, content in formats.items() if content}


def list_for_page(plots: Iterable[Plot]) -> list[Plot]:
    """Select the page's plots, SVG only, without KINDS_OF_PAGE, which the page draws itself."""
    shown = (plot for plot in plots if not plot.name.startswith(KINDS_OF_PAGE))
    return [replace(plot, file_svg=b"", pdf=b"", png=b"") for plot in shown]


def is_drawn_for_page() -> bool:
    """Return whether only figures for the HTML page are drawn."""
    return _IS_FOR_PAGE.get()


@contextmanager
def draw_for_page(is_for_page: bool = True) -> Iterator[None]:
    """Draw figures only as SVG for the page in this context, in half the time."""
    token = _IS_FOR_PAGE.set(is_for_page)
    try:
        yield
    finally:
        _IS_FOR_PAGE.reset(token)


@contextmanager
def show_source(models: str, place: str) -> Iterator[None]:
    """Write models and place below the titles of figures in files while this context is active.

    The models are left out below a subject that begins with them, as the title of a table does.
    """
    token = _SOURCE.set((models, place))
    try:
        yield
    finally:
        _SOURCE.reset(token)


def make_plot(
    kind: str, subject: str, title: str, caption: str, draw: "Callable[[], Figure]"
) -> Plot:
    """Draw a figure in the common style and save it in all formats, or as SVG for the page.

    `kind` begins the file name, such as "speedup"; `subject` is what the figure shows (Plot).
    `draw` makes the matplotlib figure.
    """
    from dlperf_slurm.reports.plots.style import (
        add_heading,
        lay_out,
        save_file,
        save_svg,
        use_style,
    )

    with use_style():
        figure = draw()
        lay_out(figure)
        plot = Plot(make_name(kind, subject), subject, title, caption, save_svg(figure))
        if is_drawn_for_page():
            return plot
        models, place = _SOURCE.get()
        source = place if subject.startswith(models) else f"{models}, {place}"
        box = add_heading(figure, title, [*filter(None, (subject, source))], caption)
        svg, pdf, png = (save_file(figure, suffix, box) for suffix in ("svg", "pdf", "png"))
        return replace(plot, file_svg=svg, pdf=pdf, png=png)


def make_name(*texts: str) -> str:
    """Make a file name's stem, at most 120 characters: lowercase ASCII, digits, `_`, `.`, `-`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", " ".join(texts)).strip("-.").lower()[:120]


def make_names_unique(plots: Iterable[Plot]) -> Iterator[Plot]:
    """Yield plots whose names are made unique by appending numbers."""
    seen: dict[str, int] = {}
    for plot in plots:
        seen[plot.name] = seen.get(plot.name, 0) + 1
        count = seen[plot.name]
        yield plot if count == 1 else replace(plot, name=f"{plot.name}-{count}")
