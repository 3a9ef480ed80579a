"""The page: its frame, its style, and the few pieces it is made of. Whatever comes in as text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as html_escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from labeldp.files import renamed_when_whole
from labeldp.report.words import printable

Legend = Sequence[tuple[str, str, str]]
"""Entries of a sign such as ●, the name of a colour such as blue, and words."""


def escape(text: Any) -> str:
    """Return text that is only text to a browser."""
    return html_escape(printable(text), quote=True)


def paragraph(*sentences: str, kind: str = "") -> str:
    """Return sentences as a paragraph."""
    return f"<p{_class(kind)}>{escape(' '.join(sentences))}</p>"


def section(name: str, heading: str, *parts: str) -> str:
    """Return a section, which its id can be found by."""
    return f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n' + "\n".join(filter(None, parts)) + "\n</section>"


def side_by_side(*parts: str) -> str:
    """Return parts next to each other, or below each other where there is no room."""
    return '<div class="halves">\n' + "\n".join(f"<div>{part}</div>" for part in parts) + "\n</div>"


def cards(facts: Iterable[tuple[str, str, str]]) -> str:
    """Return key facts: a name, a value and a remark each."""
    each = (
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(remark)}</span></dd></div>"
        for name, value, remark in facts
    )
    return f'<dl class="cards">{"".join(each)}</dl>'


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """Return names and what they mean for this run."""
    return f'<dl class="facts">{"".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in entries)}</dl>'


def bullets(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list whose entries start with a word to find them by."""
    return f"<ul>{''.join(f'<li><b>{escape(n)}</b> {escape(v)}</li>' for n, v in entries)}</ul>"


def figure(heading: str, svg: str, *, caption: str, legend: Legend = ()) -> str:
    """Return a figure on its card; `svg` was made by labeldp.report.svg."""
    signs = "".join(
        f'<span><i style="color:var(--{escape(colour)})">{escape(sign)}</i>{escape(words)}</span>'
        for sign, colour, words in legend
    )
    above = f"<h3>{escape(heading)}</h3>" + (f'<div class="legend">{signs}</div>' if signs else "")
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="card">{above}{svg}{below}</figure>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[int] = ()) -> str:
    """Return a table that scrolls inside its own box; the columns in `words` hold words, the others numbers.

    What stands on further lines of a cell is told small, below the first.
    """

    def cell(tag: str, column: int, value: str) -> str:
        first, *more = map(escape, value.split("\n"))
        small = f"<small>{'<br>'.join(more)}</small>" if more else ""
        return f"<{tag}{_class('words' if column in words else '')}>{first}{small}</{tag}>"

    top = "".join(cell("th", column, name) for column, name in enumerate(head))
    body = "".join(f"<tr>{''.join(cell('td', c, value) for c, value in enumerate(row))}</tr>" for row in rows)
    return (
        f'<div class="card"><div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="caption">{escape(caption)}</p></div>'
    )


def folded(summary: str, text: str) -> str:
    """Return text as it stands, behind a line to open it by."""
    return f'<details class="card"><summary>{escape(summary)}</summary><pre tabindex="0">{escape(text)}</pre></details>'


def code(text: str) -> str:
    """Return a command as one types it."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def banner(heading: str, text: str) -> str:
    """Return something that nobody can overlook."""
    return f'<div class="banner" role="alert"><strong>{escape(heading)}</strong> {escape(text)}</div>'


def contents(entries: Iterable[tuple[str, str]]) -> str:
    """Return links to the sections of the page."""
    links = "".join(f'<a href="#{name}">{escape(words)}</a>' for name, words in list(entries)[1:])
    return f'<nav aria-label="Contents">{links}</nav>'


def frame(title: str, *, eyebrow: str, about: str, top: str, body: Iterable[str]) -> str:
    """Return the whole page. It needs no script and no network, and its policy allows none."""
    style = files("labeldp.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{top}
<header>
<p class="eyebrow">{escape(eyebrow)}</p>
<h1>{escape(title)}</h1>
{paragraph(about, kind="lead") if about else ""}
</header>
{chr(10).join(body)}
<footer>Written by labeldp. One file: no scripts, no network, no label of any training row.</footer>
</main>
</body>
</html>
"""


def write(path: Path, page: str) -> Path:
    """Write a page so that whoever looks finds the old one or the new one, and never half of one."""
    with renamed_when_whole(path) as file:
        file.write(page.encode())
    return path


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
