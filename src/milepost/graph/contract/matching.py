"""By which names saved children and values are matched, beside their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any


class Matching:
    """How a saved object is recognised that another version, or another framework, has written under other names.

    An adapter of objects whose names never changed overrides nothing here.
    """

    open_ended: bool = False
    """Set where objects take whatever tensors were saved for them, of any name, shape and type."""

    hints: frozenset[str] = frozenset()
    """Names of saved values that `assign` takes in addition to those of `values`, such as the strides of a tensor.

    They are optional: without them nothing is missing, and nothing is left over if `assign` is not called, because the values were
    read straight into memory."""

    def aliases(self, obj: Any) -> Mapping[str, str]:
        """Other names that edges of a saved node may have, each with the name of the child it means."""
        return {}

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        """Children that saved edges are matched with although they are never saved under these names.

        They are matched last, after all that can be reached by ordinary names, so that those decide.

        Args:
            obj: The object.
            saved: The names of the saved edges, by which one tells who wrote them.
        """
        return ()

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        """Saved edges that are not to be followed, because their writer meant something else by the names below them.

        Args:
            obj: The object.
            saved: The names of the saved edges, by which one tells who wrote them.
        """
        return ()

    def exchanged(self, obj: Any) -> Collection[str]:
        """Names of children that the object replaces by others as it runs, such as buffers.

        A report counts the present child as the one that was restored.
        """
        return ()
