"""A comparison shows every draw, and never mixes what promises different things."""

import re

import example_run
import pytest

import labeldp as ldp
from labeldp import report

TITLE, ABOUT = "Reports of groups gain most at small epsilon", "Handwritten digits, three draws each."


def compare(path, rows=example_run.COMPARISON, **options):
    return report.write_comparison(path, rows, title=TITLE, about=ABOUT, **options).read_text(encoding="utf-8")


def test_every_draw_has_a_dot_and_every_mean_a_mark(tmp_path, marks_of):
    marks = marks_of(compare(tmp_path / "page.html"))["comparison"]
    draws = sum(number for mark, number in marks.items() if mark.startswith("draws"))
    means = sum(number for mark, number in marks.items() if mark.startswith("mean"))
    assert draws == sum(len(row["values"]) for row in example_run.COMPARISON) and means == len(example_run.COMPARISON)


def test_the_table_holds_mean_and_spread(tmp_path):
    page = compare(tmp_path / "page.html")
    assert "<td>90.7 ± 0.5</td>" in page and "mean ± standard deviation of 2 or 3 draws" in page
    assert f"<h1>{TITLE}</h1>" in page and ABOUT in page and "study of the method" in page


def test_a_single_draw_is_called_one(tmp_path, marks_of):
    page = compare(tmp_path / "page.html", [{"method": "RR", "epsilon": 1, "values": [0.5]}])
    assert marks_of(page)["comparison"] == {"mean-1": 1} and "single draw" in page and "<td>50.0</td>" in page


def test_trust_models_get_a_figure_and_a_table_each(tmp_path, marks_of):
    rows = [
        {"method": "RR", "epsilon": "1", "values": [0.8, 0.81], "trust": "local"},
        {"method": "histogram", "epsilon": "1", "values": [0.9, 0.91], "trust": "curator"},
        {"method": "labels", "epsilon": "inf", "values": [0.95]},
    ]
    page = compare(tmp_path / "page.html", rows)
    marks = marks_of(page)
    assert set(marks) == {"comparison-local", "comparison-curator"}
    assert re.findall(r"<th>(\w+)</th>", page) == ["epsilon", "RR", "labels", "epsilon", "histogram", "labels"]


def test_errors_are_compared_as_errors(tmp_path):
    page = compare(tmp_path / "p.html", [{"method": "RR", "epsilon": "1", "values": [0.98, 1.0]}], measure="rmse")
    assert "RMSE against epsilon" in page and "<td>0.990 ± 0.014</td>" in page


def test_certificates_are_shown_and_a_false_one_is_loud(tmp_path, promise):
    page = compare(tmp_path / "page.html", certificates=[promise])
    assert "Certificate 1 of 1" in page and promise["guarantee"] in page and "NOT PRIVATE" not in page
    page = compare(tmp_path / "page.html", certificates=[promise, promise | {"private": False}])
    assert page.index("<strong>NOT PRIVATE</strong>") < page.index("<h1>")


def test_nothing_is_loaded_and_everything_escaped(tmp_path):
    hostile = "<img src=http://x onerror=y>\x00$x$"
    rows = [{"method": hostile, "epsilon": "1", "values": [0.5, 0.6]}]
    page = report.write_comparison(tmp_path / "page.html", rows, title=hostile, about=hostile).read_text(
        encoding="utf-8"
    )
    assert "<img" not in page and "\x00" not in page and re.findall(r'(?:src|href)="(?!#)', page) == []


def test_writing_twice_gives_the_same_bytes(tmp_path):
    assert compare(tmp_path / "one.html") == compare(tmp_path / "two.html")


@pytest.mark.parametrize(
    "row",
    [
        {"method": "RR", "values": [0.5]},
        {"method": "RR", "epsilon": "0", "values": [0.5]},
        {"method": "RR", "epsilon": "nan", "values": [0.5]},
        {"method": "RR", "epsilon": "1", "values": []},
        {"method": "RR", "epsilon": "1", "values": [float("nan")]},
        {"method": "RR", "epsilon": "1", "values": [0.5], "trust": "nobody"},
    ],
)
def test_a_row_that_cannot_be_drawn_is_refused(tmp_path, row):
    with pytest.raises(ldp.InvalidArgument):
        compare(tmp_path / "page.html", [row])
    assert not list(tmp_path.iterdir())


def test_no_rows_are_refused(tmp_path):
    with pytest.raises(ldp.InvalidArgument, match="at least one record"):
        compare(tmp_path / "page.html", [])
