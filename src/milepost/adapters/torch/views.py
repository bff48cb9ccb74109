"""Parts of PyTorch objects that are no objects of their own: hyperparameters, extra state, counters of optimizers.

A view stands for such a part in the object graph. There is one of each as long as its owner lives, so that it can be
remembered what was restored.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from milepost.adapters.torch.memory import as_tensor
from milepost.errors import MilepostError, MismatchError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain_state import pack, unpack
from milepost.tensor import DType

_T = TypeVar("_T")
_views: Final[dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]]] = {}
"""By identity of the owner, for owners may compare as they like."""


def view_of(owner: Any, key: Hashable, make: Callable[[], _T]) -> _T:
    """The view of a part of an object, made when it is first asked for."""
    identity = id(owner)
    entry = _views.get(identity)
    if entry is None or entry[0]() is not owner:
        entry = _views[identity] = (weakref.ref(owner, lambda _: _views.pop(identity, None)), {})
    found: _T | None = entry[1].get(key)
    if found is None:
        found = entry[1][key] = make()
    return found


def forget_view(owner: Any, key: Hashable) -> None:
    """Drops a view, because its part is gone."""
    entry = _views.get(id(owner))
    if entry is not None and entry[0]() is owner:
        entry[1].pop(key, None)


class Part:
    """A part of an object that is plain Python state: numbers, text, tensors, lists and dicts of them.

    Args:
        owner: The object.
        get: Returns the part, given the owner.
        put: Replaces the part, given the owner and its new value.
        name: What to call it in errors.
    """

    __slots__ = ("__weakref__", "_owner", "get", "name", "put")

    def __init__(self, owner: Any, get: Callable[[Any], Any], put: Callable[[Any, Any], None], name: str) -> None:
        self._owner = weakref.ref(owner)
        self.get = get
        self.put = put
        self.name = name

    @property
    def owner(self) -> Any:
        """The object that this is a part of."""
        return self._owner()


class PartAdapter(Adapter):
    """`Part`: what `milepost.graph.plain_state` makes of it; takes a tensor that was saved as such, too."""

    open_ended = True

    def handles(self, kind: type) -> bool:
        return kind is Part

    def values(self, obj: Part) -> Sequence[Value]:
        packed = pack(obj.get(obj.owner), obj.name)
        return [Value(name, DType.of(array), array.shape, array) for name, array in packed.items()]

    def assign(self, obj: Part, arrays: Mapping[str, Array]) -> Part:
        array = arrays.get(VARIABLE_VALUE)
        state = unpack(arrays) if array is None else as_tensor(array.copy())
        try:
            obj.put(obj.owner, state)
        except MilepostError:
            raise
        except Exception as error:
            raise MismatchError(
                "the object refuses this state",
                key=obj.name,
                found=f"{type(error).__name__}: {error}",
                remedy="give the live object the settings that it was saved with",
            ) from error
        return obj


class Group:
    """A part that has parts of its own.

    Args:
        owner: The object.
        children: Returns them, given the owner.
    """

    __slots__ = ("__weakref__", "_children", "_owner")

    def __init__(self, owner: Any, children: Callable[[Any], Iterable[tuple[str, Any]]]) -> None:
        self._owner = weakref.ref(owner)
        self._children = children

    def children(self) -> Iterable[tuple[str, Any]]:
        """The parts, by name."""
        owner = self._owner()
        return () if owner is None else self._children(owner)


class GroupAdapter(Adapter):
    """`Group`."""

    def handles(self, kind: type) -> bool:
        return kind is Group

    def children(self, obj: Group) -> Iterable[tuple[str, Any]]:
        return obj.children()


register(PartAdapter())
register(GroupAdapter())
