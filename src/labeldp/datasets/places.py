"""Where the publishers' files are looked for. Nothing is downloaded; a missing file is a message on what to put where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from labeldp.errors import InvalidArgument

ENVIRONMENT = "LABELDP_DATA"
CACHE = "~/.cache/labeldp"

Place = str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True)
class Published:
    """One form in which a dataset is published: a folder, and its files, each with the names it may go by.

    The first name of each file is the one that a message asks for; `note` says what else will do.
    """

    folder: str
    files: tuple[tuple[str, ...], ...]
    note: str = ""

    def present(self, root: Path) -> list[Path | None]:
        """Return each file's path below a root, None where it is not there."""
        paths = ([root / self.folder / name for name in names] for names in self.files)
        return [next((path for path in choices if path.is_file()), None) for choices in paths]

    def asked_for(self) -> str:
        """Say what to put where."""
        note = f" ({self.note})" if self.note else ""
        return f"{', '.join(names[0] for names in self.files)}{note} in a folder {self.folder}"


def find(name: str, forms: tuple[Published, ...], *, publisher: str, data_dir: Place) -> tuple[Published, list[Path]]:
    """Return the first form whose files are all there, and their paths; the earlier place wins, then the earlier form."""
    places = roots(data_dir)
    looked_in = []
    for root in places:
        for form in forms:
            paths = form.present(root)
            found = [path for path in paths if path is not None]
            if len(found) == len(paths):
                return form, found
            lacking = [names[0] for names, path in zip(form.files, paths, strict=True) if path is None]
            looked_in.append(f"{root / form.folder} " + (f"(lacks {', '.join(lacking)})" if found else "(none there)"))
    raise InvalidArgument(
        f"The files of {name} were not found. Needed: {'; or '.join(form.asked_for() for form in forms)}. "
        f"Get them from {publisher}; labeldp downloads nothing. Put that folder into {places[0]}, or say where it is: "
        f"--data-dir (data_dir=.. in Python), or the environment variable {ENVIRONMENT}. Looked in: {'; '.join(looked_in)}."
    )


def roots(data_dir: Place) -> list[Path]:
    """Return the folders to look in, in order: the given one, LABELDP_DATA, ~/.cache/labeldp."""
    given = os.fspath(data_dir) if isinstance(data_dir, os.PathLike) else data_dir
    if given is not None and not (isinstance(given, str) and given):
        raise InvalidArgument("data_dir must be the path of a folder.")
    places = (given, os.environ.get(ENVIRONMENT), CACHE)
    return list(dict.fromkeys(Path(os.path.expanduser(place)) for place in places if place))
