"""From matplotlib to a piece of SVG that lives inside a page: small, always the same bytes, in the page's own colours."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from labeldp.errors import MissingExtra
from labeldp.report.words import printable

WIDTH = 380
"""Of a figure, in its own units: about the pixels of a phone, so that text stays legible there."""

# Figures are drawn in these stand-ins, which the page's style sheet turns into its light or dark colours.
INK, MUTED, LINE, CARD = "#010101", "#010102", "#010103", "#010104"
BLUE, ORANGE, GREEN, PURPLE, ROSE, BROWN = "#010111", "#010112", "#010113", "#010114", "#010115", "#010116"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    CARD: "--card",
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
    PURPLE: "--purple",
    ROSE: "--rose",
    BROWN: "--brown",
}

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "labeldp",
    "text.parse_math": False,  # a class may be called $x$
    "axes.unicode_minus": True,
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a figure is drawn on, in pixels from its edges."""

    figure: Any
    width: float
    height: float
    hovers: dict[str, list[str]] = field(default_factory=dict)

    def axes(self, *, left: float = 46, right: float = 12, top: float = 10, bottom: float = 36) -> Any:
        """Return calm axes: a base line, faint lines across, no ticks."""
        box = (left / self.width, bottom / self.height)
        axes = self.figure.add_axes((*box, 1 - (left + right) / self.width, 1 - (top + bottom) / self.height))
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.tick_params(length=0, pad=5)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        return axes

    def mark(self, artist: Any, name: str, says: Sequence[str]) -> None:
        """Name an artist that stands for data; `says` is what each of its marks tells when pointed at."""
        artist.set_gid(f"mark-{name}")
        self.hovers[f"mark-{name}"] = [printable(words) for words in says]

    def label(self, axes: Any, words: str, at: tuple[float, float], shift: tuple[float, float], **style: Any) -> None:
        """Write beside a point, legibly over lines."""
        text = axes.annotate(printable(words), at, xytext=shift, textcoords="offset points", **style)
        text.set_gid(f"halo-{len(axes.texts)}")


def draw(name: str, about: str, paint: Callable[[Sheet], None], *, height: float, width: float = WIDTH) -> str:
    """Return a figure as inline SVG; `name` keeps its ids apart from those of other figures of the page."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("The figures of a report need matplotlib: pip install 'labeldp[report]'.") from None
    out = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has other fonts
        matplotlib.rcdefaults()  # whatever the user's own settings are
        matplotlib.rcParams.update(SETTINGS)
        sheet = Sheet(Figure(figsize=(width / 72, height / 72), dpi=72), width, height)
        paint(sheet)
        sheet.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue(), name, about, sheet.hovers)


def locator(*, nbins: int, integer: bool = False) -> Any:
    """Return where numbers stand on an axis: at round values, not too many."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=nbins, integer=integer, steps=[1, 2, 5, 10])


def _inline(svg: str, name: str, about: str, hovers: dict[str, list[str]]) -> str:
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        element.text = element.text if element.text and element.text.strip() else None
        element.tail = None
    _drop(root, "metadata", "style")
    box = root.attrib["viewBox"]
    root.attrib = {"class": "figure", "viewBox": box, "role": "img", "aria-label": about}
    _speak(root, hovers)
    linked = {value[1:] for element in root.iter("use") if (value := element.get("href", ""))}
    for element in root.iter():
        _tidy(element, name, linked)
    return ElementTree.tostring(root, encoding="unicode")


def _drop(element: ElementTree.Element, *tags: str) -> None:
    for child in list(element):
        if child.tag in tags:
            element.remove(child)
        else:
            _drop(child, *tags)


def _speak(root: ElementTree.Element, hovers: dict[str, list[str]]) -> None:
    """Give every mark a title, which browsers show when it is pointed at."""
    for group in root.iter():
        says = hovers.get(group.get("id", ""), [])
        marks = list(group.iter("use")) or [group]
        for mark, words in zip(marks, says, strict=len(says) > 1):
            title = ElementTree.Element("title")
            title.text = words
            mark.insert(0, title)


def _tidy(element: ElementTree.Element, name: str, linked: set[str]) -> None:
    attributes = element.attrib
    own = attributes.pop("id", "")
    if own.startswith("halo-"):
        attributes["class"] = "halo"
    elif own in linked or own.startswith("mark-") or element.tag == "clipPath":
        attributes["id"] = f"{name}--{own}"
    for key, value in attributes.items():
        if key == "href" and value.startswith("#"):
            attributes[key] = f"#{name}--{value[1:]}"
        elif key == "clip-path":
            attributes[key] = value.replace("url(#", f"url(#{name}--")
        elif key == "style":
            attributes[key] = _style(value, is_text=element.tag == "text")
        elif key in ("d", "x", "y", "transform"):
            attributes[key] = re.sub(
                r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value
            )
            attributes[key] = " ".join(attributes[key].split())
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]


def _style(style: str, *, is_text: bool) -> str:
    """Return a style in the page's colours and, for text, in the page's font."""
    if is_text:
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        style = re.sub(
            r"font: (?:(\w+) )??([\d.]+px) [^;]*", r"font-weight: \1; font-size: \2", style
        )  # matplotlib < 3.10
        style = style.replace("font-weight: ; ", "")
    for stand_in, variable in VARIABLES.items():
        style = style.replace(stand_in, f"var({variable})")
    return style
