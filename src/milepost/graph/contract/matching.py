"""Other names by which saved children and values are matched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from milepost.tensor import TensorSpec


class Matching:
    """How to match a saved object that another version, or another framework, has written under other names.

    An adapter of objects whose names never changed overrides nothing here.
    """

    open_ended: bool = False
    """Set if objects accept all tensors that were saved for them, of any name, shape and type."""

    hints: frozenset[str] = frozenset()
    """Names of saved values that `assign` takes in addition to those of `values`, such as the strides of a tensor.

    They are optional. They do not count as missing if they were not saved, or as unexpected if `assign` is not called because
    the values were read straight into memory."""

    def aliases(self, obj: Any) -> Mapping[str, str]:
        """Other names that edges of a saved node may have, each with the name of the live child."""
        return {}

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        """Children to match with saved edges, although they are never saved under these names.

        They are matched last, after everything that ordinary names reach, so that ordinary names decide.

        Args:
            obj: The object.
            saved: The names of the saved edges. They show which framework wrote them.
        """
        return ()

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        """Saved edges that must not be followed, because their writer used the names below them for something else.

        Args:
            obj: The object.
            saved: The names of the saved edges. They show which framework wrote them.
        """
        return ()

    def reshaped(self, obj: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
        """The leaves to which ``obj`` gives the saved shape when its framework loads its state. It must change nothing.

        It is called if saved values have other shapes than their leaves. `Contents.assign` of a leaf that is returned gets an array of the
        saved shape, and `Contents.before_assign` must return what puts back the old one.

        Args:
            obj: The object.
            saved: The leaves of the whole restore whose shapes differ, each with the saved element type and shape.
        """
        return ()

    def exchanged(self, obj: Any) -> Collection[str]:
        """Names of children that the object replaces when it runs, such as buffers.

        A report counts the present child as restored.
        """
        return ()

    def converted(self, obj: Any) -> Collection[str]:
        """Names of children that a framework may have made of restored ones since, with the same values, such as DTensors.

        Such a child counts as the restored one if it holds the saved values, so that an optimizer that is made for it gets its
        slot variables.
        """
        return ()
