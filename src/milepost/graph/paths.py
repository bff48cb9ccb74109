"""The paths of the objects of a walk, each made when it is asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from milepost.graph.keys import LONGEST_PATH, child_path, escape


class Paths(Sequence[str]):
    """The path of each object from the root, by its number.

    For each object, the number of the object above it and the escaped name of the edge are kept. The paths themselves would
    have n * n characters for a chain of n objects.

    Example:
        >>> paths = Paths()
        >>> paths.add(0, ["net"]); paths.add(1, ["a.b"]); paths.add_whole("net/.OPTIMIZER_SLOT/m")
        >>> list(paths), paths[2]
        (['', 'net', 'net/a..b', 'net/.OPTIMIZER_SLOT/m'], 'net/a..b')
    """

    __slots__ = ("_above", "_known", "_lengths", "_names")

    def __init__(self) -> None:
        self._above = [-1]
        self._names = [""]
        self._lengths = array("l", [0])
        self._known = 0, ""

    def add(self, above: int, names: Sequence[str]) -> None:
        """Adds the paths of the next objects.

        Args:
            above: The number of the object that holds them.
            names: The name of the edge to each.

        Raises:
            UntrackableError: A path is too long; see `child_path`.
        """
        names = [escape(name) if "." in name or "/" in name else name for name in names]
        before = self._lengths[above] + 1 if above else 0
        lengths = [before + len(name) for name in names]
        if max(lengths, default=0) > LONGEST_PATH:
            child_path(self[above], max(names, key=len), is_root=not above)
        self._above += [above] * len(names)
        self._names += names
        self._lengths.extend(lengths)

    def add_whole(self, path: str) -> None:
        """Adds the path of the next object, which is a slot variable."""
        self._above.append(-1)
        self._names.append(path)
        self._lengths.append(len(path))

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        above, name = self._above[index], self._names[index]
        return name if above <= 0 else f"{self._path_above(above)}/{name}"

    def __iter__(self) -> Iterator[str]:
        last, path = 0, ""
        for above, name in zip(self._above, self._names, strict=True):
            if above <= 0:
                yield name
                continue
            if above != last:
                last, path = above, self._path_above(above)
            yield f"{path}/{name}"

    def _path_above(self, number: int) -> str:
        """The path of an object that is not the root. It is remembered for the other objects below it."""
        known, path = self._known
        if number != known:
            names: list[str] = []
            at = number
            while at > 0 and at != known:
                names.append(self._names[at])
                at = self._above[at]
            if at > 0:
                names.append(path)
            path = "/".join(reversed(names))
            self._known = number, path
        return path
