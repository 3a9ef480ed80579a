"""What a run's metrics tell: learning curves, candidates, filtered rows, confusion on public test data."""

from __future__ import annotations

from labeldp.errors import InvalidArgument
from labeldp.report import curves, figures, page, words
from labeldp.report.records import Run, Stage

LOSS = "On the noisy answers that were released, so its level says little; its shape says whether training settled."
HOLD_OUT = (
    "The hold-out is judged by noisy labels, with the noise taken out on average; the band is one standard error."
)
HELD_SIGN = ("●", "blue", "noisy hold-out ± standard error")
TEST_SIGN = ("◆", "orange", "public test data")
FIGURES = {"accuracy": "accuracy", "auc": "AUC", "log_loss": "log loss"}
ROUNDS = "An epoch is a round of expectation maximisation: of new beliefs about every label, and new fits to them."
TESTED = "Public test data is looked at after a stage."


def learning(run: Run) -> str:
    """Return the section on the losses, hold-outs and tests of all stages."""
    parts: list[str] = []
    missing: list[str] = []
    losses = [epoch for epoch in run.epochs if curves.has_loss(epoch)]
    if losses:
        caption = LOSS
        if len(losses) < len(run.epochs):
            caption += f" Epochs without a finite loss: {len(run.epochs) - len(losses)}."
        if any(epoch.of_em for epoch in losses):
            caption += f" {ROUNDS}"
        signs = [("●", "blue", "mean loss of an epoch")]
        parts.append(page.figure("Training loss", curves.loss(run), legend=signs, caption=caption))
    else:
        missing.append("No epoch with a loss was recorded.")
    held = [epoch.hold_out for epoch in run.epochs if epoch.hold_out]
    for measure in (words.ACCURACY, words.RMSE):  # a model of ratings is held out by accuracy and tested by RMSE
        is_accuracy = measure is words.ACCURACY
        has_held = bool(held) and is_accuracy
        has_tests = any(test.is_accuracy == is_accuracy for test in run.tests)
        if has_held or has_tests:
            signs = [HELD_SIGN] * has_held + [TEST_SIGN] * has_tests
            caption = " ".join([HOLD_OUT] * has_held + [TESTED] * has_tests)
            svg = curves.learning(run, measure)
            parts.append(page.figure(measure.unit.split()[0], svg, legend=signs, caption=caption))
    missing += [] if held else ["There was no noisy hold-out."]
    missing += [] if run.tests else ["No figure on public test data was recorded."]
    notes = page.paragraph(*missing, kind="empty") if missing else ""
    return page.section("learning", "Learning curves", notes, page.side_by_side(*parts) if parts else "")


def hold_out(run: Run) -> str:
    """Return the section on what noisy held-out answers tell of the last model."""
    held = run.hold_out
    if held is None or not held.figures:
        return page.section(
            "hold-out", "Held-out rows", page.paragraph("No figure on held-out rows was recorded.", kind="empty")
        )
    shows = {"accuracy": words.ACCURACY.show}
    rows = []
    for name, found in held.figures.items():
        show = shows.get(name, "{:.3f}".format)
        error = "not known" if found.standard_error is None else show(found.standard_error)
        rows.append((FIGURES[name], show(words.possible(found)), error, f"{show(found.low)} to {show(found.high)}"))
    caption = (
        f"Estimated from {words.count(held.rows)} rows that were released by plain randomized response and never trained on. "
        "The noise is taken out on average; intervals cover both the noise and the luck of drawing the rows. No true label was "
        "looked at."
    )
    head = ("figure", "estimate", "standard error", f"{100 * held.confidence:.0f} % interval")
    return page.section("hold-out", "Held-out rows", page.table(caption, head, rows, words=(0,)))


def candidates(run: Run) -> str:
    """Return the section on how many candidates, or groups, the rows of each stage had."""
    known = [stage for stage in run.stages if stage.candidates]
    counts = page.paragraph(_counted(run.counts)) if run.counts is not None else ""
    if not known:
        nothing = "" if counts else page.paragraph("No stage recorded its candidates.", kind="empty")
        return page.section("candidates", "How many candidates", counts, nothing)
    caption = (
        "A mechanism randomizes each label over k candidates, or over m groups of labels, chosen from the prior alone. With "
        "one candidate (grey) the report ignores the label: it tells nothing and costs nothing."
    )
    return page.section(
        "candidates",
        "How many candidates",
        counts,
        page.figure("Share of rows by candidates", figures.candidates(known), caption=caption),
    )


def _counted(counts: Stage) -> str:
    """Say what stage 0 asked."""
    clusters = f"{words.count(counts.clusters)} public clusters" if counts.clusters is not None else "public clusters"
    return (
        f"In {clusters} the label holder counted every class and added noise to each count ({words.counted(counts)}, by "
        f"{counts.mechanism}). A label is in one cluster, so that all counts together cost epsilon once; the certificate says "
        "what was clustered. Counts have no candidates."
    )


def filtered(run: Run) -> str:
    """Return the section on the rows that a stage left out."""
    known = [stage for stage in run.stages if stage.filtered]
    if not known:
        sentence = "No stage filtered rows." if run.stages else "No stage was recorded."
        return page.section("filtered", "Filtered rows", page.paragraph(sentence, kind="empty"))
    limits = sorted({stage.filtered.k for stage in known if stage.filtered and stage.filtered.k is not None})
    k = f" (k = {words.listed(limits)})" if limits else ""
    caption = (
        "Before a later stage trains, rows of earlier stages whose report is not among the last model's k likeliest "
        f"classes{k} are left out. This looks at released reports only, so it costs no privacy."
    )
    return page.section(
        "filtered", "Filtered rows", page.figure("Share of earlier rows kept", figures.filtered(known), caption=caption)
    )


def confusion(run: Run, classes: list[str] | None) -> str:
    """Return the section on what the last model takes for what, on public test data."""
    table = next((test.confusion for test in reversed(run.tests) if test.confusion), None)
    if table is None:
        reason = (
            "No figure on public test data was recorded."
            if not run.tests
            else "The test record has no confusion matrix."
        )
        return page.section("confusion", "Confusion on public test data", page.paragraph(reason, kind="empty"))
    if classes is not None and len(classes) != len(table):
        raise InvalidArgument(
            f"classes must name the {len(table)} classes of the confusion matrix, got {len(classes)} names."
        )
    names = [str(name) for name in classes] if classes is not None else [str(number) for number in range(len(table))]
    unit = "Numbers are percent of the true class. " if len(table) <= figures.MOST_NUMBERS else ""
    caption = f"{unit}True classes are those of public test data; no training label is looked at."
    figure = page.figure("True against predicted class", figures.confusion(table, names), caption=caption)
    return page.section(
        "confusion", "Confusion on public test data", page.side_by_side(figure, _most_confused(table, names))
    )


def _most_confused(table: list[list[int]], names: list[str]) -> str:
    wrong = [
        (number / sum(row), names[true], names[predicted], number, sum(row))
        for true, row in enumerate(table)
        for predicted, number in enumerate(row)
        if true != predicted and number
    ]
    if not wrong:
        return page.paragraph("No public test row was taken for another class.", kind="empty")
    rows = [
        (true, predicted, words.count(number), words.share(number, total))
        for _, true, predicted, number, total in sorted(wrong, key=lambda entry: -entry[0])[:8]
    ]
    return page.table(
        "What is most often taken for something else, and the share of its class.",
        ("true", "taken for", "rows", "share"),
        rows,
        words=(0, 1),
    )
