"""A figure's SVG -> inline SVG with the page's colours and a title for screen readers."""

import re
import xml.etree.ElementTree as ElementTree

from dlperf_slurm.reports.plots import Plot
from dlperf_slurm.reports.plots.style import FAINT, INK, MUTED, RULE, SERIES_COLORS

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"

# custom properties that report.css sets, for the light and for the dark page
PAGE_COLORS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    FAINT: "var(--faint)",
    **{color: f"var(--series-{n})" for n, color in enumerate(SERIES_COLORS, start=1)},
}
_COLOR = re.compile("|".join(PAGE_COLORS), re.IGNORECASE)
_REFERRED = re.compile(r"""(?:url\(|href=")#([^)"]+)[)"]""")
# attributes with lengths, and numbers with needless decimals
_LENGTHS = ("d", "x", "y", "width", "height", "transform")
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(plot: Plot) -> str:
    """Convert a plot to an <svg> element for the page; its ids begin with the plot's name."""
    root = ElementTree.fromstring(plot.svg)
    for parent in list(root.iter()):
        for child in list(parent):
            # a style sheet inside an <svg> would apply to the whole page
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    referred = set(_REFERRED.findall(plot.svg.decode()))
    for element in root.iter():
        if element.get("id") not in referred:
            element.attrib.pop("id", None)
        _restyle(element, plot.name)
        # remove matplotlib's indentation
        for name in ("text", "tail"):
            if not (getattr(element, name) or "").strip():
                setattr(element, name, None)
    _add_title(root, plot)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(element: ElementTree.Element, prefix: str) -> None:
    """Replace an SVG element's colours by CSS properties of the page, and prefix its ids."""
    for name, value in element.attrib.items():
        if name == "id":
            value = f"{prefix}-{value}"
        elif name == f"{{{_LINK}}}href" and value.startswith("#"):
            value = f"#{prefix}-{value[1:]}"
        else:
            value = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
            if name in _LENGTHS:
                value = _LONG.sub(r"\1", value)
        if name in ("style", "fill", "stroke"):
            value = _COLOR.sub(lambda match: PAGE_COLORS[match[0].lower()], value)
        element.set(name, value)


def _add_title(root: ElementTree.Element, plot: Plot) -> None:
    """Add title and description to an SVG; set its width so that text has the page's font size."""
    names = {"title": f"{plot.title}: {plot.subject}", "desc": plot.caption}
    for place, (tag, text) in enumerate(names.items()):
        child = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{plot.name}-{tag}"})
        child.text = text
        root.insert(place, child)
    # in points
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    root.set("class", "plot" if width <= 400 else "plot wide")
    root.set("style", f"max-width: {width * 4 / 3:.0f}px")
    root.set("role", "img")
    root.set("aria-labelledby", f"{plot.name}-title {plot.name}-desc")
