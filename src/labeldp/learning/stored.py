"""What a multi-stage run keeps on disk, so that a stage whose release exists is read back and never asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole
from labeldp.vault import HistogramRelease, Release

Answer = TypeVar("Answer", Release, HistogramRelease)


class StageFiles:
    """Releases, the priors they were asked with, and checkpoints, in one folder; or nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)  # before anything is spent that must be stored in it

    def answer(self, kind: type[Answer], stage: str, ask: Callable[[], Answer]) -> Answer:
        """Return the stage's stored answer, or ask for it and store it."""
        if self.folder is None:
            return ask()
        path = self.folder / stage
        if path.with_name(f"{stage}.json").exists():
            answer = kind.load(path)
        else:
            answer = ask()
            answer.save(path)
        self._priors_file(stage).unlink(missing_ok=True)
        return answer

    def priors(self, stage: str, compute: Callable[[], Any], *, about: str) -> Any:
        """Return the stage's priors, fixed on disk before the first time they are used.

        A run that is killed after the vault has answered must ask the very same again, and a model's last bits may depend on
        the number of threads.
        """
        if self.folder is None:
            return compute()
        file = self._priors_file(stage)
        if file.exists():
            with np.load(file, allow_pickle=False) as stored:
                if str(stored["about"]) != about:
                    raise InvalidArgument(
                        f"{file} holds priors that were made in another way and may have been asked with: go on with their "
                        "temperature and prior, or use another folder."
                    )
                return stored["priors"]
        priors = compute()
        if priors is not None:
            with renamed_when_whole(file) as out:
                np.savez(out, allow_pickle=False, priors=priors, about=np.array(about))
        return priors

    def checkpoint(self, number: int, bag_round: int = 0) -> Path | None:
        name = f"checkpoint-{number}-{bag_round}.pt" if bag_round else f"checkpoint-{number}.pt"
        return None if self.folder is None else self.folder / name

    def student_checkpoint(self, number: float, lesson_round: int) -> Path | None:
        return None if self.folder is None else self.folder / f"checkpoint-student-{number:g}-{lesson_round}.pt"

    def _priors_file(self, stage: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{stage}.priors.npz"
