"""The page in a real browser: it fits a desk and a phone, and its figures are drawn. Runs where Chromium is installed."""

import html
import re
import shutil
import subprocess

import example_run
import pytest

from labeldp import report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--hide-scrollbars"),
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

WRAPPER = """<!doctype html><meta charset="utf-8"><body style="margin: 0">{frames}<pre id="found"></pre><script>
const measure = frame => {{
  const page = frame.contentDocument, root = page.documentElement, texts = [...page.querySelectorAll("svg.figure text")];
  const outside = [...page.querySelectorAll("main *")].filter(one =>
    !one.closest(".scroll, pre, svg") && one.getBoundingClientRect().right > root.clientWidth + 1);
  const cut = texts.filter(one => {{
    const box = one.getBoundingClientRect(), around = one.ownerSVGElement.getBoundingClientRect();
    return box.left < around.left - 1 || box.right > around.right + 1 || box.bottom > around.bottom + 1;
  }});
  const smallest = Math.min(...texts.map(one =>
    parseFloat(getComputedStyle(one).fontSize) * one.ownerSVGElement.getScreenCTM().a));
  return [root.clientWidth, root.scrollWidth, outside.length, cut.length, smallest.toFixed(1)].join(" ");
}};
onload = () => found.textContent = [...document.querySelectorAll("iframe")].map(measure).join("|");
</script>"""


def browse(folder, *arguments):
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def pages(finished, tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    report.write_comparison(path, example_run.COMPARISON, title="A comparison", about="Of methods.")
    return [finished / "report.html", path]


def test_no_page_is_wider_than_its_window_and_no_figure_cuts_its_text(pages, tmp_path):
    frame = '<iframe style="border: 0; width: {width}px; height: 900px" srcdoc="{page}"></iframe>'
    frames = [
        frame.format(width=width, page=html.escape(page.read_text(encoding="utf-8")))
        for width in (1280, 390)
        for page in pages
    ]
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(WRAPPER.format(frames="".join(frames)), encoding="utf-8")
    found = re.search(r'<pre id="found">(.*?)</pre>', browse(tmp_path, "--dump-dom", wrapper.as_uri()))[1]
    for line, width in zip(found.split("|"), (1280, 1280, 390, 390), strict=True):
        client, scroll, outside, cut, smallest = line.split()
        assert (int(client), int(scroll)) == (width, width)
        assert outside == "0" and cut == "0"
        assert float(smallest) >= 8.5  # pixels, the numbers of the confusion matrix on a phone


@pytest.mark.parametrize("width", [1280, 500])  # a window cannot be narrower; the phone is measured above
def test_the_page_can_be_photographed(pages, tmp_path, width):
    picture = tmp_path / "page.png"
    browse(tmp_path, f"--screenshot={picture}", f"--window-size={width},1600", pages[0].as_uri())
    image = pytest.importorskip("PIL.Image").open(picture).convert("RGB")
    assert image.width == width and len(image.getcolors(maxcolors=2**20)) > 50  # not a blank sheet
