"""Places of plain values: numbers (NumPy's scalars too), text and None that a program has put into a checkpoint.

Such a value is state if it is an attribute of a `Checkpoint`, or a member of a list, dict or tuple that is reached from one
through lists, dicts and tuples only. The same value in an attribute of a `Module` or of a framework's object is a setting.

Numbers have no identity, so their places are saved and restored (`milepost.graph.trees.places`). A tuple cannot change, so a tuple
with plain values is a place too, and a restore replaces it by a new tuple. Other objects in such a tuple are nodes of their
own.
"""

from __future__ import annotations

from typing import Any, Final

from milepost.graph.adapter import adapter_of
from milepost.graph.contract.operation import Operation
from milepost.graph.plain.values import PLAIN, TYPE_NAMES
from milepost.graph.trees.places import Place, TreeNode, place_of_tree
from milepost.graph.trees.structure import is_functional, is_tuple


class StateHolder:
    """The base of objects whose plain values are state."""

    __slots__ = ()

    _is_state = True
    """Whether the plain values of this object are state."""


class PlainLeaf(Place):
    """The place of a plain value."""

    __slots__ = ()


class PlainNode(TreeNode, StateHolder):
    """The place of a tuple with plain values."""

    __slots__ = ()

    @staticmethod
    def _kind_below(child: Any) -> type[Place] | None:
        return kind_of_plain_place(child, in_tuple=True)


class Unsaveable:
    """An attribute that cannot be saved: its `Checkpoint` has a root, and it is not an attribute of the root.

    Args:
        value: The attribute.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


PLAIN_TYPES: Final = frozenset(TYPE_NAMES.values())
"""The names of the types of plain values, as the object graph has them."""
PLAIN_PLACES: Final = (PlainLeaf, PlainNode)


def holds_state(obj: Any) -> bool:
    """Whether plain values that an object holds are state."""
    return issubclass(type(obj), StateHolder) and obj._is_state


def plain_place(operation: Operation, holder: Any, name: str, child: Any) -> Place | None:
    """The place of a child that is a plain value or a tuple with plain values. None for any other child.

    Args:
        operation: The operation, which knows the value of the place then.
        holder: The object that holds the child, or will hold it. `holds_state` is true for it.
        name: The name of the edge.
        child: The child.
    """
    kind = kind_of_plain_place(child)
    return None if kind is None else place_of_tree(operation.held, holder, name, child, kind)


def kind_of_plain_place(value: Any, *, in_tuple: bool = False) -> type[Place] | None:
    """The kind of place for a plain value or a tuple with plain values. None for any other value.

    Args:
        value: The value.
        in_tuple: Whether a tuple with plain values holds it.
    """
    kind = type(value)
    if kind in PLAIN:
        return PlainLeaf
    if not is_tuple(kind) or is_functional(value) or not (in_tuple or _holds_plain(value)):
        return None
    return PlainNode


def _holds_plain(value: tuple[Any, ...]) -> bool:
    """Whether a tuple is empty, or has a member that only a place can save or refuse. Tuples in it are searched too."""
    tuples = [value]
    for holder in tuples:
        if not holder:
            return True
        for member in holder:
            if is_tuple(type(member)):
                tuples.append(member)
            elif type(member) in PLAIN or adapter_of(member) is None:
                return True
    return False
