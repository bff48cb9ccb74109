"""One library, behind the calls that experiments need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

Values = dict[str, "np.ndarray[Any, np.dtype[Any]]"]
Live = Any
"""What a program holds: a model, or a tree of arrays."""


class Late(NamedTuple):
    """A kind of model that makes variables late: how it is made, and how it is called."""

    make: Callable[[], Live]
    call: Callable[[Live], object]


class Peer:
    """How a library's users save and restore; subclasses say which library.

    A checkpoint is a file or directory at ``path``, the next of a series is one in ``folder``. Libraries with a manager of
    series override `save_next` and `restore_newest`; for the others they do what programs do: a number in the name,
    and the highest wins.

    Attributes:
        title: What it is called in the table.
        packages: The packages whose versions matter, the first of which is imported.
        name: The name of a checkpoint at a path.
        numbered: The name of a checkpoint of a series.
        shares: Whether it has `save_share` and `restore_shares`; None where that was not tried.
    """

    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    name: ClassVar[str] = "checkpoint"
    numbered: ClassVar[str] = "checkpoint-{}"
    shares: ClassVar[bool | None] = False

    def hold(self, values: Values) -> Live:
        """Live objects with these values, each ``float32[128, n]``."""
        raise NotImplementedError

    def values(self, live: Live) -> Values:
        """The values of live objects now."""
        raise NotImplementedError

    def write(self, live: Live, path: Path) -> None:
        """Saves to a path, where a checkpoint may be already."""
        raise NotImplementedError

    def read(self, live: Live, path: Path) -> None:
        """Restores from a path."""
        raise NotImplementedError

    def tell(self, live: Live, path: Path) -> str:
        """Restores, and returns what the library's means of checking the restore say."""
        raise NotImplementedError

    def save_next(self, live: Live, folder: Path, number: int) -> None:
        """Saves the next checkpoint of a series."""
        self.write(live, folder / self.numbered.format(number))

    def restore_newest(self, live: Live, folder: Path) -> None:
        """Restores the newest checkpoint of a series."""
        number = max(number for number in range(10) if (folder / self.numbered.format(number)).exists())
        self.read(live, folder / self.numbered.format(number))

    def unbuilt(self) -> Mapping[str, Late]:
        """Models that make variables, with random values, when they are first called; by what makes them."""
        raise NotImplementedError

    def save_share(self, path: Path, rank: int, port: int) -> None:
        """Saves, as one of two processes that meet at a port, half of the rows of ``distinct(1, "rows")``."""
        raise NotImplementedError

    def restore_shares(self, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
        """Restores all the rows that two processes saved."""
        raise NotImplementedError

    def map(self, path: Path) -> object | None:
        """Loads values without reading them yet, or returns None where there is no such way."""
        return None

    def exploits(self, path: Path, code: str) -> list[tuple[str, Callable[[], object]]]:
        """Further ways to have a checkpoint run Python code: what each is, and the restore that would run it.

        Those whose name starts with ``trusting`` use an option that the documentation says is for trusted files.
        """
        return []


def distinct(number: int, *names: str) -> Values:
    """Values that differ for each number and name."""
    random = np.random.default_rng(number)
    return {name: random.normal(size=(128, 128)).astype(np.float32) for name in names or ("alpha", "beta", "gamma")}


def equal(one: Values, other: Values) -> bool:
    """Whether all values are the same, bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )
