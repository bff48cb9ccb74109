"""Other names by which saved children and values are matched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from milepost.graph.contract.values import Array
from milepost.tensor import TensorSpec


class SavedState(NamedTuple):
    """What was saved for an object that loads its state by code of its own, besides what its leaves have taken.

    Attributes:
        others: The saved values that no leaf has taken, by their names, whose levels are separated by dots.
        versions: What a framework has noted of each saved object, such as the version of its class, by the same names; None if that is not known.
        restored: The identities of the live leaves that have taken values.
        kept: The identities of the leaves that are to keep their values, because the program has asked for that.
        undo: Takes a function that puts back what `Matching.load_saved` is about to change.
    """

    others: Mapping[str, Array]
    versions: Mapping[str, Any] | None
    restored: Collection[int]
    kept: Collection[int]
    undo: Callable[[Callable[[], object]], object]


class LoadedState(NamedTuple):
    """What an object has loaded by code of its own.

    Attributes:
        taken: The names of `SavedState.others` that it has taken.
        filled: The leaves without saved values that have got values.
    """

    taken: Collection[str]
    filled: Collection[Any]


class Matching:
    """How to match a saved object that another version, or another framework, has written under other names.

    An adapter of objects whose names never changed overrides nothing here.
    """

    open_ended: bool = False
    """Set if objects accept all tensors that were saved for them, of any name, shape and type."""

    hints: frozenset[str] = frozenset()
    """Names of what `hints_to_save` returns, such as the strides of a tensor. `assign` gets it in addition to the values, if it was saved;
    but not if the values are read straight into memory, because then `assign` is not called."""

    def hints_to_save(self, obj: Any) -> Mapping[str, Array]:
        """What a restore needs besides the values to make the object as it is: a few integers or booleans by name, as arrays.

        They are in the object graph. They are no tensors of the checkpoint, and nothing lists or counts them.
        """
        return {}

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

    def adapted(self, obj: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
        """The leaves below ``obj`` that `load_saved` gives values of the shapes that they have, although the saved ones have others. It must
        change nothing.

        Args:
            obj: The object.
            saved: As for `reshaped`.
        """
        return ()

    def loads_saved(self, obj: Any) -> bool:
        """Whether `load_saved` may do something with what was saved for ``obj``. It must take no more than a few steps."""
        return False

    def load_saved(self, obj: Any, saved: SavedState) -> LoadedState | None:
        """Makes ``obj`` load what was saved for it by code of its own, which may rename, convert or fuse values of older versions.

        It is called when the leaves below ``obj`` have the values that were saved under their names.

        Args:
            obj: The object.
            saved: What else is known of the saved object.

        Returns:
            What it has loaded; None if it has nothing to do.
        """
        return None

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
