"""A figure's SVG -> SVG inside a page, in the page's colours, with a name for screen readers."""

import re
import xml.etree.ElementTree as ElementTree

from dlperf_slurm.reports.plots import Plot
from dlperf_slurm.reports.plots.style import FAINT, INK, MUTED, RULE, SERIES_COLORS

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"

# what style.css sets, for the light and for the dark page
PAGE_COLORS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    FAINT: "var(--faint)",
    **{color: f"var(--series-{n})" for n, color in enumerate(SERIES_COLORS, start=1)},
}
_COLOR = re.compile("|".join(PAGE_COLORS), re.IGNORECASE)
_REFERRED = re.compile(r"""(?:url\(|href=")#([^)"]+)[)"]""")
# attributes of lengths, and one that is finer than a screen
_LENGTHS = ("d", "x", "y", "width", "height", "transform")
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(plot: Plot) -> str:
    """An <svg> element that needs nothing but the page's style sheet; ids begin with its name."""
    root = ElementTree.fromstring(plot.svg)
    for parent in list(root.iter()):
        for child in list(parent):
            # the page has their rules; a style sheet in an <svg> would be the whole page's
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    referred = set(_REFERRED.findall(plot.svg.decode()))
    for element in root.iter():
        if element.get("id") not in referred:
            element.attrib.pop("id", None)
        _adopt(element, plot.name)
        # matplotlib indents, which nobody reads here
        for name in ("text", "tail"):
            if not (getattr(element, name) or "").strip():
                setattr(element, name, None)
    _name(root, plot)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _adopt(element: ElementTree.Element, prefix: str) -> None:
    """Give an element the page's colours, and ids that no other figure has."""
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


def _name(root: ElementTree.Element, plot: Plot) -> None:
    """A title and a description, and the size in which its text is as large as the page's."""
    names = {"title": f"{plot.title}: {plot.subject}", "desc": plot.caption}
    for place, (tag, text) in enumerate(names.items()):
        child = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{plot.name}-{tag}"})
        child.text = text
        root.insert(place, child)
    width = find_width_points(root.attrib.pop("width"))
    root.attrib.pop("height")
    root.set("class", "plot" if width <= 400 else "plot wide")
    root.set("style", f"max-width: {width * 4 / 3:.0f}px")
    root.set("role", "img")
    root.set("aria-labelledby", f"{plot.name}-title {plot.name}-desc")


def find_width_points(text: str) -> float:
    """The points of an SVG's width, which matplotlib writes as "360pt"."""
    return float(text.removesuffix("pt"))
