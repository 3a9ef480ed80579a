"""This run beside the points that others have published, where the data is one of theirs."""

from __future__ import annotations

from typing import Any

from labeldp.report import page, published, words
from labeldp.report.epsilons import Series, against_epsilon, legend
from labeldp.report.records import Run
from labeldp.report.svg import BLUE, BROWN, GREEN, MUTED, ORANGE, PURPLE, ROSE

LOOKS: dict[str, dict[str, Any]] = {
    published.ONE_STAGE: {"colour": GREEN, "marker": "^"},
    published.TWO_STAGES: {"colour": ORANGE, "marker": "s"},
    published.OFFICIAL_CODE: {"colour": PURPLE, "marker": "v", "dashed": True},
    published.PRE_TRAINED_ONCE: {"colour": ROSE, "marker": "^", "dashed": True, "hollow": True},
    published.PRE_TRAINED: {"colour": ROSE, "marker": "P", "dashed": True},
    published.PROJECTIONS: {"colour": BROWN, "marker": "o", "dashed": True, "hollow": True},
    published.NOT_PRIVATE: {"colour": MUTED},
}
NOT_KNOWN = "No published points are known for this data."


def heading(run: Run) -> str:
    """Return the section's heading, which names what the run is judged by."""
    return f"{words.measure(run).unit.split()[0]} against epsilon"


def epsilon(run: Run) -> str:
    """Return the section: a figure of all that is known, and a table of what promises the same as a local certificate."""
    measure, data, own = words.measure(run), words.data_name(run), _own_point(run)
    dataset = published.known(data) if data else None
    mismatch = dataset is not None and bool(run.tests) and published.is_rmse(dataset) != (measure is words.RMSE)
    if dataset is None or mismatch:
        why = "The published points for this data are of another measure." if mismatch else NOT_KNOWN
        this = f"This run: {measure.plainly(own[1])} at epsilon {own[0]}." if own else ""
        return page.section("epsilon", heading(run), page.paragraph(why, this, kind="empty"))
    curator = own is not None and run.certificate is not None and run.certificate.get("trust") == "curator"
    lines = [
        Series(method, {float(e): (v,) for e, v in published.values(dataset, method).items()}, **LOOKS[method])
        for method in published.POINTS[dataset]
    ]
    title = "this run (curator)" if curator else "this run"
    if own:
        lines.insert(0, Series(title, {float(own[0]): (own[1],)}, BLUE, marker="D", stands_out=True))
    shown = words.RMSE if published.is_rmse(dataset) else words.ACCURACY
    figure = page.figure(
        f"{dataset}, test {shown.name}",
        against_epsilon("epsilon", f"{shown.name} against epsilon", lines, shown),
        legend=legend(lines),
        caption=_comparability(dataset, own is None, curator, run.recipe.get("rows")),
    )
    whole = run.recipe.get("rows") is None
    same_promise = own is not None and whole and not curator and words.spent(run.certificate or {})[1] == "0"
    methods = [method for method in published.PURE_AND_LOCAL if method in published.POINTS[dataset]]
    return page.section(
        "epsilon",
        heading(run),
        page.side_by_side(figure, _published_table(dataset, methods, own if same_promise else None, shown)),
    )


def _own_point(run: Run) -> tuple[str, float] | None:
    """Return this run's epsilon and figure, if it has both."""
    if not run.tests or run.certificate is None or not words.is_private(run.certificate):
        return None
    epsilon, _ = words.spent(run.certificate)
    try:
        return (epsilon, run.tests[-1].value) if 0 < float(epsilon) < float("inf") else None
    except ValueError:
        return None


def _comparability(dataset: str, absent: bool, curator: bool, rows: int | None) -> str:
    said = ["This run has no certified figure to draw."] if absent else []
    if rows is not None:
        said.append(
            f"This run saw the first {rows:,} rows alone: not comparable with published figures, which are of all."
        )
    if curator:
        said.append("This run trusted a curator with the labels; LP-1ST and LP-2ST trust nobody: not the same promise.")
    notes = [key for key in (published.PROJECTIONS, dataset) if key in (*published.POINTS[dataset], dataset)]
    return " ".join([*said, *(published.NOTES[key] for key in notes if key in published.NOTES)])


def _published_table(dataset: str, methods: list[str], own: tuple[str, float] | None, measure: words.Measure) -> str:
    columns = {method: published.values(dataset, method) for method in methods}
    columns[published.ONE_STAGE] |= published.values(dataset, published.NOT_PRIVATE)
    if own:
        columns["this run"] = dict([own])
    epsilons = sorted({epsilon for points in columns.values() for epsilon in points}, key=float)
    rows = [
        [
            "none" if epsilon == "inf" else epsilon,
            *(measure.number(points[epsilon], 2) if epsilon in points else "" for points in columns.values()),
        ]
        for epsilon in epsilons
    ]
    sources = "; ".join(dict.fromkeys(published.SOURCES[method] for method in methods))
    promise = f"{measure.unit} with pure local label privacy (delta = 0; none: without privacy)."
    caption = f"{promise} Source: {sources}. {published.ELSEWHERE}"
    return page.table(caption, ["epsilon", *columns], rows)
