"""The names that values get in a new file, and which values are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from milepost.bundle import BundleReader
from milepost.engine.translation import Translation
from milepost.graph.keys import SLOT
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.renaming import renamed
from milepost.graph.saved.selection import selected


class Naming(Protocol):
    """What gives values their names in a new file."""

    def __call__(self, name: str) -> str | None:
        """The new name of a value, by its saved name; None if it is left out."""
        ...

    @property
    def knows_others(self) -> bool:
        """Whether it has new names for the other names of objects, too."""
        ...

    def further(self, name: str) -> Sequence[str]:
        """More new names of a value that has one, by its saved name."""
        ...

    def takes(self, path: str) -> bool:
        """Whether a value or slot variable may not be left out, by its saved path."""
        ...

    def ignores(self, path: str) -> bool:
        """Whether it is left out by ``ignore``."""
        ...

    def warn_of_unused(self, reader: BundleReader) -> None:
        """Warns of what the user says and what is in no name of the file. All values have got their names before."""
        ...


class GivenNames:
    """Names that are known beforehand. All other values are left out.

    Args:
        names: The new names of each value, by saved names.
    """

    knows_others = False

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = names

    def __call__(self, name: str) -> str | None:
        """The new name of a value, by its saved name; None if it is left out."""
        return self._names[name][0] if name in self._names else None

    def further(self, name: str) -> Sequence[str]:
        """More new names of a value that has one, by its saved name."""
        return self._names[name][1:]

    def takes(self, path: str) -> bool:
        """Whether a value or slot variable is not left out, by its saved path."""
        return path in self._names

    def ignores(self, path: str) -> bool:
        """No value is left out by ``ignore``."""
        return False

    def warn_of_unused(self, reader: BundleReader) -> None:
        """Does nothing: what the user says was used where the names were made."""


class NewNames:
    """Gives values their new names.

    A value is left out if ``ignore`` has its saved or its new name, or ``only`` has neither. What that means for slot variables, `Translation`
    says.

    Args:
        translation: What the user says.
        dotted: Whether saved names are separated by dots, as those of PyTorch are.

    Example:
        >>> names = NewNames(Translation({"model": ""}, only="model"))
        >>> names("model/w"), names("epoch"), names("model/w/.OPTIMIZER_SLOT/optimizer/m")
        ('w', None, None)
    """

    def __init__(self, translation: Translation, *, dotted: bool = False) -> None:
        self._renaming = Translation(translation.rename, tell=translation.tell)
        self._ignoring = Translation(ignore=translation.ignore, tell=translation.tell)
        self._only = Translation(only=translation.only, tell=translation.tell)
        self._dotted = dotted
        self.knows_others = not callable(translation.rename)
        self._known: dict[str, str | None] = {}

    def __call__(self, name: str) -> str | None:
        """The new name of a value, by its saved name; None if it is left out."""
        self._known[name] = new = self._renaming.live_path(name, dotted=self._dotted)
        return new if self._selects([name] if new is None else [name, new]) else None

    def further(self, name: str) -> Sequence[str]:
        """No value has more new names."""
        return ()

    def takes(self, path: str) -> bool:
        """Whether a value or slot variable may not be left out, by its saved path. A function as ``rename`` is not called here, and may leave it out."""
        if not callable(self._renaming.rename):
            return self(path) is not None
        if path not in self._known:
            return SLOT not in path or self._selects([path])
        return self._selects([*filter(None, [path, self._known[path]])])

    def ignores(self, path: str) -> bool:
        """Whether ``ignore`` names a value."""
        return self._ignoring.ignores(path)

    def _selects(self, names: Sequence[str]) -> bool:
        """Whether ``ignore`` and ``only`` do not leave out the value of these names."""
        for selection in (self._ignoring, self._only):
            for each in names:
                selection.unused.met_live(each)
        if any(map(self._ignoring.leaves_alone, names)):
            return False
        return any(not self._only.leaves_alone(each, counter=True) for each in names)

    def warn_of_unused(self, reader: BundleReader) -> None:
        """Warns of what the user says and what is in no name of the file. All values have got their names before."""
        for translation in (self._renaming, self._ignoring, self._only):
            translation.warn_of_unused(reader, dotted=self._dotted)


def renamed_graph(graph: ObjectGraph, names: Naming) -> tuple[ObjectGraph, list[str]]:
    """An object graph with the new names, and the keys of the values that ``rename`` leaves out. Errors are those of `milepost.graph.saved.renaming.renamed`."""
    return renamed(selected(graph, names.takes, names.ignores).graph, names, others=names.knows_others)
