"""The demo is the real thing: here with few epochs, because its figures are not what is tested."""

import re

import pytest
import torch
from click.testing import CliRunner

from labeldp.cli import demo


@pytest.fixture
def shown(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 2)
    monkeypatch.setattr(demo, "EPSILONS", ("2", "4"))
    threads = torch.get_num_threads()
    try:
        yield CliRunner().invoke(demo.demo, ["--draws", "2", "--out", str(tmp_path / "demo.html")])
    finally:
        torch.set_num_threads(threads)


def test_the_demo_compares_every_method_at_every_epsilon_and_draws_a_report(shown, tmp_path):
    assert shown.exit_code == 0, shown.output
    table = shown.stdout
    for method in demo.METHODS:
        (line,) = [line for line in table.splitlines() if line.split()[:1] == [method.name]]
        assert len(re.findall(r"[0-9.]+% ± [0-9.]+%", line)) == 2
    (line,) = [line for line in table.splitlines() if line.split()[:1] == ["non-private"]]
    assert len(re.findall(r"[0-9.]+% ± [0-9.]+%", line)) == 1
    page = (tmp_path / "demo.html").read_text()
    assert (
        all(method.name in page for method in demo.METHODS)
        and page.count("Label differential privacy with epsilon") == 2
    )


def test_where_no_bar_is_drawn_each_step_is_said_as_it_begins(shown):
    said = [line for line in shown.stderr.splitlines() if line.startswith("Training ")]
    assert len(said) == 14 and said[0] == "Training 1 of 14: without privacy, draw 1."
    assert said[-1] == "Training 14 of 14: labeldp at epsilon 4, draw 2."


def test_the_demo_shows_the_budget_hold_and_says_where_the_report_is(shown, tmp_path):
    said = " ".join(shown.stderr.split())
    assert "One more query on spent labels" in said and "epsilon 0 of epsilon 1 is left" in said
    assert "demo.html" in said.replace(" ", "")


def test_a_demo_writes_over_nothing_but_a_page(command, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("mine")
    for out, problem in ((table, "is no page"), (tmp_path / "none" / "page.html", "there is no folder")):
        code, _, err = command("demo", "--out", out)
        assert code == 2 and problem in err
    assert table.read_text() == "mine"
