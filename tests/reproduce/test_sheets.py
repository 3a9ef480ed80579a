"""Paper, official code, ours and targets stand side by side, trust models apart; what is missed or not run is named."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from made_up_records import run

from labeldp.report import published
from labeldp.reproduce import find, pooled, recipes_of, sheets_of
from labeldp.reproduce.cookbook import ORDER, hash_of
from labeldp.reproduce.plot import write_page, write_svg
from labeldp.reproduce.sheets import HEADS, verdicts


def wait(epsilon, hours, **other):
    """An estimate of MNIST's paper-2st as it is now."""
    (entry,) = find("mnist", ["paper-2st"])
    named = {"kind": "estimate", "dataset": "mnist", "recipe": "paper-2st", "trust": "local", "epsilon": epsilon}
    return named | {"hours": hours, "recipe_hash": hash_of(entry.at(epsilon)), "time": "2026-01-01T00:00:00Z"} | other


def sheets(*records, table="mnist"):
    return {(sheet.dataset, sheet.trust): sheet for sheet in sheets_of(records, recipes_of(table))}


def row(sheet, epsilon):
    found = next(cells for cells in sheet.rows if cells[0] == epsilon)
    return dict(zip((head.replace("\n", " ") for head in sheet.heads), found, strict=True))


@pytest.fixture
def as_it_is():
    """The hash of MNIST's best-local at epsilon 1 as it is now."""
    (entry,) = find("mnist", ["best-local"])
    return {"recipe_hash": hash_of(entry.at("1"))}


def test_a_row_has_paper_ours_and_target(as_it_is):
    cells = row(sheets(run(98.0, **as_it_is), run(98.2, **as_it_is))["mnist", "local"], "1")
    assert cells == {
        "epsilon": "1",
        "paper LP-1ST": "95.34",
        "paper LP-2ST": "95.82",
        "best-local": "98.10 ± 0.14\n2 runs, 10.0 s each",
        "target": "98.30",
    }


def test_official_code_and_what_is_reached_without_privacy_are_there_too():
    sheet = sheets(table="cifar-10")["cifar-10", "local"]
    assert row(sheet, "2")["official code"] == "88.11" and row(sheet, "1")["LP-2ST, pre-trained"] == "70.16"
    assert row(sheet, "none")["paper LP-1ST"] == "94.96" and row(sheet, "none")["LP-1ST, pre-trained"] == "95.25"


def test_every_published_point_is_in_a_sheet_of_its_dataset():
    for name, methods in published.POINTS.items():
        table = next(each for each in ORDER if published.known(each) == name)
        shown = {
            (head, cells[0], cell)
            for sheet in sheets(table=table).values()
            for cells in sheet.rows
            for head, cell in zip(sheet.heads, cells, strict=True)
        }
        form = "{:.3f}" if published.is_rmse(name) else "{:.2f}"
        for method, points in methods.items():
            head = HEADS[published.ONE_STAGE if method == published.NOT_PRIVATE else method]
            for epsilon, value in points.items():
                assert (head, "none" if epsilon == "inf" else epsilon, form.format(value)) in shown


def test_trust_models_never_share_a_sheet():
    found = sheets(run(98.0), run(99.0, trust="curator", recipe="best-curator"))
    assert "best-curator" not in found["mnist", "local"].heads and "best-local" not in found["mnist", "curator"].heads
    assert "LabelDP-Pro\n(delta > 0)" in found["mnist", "curator"].heads
    assert any("LabelDP-Pro has delta > 0" in note for note in found["mnist", "curator"].notes)
    assert any("add/remove adjacency" in note for note in found["mnist", "local"].notes)


def test_what_the_plot_of_a_local_sheet_draws_besides_is_told_under_it():
    (caveat,) = (note for note in sheets()["mnist", "curator"].notes if note.startswith("LabelDP-Pro"))
    caveat = f"In the plot, {caveat}"
    assert caveat in sheets()["mnist", "local"].notes and caveat in sheets(run(98.0))["mnist", "local"].notes
    of_kmnist = sheets(run(98.0, dataset="kmnist"), table="kmnist")["kmnist", "local"]
    assert caveat not in of_kmnist.notes  # nothing of it is published


def current(value, epsilon="1", **other):
    """Return the record of a run of the recipe as it is now."""
    (entry,) = (each for each in recipes_of("mnist") if each.name == "best-local")
    return run(value, epsilon=epsilon, recipe_hash=hash_of(entry.at(epsilon)), **other)


def test_targets_that_are_missed_met_and_not_tried_are_named():
    notes = " ".join(sheets(current(98.0), current(99.5, "2"))["mnist", "local"].notes)
    assert "Targets missed: epsilon 1 (98.00 of 98.30)." in notes
    assert "Targets met: epsilon 2 (99.50 of 99.00)." in notes
    assert "Targets without a run: epsilon 0.5, epsilon 3, epsilon 4." in notes


@pytest.mark.parametrize(("value", "told"), [(98.25, "missed"), (98.35, "met")])
def test_a_figure_closer_to_its_target_than_the_test_rows_can_tell_is_marked(value, told):
    close, far = current(value, test_rows=10_000), current(99.5, "2", test_rows=10_000)
    notes = " ".join(sheets(close, far)["mnist", "local"].notes)
    assert f"Targets {told}: epsilon 1 ({value:.2f} of ≈ 98.30)" in notes
    assert "epsilon 2 (99.50 of 99.00)" in notes and "≈: closer than the standard error" in notes
    assert "≈" not in " ".join(sheets(far)["mnist", "local"].notes)


def test_a_cell_says_how_many_threads_its_runs_had():
    both = sheets(run(98.0, threads=1), run(98.2, threads=2))["mnist", "local"]
    assert "2 runs, 10.0 s each\n1 to 2 threads" in row(both, "1")["best-local"]
    assert "\n1 thread\n" in row(sheets(run(98.0, threads=1))["mnist", "local"], "1")["best-local"] + "\n"


def test_of_errors_less_is_better():
    of = {"dataset": "movielens-1m", "metric": "rmse"}
    whole = {("best-local", cell.epsilon): cell for cell in pooled([run(0.96, **of), run(0.90, epsilon="2", **of)])}
    assert verdicts(whole, {"1": 0.955, "2": 0.905}, "local", "rmse") == [
        "Targets missed: epsilon 1 (0.960 of 0.955).",
        "Targets met: epsilon 2 (0.900 of 0.905).",
    ]
    sheet = sheets(run(0.96, **of), table="movielens-1m")["movielens-1m", "local"]
    assert row(sheet, "1")["best-local"].startswith("0.960") and row(sheet, "1")["paper LP-2ST"] == "1.034"
    assert any("per rating, not per person" in note for note in sheet.notes)
    again = sheets(run(0.9600, **of), run(0.9606, **of), table="movielens-1m")["movielens-1m", "local"]
    assert row(again, "1")["best-local"].startswith("0.960 ± 0.0004")


def test_a_recipe_that_was_not_run_says_so_with_its_estimate_where_it_lists_the_epsilon():
    sheet = sheets(wait("2", 41.3))["mnist", "local"]
    assert row(sheet, "2")["paper-2st"] == "not run here:\nabout 41 h" and row(sheet, "1")["paper-2st"] == "no run yet"
    assert row(sheet, "0.5")["paper-2st"] == "" and row(sheet, "0.5")["best-local"] == "no run yet"
    assert row(sheet, "2")["best-local"] == "no run yet"
    busy = sheets(wait("2", 4.0, processor_share=0.3))["mnist", "local"]
    assert row(busy, "2")["paper-2st"] == "not run here:\nabout 4.0 h,\ntimed on a busy machine"


def test_a_run_of_less_than_three_hours_is_only_not_run_yet():
    assert row(sheets(wait("2", 2.9))["mnist", "local"], "2")["paper-2st"] == "no run yet:\nabout 2.9 h"


def test_an_estimate_of_an_earlier_recipe_is_not_shown():
    sheet = sheets(wait("2", 41.3, recipe_hash="earlier"), wait("1", 41.3))["mnist", "local"]
    assert row(sheet, "2")["paper-2st"] == "no run yet" and row(sheet, "1")["paper-2st"].endswith("about 41 h")


def test_a_run_takes_the_place_of_its_estimate():
    records = [wait("2", 41.3), run(98.5, recipe="paper-2st", epsilon="2")]
    assert row(sheets(*records)["mnist", "local"], "2")["paper-2st"].startswith("98.50\n1 run, ")


def test_attempts_are_counted_and_subsets_stand_outside_the_table():
    later = {"recipe_hash": "b", "time": "2026-01-02T00:00:00Z"}
    part = [run(60.0, rows=2000), run(70.0, rows=4000), run(70.2, rows=4000)]
    sheet = sheets(run(98.0), run(97.0, **later), *part)["mnist", "local"]
    assert row(sheet, "1")["best-local"] == "97.00\n1 run, 10.0 s\n2 recipe hashes so far\nof an earlier recipe"
    assert sheet.notes[-2:] == (
        "Of a subset, not comparable: best-local at epsilon 1 on 2,000 rows: 60.00 (1 run).",
        "Of a subset, not comparable: best-local at epsilon 1 on 4,000 rows: 70.10 ± 0.14 (2 runs).",
    )
    assert all("60.00" not in cell for cells in sheet.rows for cell in cells)


def test_a_page_of_nothing_but_subsets_has_no_empty_table(tmp_path):
    part = run(60.0, dataset="digits", recipe="own:quick", rows=200)
    page = write_page(tmp_path / "page.html", sheets_of([part], [])).read_text()
    assert "on 200 rows: 60.00 (1 run)" in page and "<table" not in page


def test_a_figure_of_a_recipe_that_has_changed_since_is_named():
    (now,) = find("mnist", ["best-local"])
    found = [run(98.0), run(99.0, epsilon="2", recipe_hash=hash_of(now.at("2")))]
    sheet = sheets(*found)["mnist", "local"]
    assert row(sheet, "1")["best-local"].endswith("\nof an earlier recipe")
    assert "earlier recipe" not in row(sheet, "2")["best-local"]


def test_a_cell_says_of_how_many_commits_and_of_which_data_its_runs_are(as_it_is):
    two_commits = sheets(run(98.0, **as_it_is), run(98.2, commit="beef", **as_it_is))["mnist", "local"]
    assert row(two_commits, "1")["best-local"] == "98.10 ± 0.14\n2 runs, 10.0 s each\n2 commits"
    later = as_it_is | {"data": "d2", "time": "2026-01-02T00:00:00Z"}
    two_data = sheets(run(98.0, **as_it_is), run(97.0, **later))["mnist", "local"]
    assert row(two_data, "1")["best-local"] == "97.00\n1 run, 10.0 s\none of 2 versions of the data"


def test_a_recipe_of_ones_own_meets_no_target_and_is_not_drawn_as_ours(tmp_path):
    found = sheets(run(99.9, recipe="own:best-local"))
    sheet = found["mnist", "local"]
    assert row(sheet, "1")["own:best-local"].startswith("99.90") and row(sheet, "1")["best-local"] == "no run yet"
    assert not any("Targets met" in note for note in sheet.notes)
    assert "ours: own" not in write_svg(tmp_path / "mnist.svg", list(found.values())).read_text()


def test_the_plot_has_ours_and_every_published_method(tmp_path):
    found = sheets(run(98.0), run(98.2), run(97.0, trust="curator", recipe="best-curator"))
    text = write_svg(tmp_path / "mnist.svg", list(found.values())).read_text()
    ElementTree.fromstring(text)  # it is well-formed
    for name in (
        "ours: best-local",
        "ours: best-curator",
        "paper LP-1ST",
        "LabelDP-Pro (delta",
        "paper, without privacy",
    ):
        assert name in text
    assert text.count("</tspan> paper LP-2ST<") == text.count("</tspan> paper LP-2ST (local)<") == 1
    assert "LP-2ST, epsilon 4: 99.24" in text and "ours: best-local, epsilon 1: 98.10" in text
    page = write_page(tmp_path / "page.html", found.values()).read_text()
    assert (
        "<td>98.10 ± 0.14<small>2 runs, 10.0 s each<br>of an earlier recipe</small></td>" in page
        and "Targets missed by an earlier recipe: epsilon 1" in page
    )


def test_without_runs_published_points_are_drawn(tmp_path):
    local, curator = sheets()["mnist", "local"], sheets()["mnist", "curator"]
    text = write_svg(tmp_path / "mnist.svg", [local, curator]).read_text()
    assert "LP-2ST, epsilon 4: 99.24" in text and "ours" not in text and text.count('class="title"') == 1
    assert any("In the plot, LabelDP-Pro" in note for note in local.notes)
    assert "LP-2ST, epsilon 4: 99.24" in write_page(tmp_path / "page.html", [local]).read_text()
    assert write_svg(tmp_path / "none.svg", [curator]) is None and not (tmp_path / "none.svg").exists()


def test_a_target_is_met_or_missed_by_the_recipe_as_it_was_when_it_was_run():
    whole = {
        ("best-local", cell.epsilon): cell for cell in pooled([run(98.0), run(97.0, epsilon="2", recipe_hash="b")])
    }
    assert verdicts(whole, {"1": 97.0, "2": 98.0}, "local", "accuracy", {"b"}) == [
        "Targets missed by an earlier recipe: epsilon 2 (97.00 of 98.00).",
        "Targets met: epsilon 1 (98.00 of 97.00).",
    ]


def test_the_figure_of_ssl_priors_shows_all_of_its_recipes_and_no_targets_of_ours():
    found = sheets(table="ssl-prior")
    assert "paper-ssl-prior" in found["cifar-10", "curator"].heads
    assert "paper-uniform-small" in found["fashion-mnist", "local"].heads
    assert not any("target" in sheet.heads or "Targets" in " ".join(sheet.notes) for sheet in found.values())


def test_sheets_of_ssl_priors_are_not_headed_nor_placed_like_those_of_the_main_tables(tmp_path):
    ours = [run(98.0, dataset="cifar-10", trust="curator", recipe=name) for name in ("paper-ssl-prior", "best-curator")]
    prior, main = (
        sheets(one, table=t)["cifar-10", "curator"] for one, t in zip(ours, ("ssl-prior", "cifar-10"), strict=True)
    )
    assert prior.title == "Priors from self-supervised features: CIFAR-10, curator: test accuracy in percent"
    assert main.title == "CIFAR-10, curator: test accuracy in percent"
    page = write_page(tmp_path / "page.html", [prior, main]).read_text()
    assert page.count('id="cifar-10-curator"') == 1 and page.count('id="ssl-prior-cifar-10-curator"') == 1
    assert prior.short_title == "ssl-prior: CIFAR-10, curator"  # of a panel, which is narrow
    assert "self-supervised" not in write_svg(tmp_path / "prior.svg", [prior]).read_text().split("</text>")[0]


def test_panels_side_by_side_have_the_same_scale(tmp_path):
    one = sheets(run(90.0, dataset="kmnist"), table="kmnist")["kmnist", "local"]
    other = sheets(run(20.0, dataset="kmnist", trust="curator", recipe="best-curator"), table="kmnist")
    alone = write_svg(tmp_path / "a.svg", [one]).read_text()
    beside = write_svg(tmp_path / "b.svg", [one, other["kmnist", "curator"]]).read_text()
    assert "30\N{NO-BREAK SPACE}%" not in alone and beside.count("30\N{NO-BREAK SPACE}%") == 2


def test_a_picture_has_plain_colours_for_readers_that_know_no_variables(tmp_path):
    text = write_svg(tmp_path / "mnist.svg", list(sheets(run(98.0)).values())).read_text()
    variables = re.findall(r"(?:fill|stroke): var\(--\w+\)", text)
    assert variables and len(re.findall(r"(fill|stroke): #\w{6}; \1: var\(--\w+\)", text)) == len(variables)
