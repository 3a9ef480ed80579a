"""A comparison of methods over epsilons: one page with a figure, a table and what they may be compared for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.report import certificate as promises
from labeldp.report import page, words
from labeldp.report.epsilons import NO_PRIVACY, Series, against_epsilon, deviation, legend
from labeldp.report.svg import BLUE, BROWN, GREEN, MUTED, ORANGE, PURPLE, ROSE

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, ROSE, BROWN)
MARKERS = ("o", "s", "^", "D", "v", "P")
TRUSTED = {
    None: "",
    "local": "Local: nobody but a label's owner is trusted",
    "curator": "Curator: the label holder is trusted",
}
Draws = dict[str, dict[float, tuple[float, ...]]]


def write_comparison(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    title: str,
    about: str,
    measure: str = "accuracy",
    certificates: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write a page that compares methods, and return its path.

    Parameters
    ----------
    rows : records {"method": "LP-2ST", "epsilon": "2" or "inf", "values": [0.91, 0.92]}, one value per draw of the noise. A
        record may name its "trust", local or curator: the two are never put into one figure or table.
    title, about : what was found, in one sentence, and what was done.
    measure : "accuracy" as a share of 1, or "rmse".
    certificates : those of the runs behind the figures, if they are to be shown.

    >>> import tempfile
    >>> rows = [{"method": "LP-2ST", "epsilon": "2", "values": [0.91, 0.92, 0.90]}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_comparison(Path(folder) / "page.html", rows, title="One method", about="Three draws.").name
    'page.html'
    """
    shown = words.ACCURACY if checks.one_of(("accuracy", "rmse"), measure=measure) == "accuracy" else words.RMSE
    by_trust = _read(rows)
    sections = [_comparison(trust, draws, shown) for trust, draws in by_trust.items()]
    sections.append(page.section("study", "What this is", page.paragraph(words.STUDY)))
    sections += [
        page.section(f"certificate-{number}", f"Certificate {number} of {len(certificates)}", *promises.in_words(one))
        for number, one in enumerate(certificates, start=1)
    ]
    top = promises.not_private(list(certificates))
    html = page.frame(title, eyebrow="labeldp comparison", about=about, top=top, body=sections)
    return page.write(Path(path), html)


def _read(rows: Iterable[Mapping[str, Any]]) -> dict[str | None, Draws]:
    """Return the draws by trust model, method and epsilon; what has no privacy belongs to every trust model."""
    tables: dict[str | None, Draws] = {}
    without: Draws = {}
    for number, row in enumerate(rows, start=1):
        try:
            method, epsilon = str(row["method"]), float(row["epsilon"])
            values = tuple(float(value) for value in row["values"])
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument(f"row {number} must have a method, an epsilon and values.") from None
        if not epsilon > 0 or not values or not np.isfinite(values).all():
            raise InvalidArgument(f"row {number} must have an epsilon above 0 and one finite value per draw.")
        trust = row.get("trust")
        if trust is not None:
            checks.one_of(("local", "curator"), trust=trust)
        draws = without if epsilon == NO_PRIVACY else tables.setdefault(trust, {})
        at = draws.setdefault(method, {})
        at[epsilon] = at.get(epsilon, ()) + values
    if not tables and not without:
        raise InvalidArgument("rows must hold at least one record, got none.")
    for draws in tables.values():
        for method, at in without.items():
            draws.setdefault(method, {}).update(at)
    return tables or {None: without}


def _comparison(trust: str | None, draws: Draws, measure: words.Measure) -> str:
    name = f"comparison-{trust}" if trust else "comparison"
    series = _series(draws)
    title = measure.name[0].upper() + measure.name[1:]
    repeated = any(len(values) > 1 for at in draws.values() for values in at.values())
    caption = (
        "A faint dot is one draw of the noise, a large mark the mean of a method's draws, a bar one standard deviation to "
        "either side. Methods stand a little beside each other, so that all can be seen."
        if repeated
        else "Each mark is a single draw: differences may be noise."
    )
    caption += (
        " A dashed line across is what is reached without privacy."
        if any(NO_PRIVACY in at for at in draws.values())
        else ""
    )
    svg = against_epsilon(name, f"{title} against epsilon, by method", series, measure)
    figure = page.figure(TRUSTED[trust] or f"{title} by method", svg, legend=legend(series), caption=caption)
    return page.section(name, f"{title} against epsilon", page.side_by_side(figure, _table(trust, draws, measure)))


def _series(draws: Draws) -> list[Series]:
    found, private = [], 0
    for method, at in draws.items():
        if set(at) == {NO_PRIVACY}:
            found.append(Series(method, at, MUTED))
        else:
            look = private % len(COLOURS)
            found.append(Series(method, at, COLOURS[look], marker=MARKERS[look]))
            private += 1
    return found


def _table(trust: str | None, draws: Draws, measure: words.Measure) -> str:
    epsilons = sorted({epsilon for at in draws.values() for epsilon in at})
    numbers = sorted({len(values) for at in draws.values() for values in at.values()})
    head = ["epsilon", *draws]
    rows = [
        ["none" if math.isinf(epsilon) else f"{epsilon:g}", *(_cell(at.get(epsilon), measure) for at in draws.values())]
        for epsilon in epsilons
    ]
    spread = f"{measure.unit}, mean ± standard deviation" if numbers[-1] > 1 else measure.unit
    noun = "draw" if numbers == [1] else "draws"
    trusted = f" {TRUSTED[trust]}." if trust else ""
    caption = f"{spread} of {words.listed(numbers).replace(' and ', ' or ')} {noun} of the noise.{trusted}"
    return page.table(caption, head, rows)


def _cell(values: tuple[float, ...] | None, measure: words.Measure) -> str:
    if values is None:
        return ""
    mean = measure.number(float(np.mean(values)))
    return f"{mean} ± {measure.number(deviation(values))}" if len(values) > 1 else mean
