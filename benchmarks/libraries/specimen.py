"""One object of a library, behind the calls that are needed to try it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class UntriedError(Exception):
    """The object cannot be made or used here, for reasons in which milepost has no part."""


class Specimen:
    """An object of a library, with whatever it needs to be used.

    Two that were made with different seeds have different values. Afterwards nothing depends on the seed, so that two with
    the same values do the same.
    """

    def tracked(self) -> dict[str, Any]:
        """What a program would give to `milepost.Checkpoint`."""
        raise NotImplementedError

    def adopt(self, checkpoint: Any) -> None:
        """Takes what `milepost.Checkpoint` has after a restore, where that makes new objects."""

    def use(self, step: int) -> Any:
        """Uses it once, which changes it, and returns what came out."""
        raise NotImplementedError

    def account(self) -> Any:
        """What the library's own way of saving holds, as nested data."""
        raise NotImplementedError

    def save(self, path: Path) -> None:
        """Saves it in the library's own way."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        """Restores it in the library's own way."""
        raise NotImplementedError


class Parts(Specimen):
    """Objects that are saved each under its own name.

    Attributes:
        parts: The objects.
    """

    parts: dict[str, Any]

    def tracked(self) -> dict[str, Any]:
        return dict(self.parts)
