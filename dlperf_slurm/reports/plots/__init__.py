"""Tables and step times -> figures, a module per kind; the only home of matplotlib."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# which figures to draw: those of the tables and of the cases to look at, of every case, none
SOME = "some"
ALL = "all"
NONE = "none"


@dataclass(frozen=True)
class Plot:
    """A figure that was drawn; `name` is the stem of its files.

    `subject` is the title of the table, or the case, whose figures it shows. The caption says what
    points and bars are.
    """

    name: str
    subject: str
    title: str
    caption: str
    svg: bytes
    pdf: bytes
    png: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The figure in each format, by the names of its files."""
        return {
            f"{self.name}.svg": self.svg,
            f"{self.name}.pdf": self.pdf,
            f"{self.name}.png": self.png,
        }


def make_plot(
    kind: str, subject: str, title: str, caption: str, draw: "Callable[[], Figure]"
) -> Plot:
    """Draw in the style of all figures, and keep it in all formats."""
    from dlperf_slurm.reports.plots.style import lay_out, save_pdf, save_png, save_svg, use_style

    with use_style():
        figure = draw()
        lay_out(figure)
        return Plot(
            make_name(kind, subject),
            subject,
            title,
            caption,
            svg=save_svg(figure),
            pdf=save_pdf(figure),
            png=save_png(figure),
        )


def make_name(*texts: str) -> str:
    """A file name's stem of these: ASCII letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", " ".join(texts)).strip("-.").lower()[:120]


def name_apart(plots: Iterable[Plot]) -> list[Plot]:
    """The plots, with a number behind names that others before them have."""
    import dataclasses

    seen: dict[str, int] = {}
    named = []
    for plot in plots:
        seen[plot.name] = seen.get(plot.name, 0) + 1
        count = seen[plot.name]
        named.append(plot if count == 1 else dataclasses.replace(plot, name=f"{plot.name}-{count}"))
    return named
