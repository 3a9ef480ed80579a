"""README, docs and docstrings run as they are printed."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeldp

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(labeldp.__path__, "labeldp.")
    if name.split(".")[1] not in ("torch", "sklearn")
]
NAMES = {"ldp": labeldp, "np": np}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_the_readmes_program_runs_as_pasted(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert program == (ROOT / "examples" / "survey.py").read_text()
    (tmp_path / "pasted.py").write_text(program)
    ran = subprocess.run([sys.executable, "pasted.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    public, without, private, constant, promise, refusal = ran.stdout.splitlines()
    assert "This survey is public" in public and "epsilon 0 is left" in refusal
    right = [float(re.search(r"([\d.]+)% right", line)[1]) for line in (without, private, constant)]
    assert 70 < right[0] < 75 and 60 < right[1] < 75 and right[2] == 67.9
    assert promise.startswith("Label differential privacy with epsilon 1 for every label")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=NAMES, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_examples_exist_where_they_are_promised():
    finder = doctest.DocTestFinder()
    for thing in (
        labeldp.LabelVault,
        labeldp.RandomizedResponse,
        labeldp.RRTopK,
        labeldp.RRWithPrior,
        labeldp.GroupedResponse,
        labeldp.UnbiasedResponse,
        labeldp.Guarantee,
        labeldp.Epsilon,
    ):
        assert any(test.examples for test in finder.find(thing)), f"{thing.__name__} has no example"
    assert any(">>>" in page.read_text() for page in PAGES)
