"""A figure shows all recorded runs of its recipes as they are now, says what it lacks, and draws each point."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from made_up_records import of_figure

from labeldp.reproduce import figure_of, figures, find
from labeldp.reproduce.cookbook import hash_of
from labeldp.reproduce.drawings import panels, section
from labeldp.reproduce.plot import write_panels
from labeldp.reproduce.points import top_k

GRIDS = ("figure-mixup", "figure-split-temperature")


def filled(results, name, *, epochs=0, leave_out=0):
    """Record made-up runs of all variants of a figure but the last ones."""
    cells = [(v, epsilon) for entry in find(name) for epsilon in entry.epsilons for v in entry.variants()]
    for place, (variant, epsilon) in enumerate(cells[: len(cells) - leave_out]):
        record = of_figure(
            variant, epsilon, 80 + place % 7, mean_k=1 + place % 3, top=(70 + place, 85 + place / 2), epochs=epochs
        )
        results.append(name, record)
    return figure_of(name, find(name), results)


def drawn(figure, tmp_path):
    text = write_panels(tmp_path / "figure.svg", panels(figure)).read_text()
    ElementTree.fromstring(text)  # it is well-formed
    return text


def test_there_is_a_figure_for_each_of_the_papers_experiments():
    assert figures() == ("figure-curves", "figure-mixup", "figure-split-temperature", "figure-stages", "figure-top-k")


def test_stages_are_a_line_per_recipe(results, tmp_path):
    figure = filled(results, "figure-stages", leave_out=1)
    text = drawn(figure, tmp_path)
    for name in ("paper-mst-small, epsilon 2", "paper-mst-small-init, epsilon 2"):
        assert f"</tspan> {name}<" in text
    assert text.count("T = 3:") == 2 and text.count("T = 4:") == 1  # each point says its value
    assert "1 of 8 points without a run." in figure.notes


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_has_a_number_per_cell_and_a_dash_where_there_is_none(results, tmp_path, name):
    figure = filled(results, name, leave_out=2)
    text = drawn(figure, tmp_path)
    assert len(figure.points) == 9 and text.count("no run yet") == 2 and text.count(">–<") == 2
    assert sum(text.count(f">{value}.0<") for value in range(80, 87)) == 7


def test_runs_of_one_variant_are_pooled_never_picked(results):
    (entry,) = find("figure-mixup")
    first, second = entry.variants()[:2]
    for value in (80.0, 90.0):
        results.append("figure-mixup", of_figure(first, "2", value))
    results.append("figure-mixup", of_figure(second, "2", 70.0))
    points = figure_of("figure-mixup", [entry], results).drawn
    assert [(point.mean, len(point.runs)) for point in points] == [(85.0, 2), (70.0, 1)]
    assert points[0].spread == pytest.approx(50**0.5) and points[1].spread is None


def test_a_figure_says_on_which_data_and_how_often_its_points_were_run(results, tmp_path):
    (entry,) = find("figure-mixup")
    first, second = entry.variants()[:2]
    results.append("figure-mixup", of_figure(first, "2", 80.0))
    assert "Fashion-MNIST, 20,000 rows; 1 run a point" in drawn(figure_of("figure-mixup", [entry], results), tmp_path)
    for variant in (first, second):
        results.append("figure-mixup", of_figure(variant, "2", 90.0))
    assert figure_of("figure-mixup", [entry], results).conditions == (
        "Fashion-MNIST, 20,000 rows; 1 to 2 runs a point; after the paper's Figure 4 b"
    )


def test_records_of_an_earlier_version_are_counted_and_not_shown(results):
    (entry,) = find("figure-mixup")
    variant = entry.variants()[0]
    results.append("figure-mixup", of_figure(variant, "2", 99.0, recipe_hash="older"))
    figure = figure_of("figure-mixup", [entry], results)
    assert figure.drawn == [] and panels(figure) == []
    assert "1 records of other versions of these recipes, or on other data, are not shown." in figure.notes


def test_runs_on_other_data_are_counted_and_not_pooled(results):
    (entry,) = find("figure-mixup")
    variant = entry.variants()[0]
    results.append("figure-mixup", of_figure(variant, "2", 99.0))
    results.append("figure-mixup", of_figure(variant, "2", 80.0, data="d2", time="2026-01-02T00:00:00Z"))
    figure = figure_of("figure-mixup", [entry], results)
    assert figure.drawn[0].values == (80.0,) and any(note.startswith("1 records of other") for note in figure.notes)


def test_only_what_was_estimated_of_what_lacks_a_run_is_summed(results):
    (entry,) = find("figure-mixup")
    first, *others = entry.variants()[:4]
    estimate = {"kind": "estimate", "hours": 0.06}
    for variant in (first, *others[:2]):
        results.append("figure-mixup", estimate | {"recipe_hash": hash_of(variant.at("2"))})
    results.append("figure-mixup", of_figure(first, "2", 90.0))
    assert figure_of("figure-mixup", [entry], results).notes[1] == (
        "8 of 9 points without a run; 2 of them were estimated, about 0.1 h together."
    )
    results.append("figure-mixup", of_figure(others[0], "2", 90.0))
    assert (
        "7 of 9 points without a run; 1 was estimated, about 0.1 h."
        in figure_of("figure-mixup", [entry], results).notes
    )


def test_curves_show_both_stages_and_the_top_k_accuracy_of_the_first(results, tmp_path):
    text = drawn(filled(results, "figure-curves", epochs=5), tmp_path)
    for line in ("LP-1ST, epsilon 2", "LP-2ST, epsilon 2, stage 1", "LP-2ST, epsilon 2, stage 2"):
        assert f"</tspan> {line}<" in text
    assert "LP-2ST, epsilon 2, stage 1, top-2 accuracy" in text and "stage 2, epoch 10:" in text
    assert "LP-1ST, epsilon 2, top-" not in text


def test_a_curve_is_the_mean_over_runs(results, tmp_path):
    entry = find("figure-curves", ["lp-1st"])[0].variants()[0]
    for draw, value in enumerate((80.0, 90.0), start=1):
        results.append("figure-curves", of_figure(entry, "2", value, epochs=2, draw=draw))
    text = drawn(figure_of("figure-curves", find("figure-curves"), results), tmp_path)
    assert "LP-1ST, epsilon 2, epoch 2: 80.00 %" in text  # 85 - 30 / (2 + 4)


def test_the_top_k_figure_shows_the_runs_of_both_grids_besides_its_own(results, tmp_path):
    for name in GRIDS:
        filled(results, name)
    figure = filled(results, "figure-top-k")
    assert len(figure.drawn) == 22 and sum(len(top_k(point)) for point in figure.drawn) == 22
    text = drawn(figure, tmp_path)
    for name in (*GRIDS, "figure-top-k"):
        assert f"runs of {name}" in text
    assert text.count("in the end") == 22


def test_the_top_k_accuracy_is_of_stage_1_at_the_rounded_mean_k_of_stage_2(results):
    variant = find("figure-mixup")[0].variants()[0]
    results.append("figure-mixup", of_figure(variant, "2", 82.5, mean_k=2.6, top=(70.0, 88.0, 93.0)))
    point = figure_of("figure-mixup", find("figure-mixup"), results).drawn[0]
    assert top_k(point) == [(3, 93.0, 82.5)]


def test_a_page_has_the_figure_its_numbers_and_what_they_are_of(results):
    text = section(filled(results, "figure-stages"))
    assert "<svg" in text and "release.stages=4" in text and "choosing on test data" in text
