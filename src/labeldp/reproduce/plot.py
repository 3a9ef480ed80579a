"""Accuracy against epsilon: ours with error bars, and every published point. As an SVG file, or as a page with the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from labeldp.files import renamed_when_whole
from labeldp.report import page, published, words
from labeldp.report.against import LOOKS
from labeldp.report.epsilons import Series, against_epsilon, is_by_errors, legend
from labeldp.report.svg import BLUE, INK, WIDTH
from labeldp.reproduce.cookbook import OWN
from labeldp.reproduce.sheets import Sheet

OURS: tuple[dict[str, Any], ...] = (
    {"colour": BLUE, "marker": "D"},
    {"colour": INK, "marker": "s", "hollow": True},
    {"colour": INK, "marker": "^", "hollow": True},
    {"colour": INK, "marker": "o", "hollow": True},
)
HEIGHT, HEAD, LINE_HEIGHT, MARGIN = 260, 40, 17, 14
CAPTION = (
    "Ours: mean over runs, each with noise of its own, a bar of one standard deviation to either side, a faint dot per run. A "
    "dashed line across is what is reached without privacy."
)


@dataclass(frozen=True)
class Panel:
    """A figure with its title and legend."""

    title: str
    svg: str
    legend: page.Legend


def series_of(sheet: Sheet) -> list[Series]:
    """Return our methods and all published ones, whatever they promise: the caption says which promise what."""
    scale = 100 if sheet.cells and sheet.cells[0].metric == "accuracy" else 1
    draws: dict[str, dict[float, tuple[float, ...]]] = {}
    for cell in sheet.cells:
        draws.setdefault(cell.recipe, {})[float(cell.epsilon)] = tuple(value / scale for value in cell.values)
    best_first = sorted(draws, key=lambda name: (not name.startswith("best-"), name))
    ours = [
        Series(name if name.startswith(OWN) else f"ours: {name}", draws[name], **OURS[min(place, len(OURS) - 1)])
        for place, name in enumerate(best_first)
    ]
    points = published.POINTS.get(sheet.name, {})
    others = [
        Series(
            _named(method, sheet.trust),
            {float(e): (v,) for e, v in published.values(sheet.name, method).items()},
            **LOOKS[method],
        )
        for method in points
    ]
    return ours + others


def figure_of(sheet: Sheet, beside: Sequence[Sheet] = ()) -> str:
    """Return a sheet's figure as inline SVG, of the same scale as those of sheets of its measure beside it."""
    alike = [one for other in beside if _measure(other) is _measure(sheet) for one in series_of(other)]
    return against_epsilon(sheet.place, sheet.title, series_of(sheet), _measure(sheet), beside=alike)


def _measure(sheet: Sheet) -> words.Measure:
    return words.RMSE if published.is_rmse(sheet.name) else words.ACCURACY


def write_svg(path: Path, sheets: Sequence[Sheet]) -> Path | None:
    """Write the figures of sheets that have runs or published points, side by side, as one file; None if none has any."""
    drawn = [sheet for sheet in sheets if sheet.is_drawn]
    return write_panels(
        path, [Panel(sheet.short_title, figure_of(sheet, drawn), _signs(sheet, drawn)) for sheet in drawn]
    )


def _signs(sheet: Sheet, beside: Sequence[Sheet] = ()) -> page.Legend:
    series = series_of(sheet)
    stretched = is_by_errors([one for each in (sheet, *beside) for one in series_of(each)], _measure(sheet))
    return [*legend(series), *([("", "muted", "Accuracies are spaced by the ratio of their errors.")] * stretched)]


def write_panels(path: Path, panels: Sequence[Panel]) -> Path | None:
    """Write panels side by side as one file; None if there are none."""
    if not panels:
        return None
    height = HEAD + HEIGHT + LINE_HEIGHT * max(len(panel.legend) for panel in panels) + MARGIN
    width = (WIDTH + MARGIN) * len(panels) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{page.escape('; '.join(dict.fromkeys(panel.title for panel in panels)))}</title><style>{_style()}</style>",
        '<rect width="100%" height="100%" rx="8" style="fill: var(--card)"/>',
    ]
    for place, panel in enumerate(panels):
        left = MARGIN + place * (WIDTH + MARGIN)
        parts.append(f'<text x="{left + 4}" y="26" class="title">{page.escape(panel.title)}</text>')
        place_of = f'x="{left}" y="{HEAD}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(panel.svg.replace("<svg ", f"<svg {place_of} ", 1))
        parts += _legend(panel.legend, left, HEAD + HEIGHT + LINE_HEIGHT)
    with renamed_when_whole(path) as file:
        file.write(_with_plain_colours("\n".join([*parts, "</svg>"]) + "\n").encode())
    return path


def write_page(path: Path, sheets: Iterable[Sheet], more: Iterable[str] = ()) -> Path:
    """Write figures and tables, and more sections, as one HTML page."""
    body = []
    for sheet in sheets:
        heads = [head.replace("\n", " ") for head in sheet.heads]
        table = page.table(sheet.title, heads, sheet.rows) if sheet.rows else ""  # subsets stand in the notes alone
        figure = ""
        if sheet.is_drawn:
            figure = page.figure(sheet.title, figure_of(sheet), caption=CAPTION, legend=_signs(sheet))
        notes = [page.paragraph(note) for note in sheet.notes]
        body.append(page.section(sheet.place, sheet.title, figure, table, *notes))
    body += more
    body.append(page.section("study", "What this is", page.paragraph(words.STUDY)))
    about = "Every run of a recipe's latest version is pooled, none is picked; each look at a test set is logged."
    html = page.frame("The paper's tables, and ours", eyebrow="labeldp reproduce", about=about, top="", body=body)
    return page.write(path, html)


def _named(method: str, beside: str) -> str:
    """Name a published method on a sheet of a trust model, with its own promise where that is another one."""
    if method == published.NOT_PRIVATE:
        return "paper, without privacy"
    if method == published.PROJECTIONS:
        return "LabelDP-Pro (delta > 0, sums trusted)"
    return f"paper {method}{'' if beside == 'local' else ' (local)'}"


def _legend(signs: page.Legend, left: float, top: float) -> list[str]:
    return [
        f'<text x="{left + 4}" y="{top + LINE_HEIGHT * line}" class="legend">'
        f'<tspan style="fill: var(--{colour})">{page.escape(sign)}</tspan> {page.escape(name)}</text>'
        for line, (sign, colour, name) in enumerate(signs)
    ]


def _with_plain_colours(text: str) -> str:
    """Put the light colour before each variable one, for readers of SVG that know no variables."""
    light = dict(re.findall(r"--(\w+): (#\w+)", _roots()[0]))
    return re.sub(
        r"(fill|stroke): (var\(--(\w+)\))",
        lambda found: f"{found[1]}: {light[found[3]]}; {found[1]}: {found[2]}",
        text,
    )


def _roots() -> list[str]:
    """Return the page's rules that set colours: light, then dark."""
    sheet = files("labeldp.report").joinpath("page.css").read_text(encoding="utf-8")
    return re.findall(r":root \{[^}]*\}", sheet)


def _style() -> str:
    """Return the page's colours, light and dark, for a file of its own."""
    roots = _roots()
    colours = roots[0] + "".join(f"@media (prefers-color-scheme: dark) {{{dark}}}" for dark in roots[1:2])
    return (
        f"{colours} svg {{ font-family: system-ui, sans-serif; }} text {{ fill: var(--ink); }} "
        ".title { font-size: 13px; font-weight: 600; } .legend { font-size: 11px; } "
        ".halo text { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }"
    )
