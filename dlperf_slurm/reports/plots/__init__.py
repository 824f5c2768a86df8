"""Tables and step times -> figures, a module per kind; the only home of matplotlib."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# which figures to draw: those of the tables and of the cases to look at, the same as files for
# documents too, those of every case, none
SOME = "some"
FILES = "files"
ALL = "all"
NONE = "none"
CHOICES = (SOME, FILES, ALL, NONE)

# kinds of figures that a report's page has as charts of its own
KINDS_OF_PAGE = ("throughput-", "speedup-", "efficiency-")

_IS_FOR_PAGE = ContextVar("_IS_FOR_PAGE", default=False)


@dataclass(frozen=True)
class Plot:
    """A figure that was drawn; `name` is the stem of its files.

    `subject` is the title of the table, or the case, whose figures it shows. The caption says what
    points and bars are. What was drawn for a page is an SVG alone.
    """

    name: str
    subject: str
    title: str
    caption: str
    svg: bytes
    pdf: bytes = b""
    png: bytes = b""

    @property
    def files(self) -> dict[str, bytes]:
        """The figure in each format that it was drawn in, by the names of its files."""
        formats = {"svg": self.svg, "pdf": self.pdf, "png": self.png}
        return {f"{self.name}.{suffix}": content for suffix, content in formats.items() if content}


def list_for_page(plots: Iterable[Plot]) -> list[Plot]:
    """The plots that a report's page shows, as SVG alone; the others it draws by itself."""
    shown = (plot for plot in plots if not plot.name.startswith(KINDS_OF_PAGE))
    return [replace(plot, pdf=b"", png=b"") for plot in shown]


def is_drawn_for_page() -> bool:
    """Whether nothing but what a report's page shows is to be drawn."""
    return _IS_FOR_PAGE.get()


@contextmanager
def draw_for_page(is_for_page: bool = True) -> Iterator[None]:
    """Figures that are drawn meanwhile are SVGs alone, which takes half of the time."""
    token = _IS_FOR_PAGE.set(is_for_page)
    try:
        yield
    finally:
        _IS_FOR_PAGE.reset(token)


def make_plot(
    kind: str, subject: str, title: str, caption: str, draw: "Callable[[], Figure]"
) -> Plot:
    """Draw in the style of all figures, and keep it in all formats, or as `draw_for_page` says."""
    from dlperf_slurm.reports.plots.style import lay_out, save_pdf, save_png, save_svg, use_style

    with use_style():
        figure = draw()
        lay_out(figure)
        plot = Plot(make_name(kind, subject), subject, title, caption, save_svg(figure))
        if is_drawn_for_page():
            return plot
        return replace(plot, pdf=save_pdf(figure), png=save_png(figure))


def make_name(*texts: str) -> str:
    """A file name's stem of these: ASCII letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", " ".join(texts)).strip("-.").lower()[:120]


def name_apart(plots: Iterable[Plot]) -> list[Plot]:
    """The plots, with a number behind names that others before them have."""
    seen: dict[str, int] = {}
    named = []
    for plot in plots:
        seen[plot.name] = seen.get(plot.name, 0) + 1
        count = seen[plot.name]
        named.append(plot if count == 1 else replace(plot, name=f"{plot.name}-{count}"))
    return named
