"""Write figures into the pages that show them, so that no page shows a figure that was not computed."""

from __future__ import annotations

from pathlib import Path


def rewrite(page: Path, tables: dict[str, str]) -> None:
    """Put tables between their marks in a page."""
    text = page.read_text()
    for name, table in tables.items():
        before, rest = text.split(f"<!-- {name} -->\n")
        _, after = rest.split(f"<!-- end {name} -->")
        text = f"{before}<!-- {name} -->\n{table}\n<!-- end {name} -->{after}"
    page.write_text(text)
