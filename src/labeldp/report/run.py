"""The report of a run: one HTML file beside what it reports."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from labeldp.report import against, page, published, results, words
from labeldp.report import certificate as promises
from labeldp.report.records import Run

HEADINGS = {
    "summary": "Summary",
    "epsilon": "Accuracy against epsilon",
    "learning": "Learning curves",
    "hold-out": "Held-out rows",
    "candidates": "How many candidates",
    "filtered": "Filtered rows",
    "confusion": "Confusion on public test data",
    "certificate": "The certificate in words",
    "not-protected": "What is not protected",
    "recipe": "The recipe",
    "reproduce": "How to reproduce",
}


def write_run(folder: Path, *, classes: list[str] | None = None, command: str | None = None) -> Path:
    """Write `report.html` into a run's folder and return its path.

    Parameters
    ----------
    folder : holds recipe.toml, certificate.json and metrics.jsonl; what is missing is said to be missing.
    classes : the declared classes, for the confusion matrix; None for their numbers.
    command : the command line that made the run, printed as given.

    Privacy
    -------
    Reads recorded metrics only, all of which are public: releases, noisy hold-outs and public test data.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(Path(folder)).name  # what is missing is said in the report
    'report.html'
    """
    folder = Path(folder)
    run = Run.read(folder)
    body = [
        _summary(run),
        against.epsilon(run),
        results.learning(run),
        results.hold_out(run),
        page.side_by_side(results.candidates(run), results.filtered(run)),
        results.confusion(run, classes),
        _certificate(run),
        page.section("not-protected", HEADINGS["not-protected"], page.bullets(words.not_protected(run))),
        page.side_by_side(_recipe(run), _reproduce(run, command)),
    ]
    html = page.frame(
        words.headline(run),
        eyebrow=f"labeldp run · {run.folder}",
        about=_about(run),
        top=promises.not_private([run.certificate] if run.certificate is not None else []),
        body=body,
    )
    return page.write(folder / "report.html", html)


def _about(run: Run) -> str:
    data, model = words.data_name(run), run.recipe.get("model")
    data = (published.known(data) or data) if data else None
    data = f"the table {data}" if "table" in run.recipe else data
    rows, student = run.recipe.get("rows"), run.recipe.get("student") or {}
    first = f" (the first {rows:,} training rows alone)" if isinstance(rows, int) else ""
    taught = f" and a student {student['model']}" if "model" in student else ""
    parts = [f"{data}{first}" if data else "", f"model {model}{taught}" if isinstance(model, str) else ""]
    features = run.recipe.get("features")
    parts.insert(1, f"features {_kinds(str(features))}" if features else "")
    stages = max([stage.stages or stage.stage for stage in run.responses], default=0)
    parts.append(f"{stages} {'stage' if stages == 1 else 'stages'} of training" if stages else "")
    if run.counts is not None:
        parts.append("after counts of clusters" if stages else "trained on counts of clusters")
    said = ", ".join(filter(None, parts))
    return f"{said[0].upper()}{said[1:]}. Features are public, labels are not." if said else ""


def _kinds(features: str) -> str:
    """Return what kinds of features these are, without settings and names of files.

    >>> _kinds("patches:floor=1e+3 + simclr:epochs=20")
    'patches and simclr'
    >>> _kinds("arrays:a + b.npy")
    'arrays'
    """
    kinds = re.findall(r"(?:^|\+)\s*([a-z]+)", features)
    return kinds[0] if kinds[0] in {"arrays", "pretrained"} else " and ".join(kinds)


def _summary(run: Run) -> str:
    measure, facts = words.measure(run), []
    if run.tests:
        last = run.tests[-1]
        name = "Test accuracy" if last.is_accuracy else "Test RMSE"
        facts.append((name, measure.show(last.value), words.test_error(last)))
    elif run.hold_out and (right := run.hold_out.figures.get("accuracy")):
        low, high = (words.ACCURACY.show(end) for end in (right.low, right.high))
        remark = f"{100 * run.hold_out.confidence:.0f} % interval {low} to {high}"
        facts.append(("Right on held-out rows", words.ACCURACY.show(words.possible(right)), remark))
    if run.certificate is None:
        facts.append(("Privacy", "not certified", "there is no certificate.json"))
    elif words.is_private(run.certificate):
        epsilon, delta = words.spent(run.certificate)
        facts.append(("Epsilon", epsilon, f"delta {delta}; {run.certificate.get('unit', 'per label')}"))
        facts.append(("Trust model", str(run.certificate.get("trust")), _trusted(run.certificate)))
    else:
        facts.append(("Privacy", "NOT PRIVATE", "the noise can be replayed"))
    if run.certificate is not None and (asked := promises.queries(run.certificate)):
        charged, total = (sum(int(q.get(key) or 0) for q in asked) for key in ("labels charged", "labels asked"))
        remark = f"of {words.count(total)} asked for, in {len(asked)} {'query' if len(asked) == 1 else 'queries'}"
        if run.counts is not None and run.responses:
            remark += "; a label that was counted and answered is charged twice, for parts of epsilon"
        facts.append(("Labels charged", words.count(charged), remark))
    if run.counts is not None and run.counts.clusters is not None:
        facts.append(("Clusters", words.count(run.counts.clusters), words.counted(run.counts)))
    if run.responses:
        mechanisms = list(dict.fromkeys(stage.mechanism for stage in run.responses))
        facts.append(("Stages", str(max(s.stages or s.stage for s in run.responses)), ", then ".join(mechanisms)))
    if run.done and run.done.seconds is not None:
        threads = f"threads: {run.done.threads}" if run.done.threads else "wall time"
        facts.append(("Time", words.duration(run.done.seconds), threads))
    notice = words.progress(run) if run.has_metrics else "There is no metrics.jsonl: nothing was recorded."
    return page.section(
        "summary",
        HEADINGS["summary"],
        page.paragraph(notice, kind="notice") if notice else "",
        page.cards(facts),
        page.contents((HEADINGS | {"epsilon": against.heading(run)}).items()),
    )


def _trusted(certificate: dict[str, Any]) -> str:
    return "the label holder is trusted" if certificate.get("trust") == "curator" else "only a label's owner is trusted"


def _certificate(run: Run) -> str:
    if run.certificate is None:
        missing = page.paragraph(
            "There is no certificate.json in this folder, so nothing is promised here.", kind="notice"
        )
        return page.section("certificate", HEADINGS["certificate"], missing)
    return page.section("certificate", HEADINGS["certificate"], *promises.in_words(run.certificate))


def _recipe(run: Run) -> str:
    if run.recipe_text is None:
        return page.section(
            "recipe", HEADINGS["recipe"], page.paragraph("There is no recipe.toml in this folder.", kind="empty")
        )
    return page.section("recipe", HEADINGS["recipe"], page.folded("recipe.toml, as it was run", run.recipe_text))


def _reproduce(run: Run, command: str | None) -> str:
    certificate = run.certificate or {}
    ledger = certificate.get("ledger")
    steps = [
        (
            "Run the recipe again",
            "on the same public features and the same labels. A second run is a second release: it needs budget of its own.",
        ),
        (
            "Expect other figures.",
            "Privacy noise comes from the operating system and is never repeated; a seed in the recipe fixes training only.",
        ),
        ("Check the ledger.", "It should tell what the certificate above tells, with the same last hash."),
    ]
    file = str(certificate.get("ledger file", "LEDGER"))
    commands = [command] if command else []
    commands += [f"labeldp certificate --ledger {shlex.quote(file)}"] if isinstance(ledger, dict) else []
    return page.section(
        "reproduce", HEADINGS["reproduce"], page.bullets(steps), page.code("\n".join(commands)) if commands else ""
    )
