"""What the report's tests share: a realistic run, made once and copied."""

from __future__ import annotations

import re
import shutil
from xml.etree import ElementTree

import example_run
import pytest

from labeldp import report


@pytest.fixture(scope="session")
def promise():
    """Return a real certificate."""
    return example_run.certificate()


@pytest.fixture(scope="session")
def finished(tmp_path_factory, promise):
    """Return the folder of a run that came to its end, with its report."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    example_run.write(folder, metrics=example_run.records(), promise=promise)
    report.write_run(folder, classes=example_run.CLASSES)
    return folder


@pytest.fixture
def copy_of(finished, tmp_path):
    """Copy the finished run and alter its files by name; None removes one."""

    def alter(**files):
        folder = tmp_path / "copy"
        shutil.copytree(finished, folder)
        for name, text in files.items():
            file = next(file for file in folder.iterdir() if file.stem == name)
            file.unlink()
            if text is not None:
                file.write_text(text, encoding="utf-8")
        return folder

    return alter


@pytest.fixture(scope="session")
def marks_of():
    """Count the marks of a page's figures: {figure: {mark: number}}."""

    def count(page):
        found = {}
        for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
            for group in ElementTree.fromstring(svg).iter():
                figure, _, mark = group.get("id", "").partition("--mark-")
                if mark:
                    found.setdefault(figure, {})[mark] = len(list(group.iter("use"))) or 1
        return found

    return count
