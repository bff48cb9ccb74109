"""Parts of PyTorch objects that are not objects of their own: hyperparameters, extra state, counters of optimizers.

A view represents such a part in the object graph. There is one view of each part as long as its owner lives, because restores
remember objects by identity.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from milepost.adapters.packed import PackedAdapter
from milepost.adapters.torch.memory import as_tensor
from milepost.facts import Fact
from milepost.graph.adapter import Array, register
from milepost.graph.keys import VARIABLE_VALUE

_T = TypeVar("_T")
_views: Final[Fact[dict[Hashable, Any]]] = Fact()
"""The views of the parts of an owner."""


def view_of(owner: Any, key: Hashable, make: Callable[..., _T], *arguments: Any) -> _T:
    """The view of a part of an object. The first call makes it, and later calls return the same one.

    Args:
        owner: The object.
        key: Which part.
        make: Makes the view.
        *arguments: What ``make`` is called with.
    """
    views = _views.get(owner)
    if views is None:
        views = _views[owner] = {}
    view: _T | None = views.get(key)
    if view is None:
        view = views[key] = make(*arguments)
    return view


def has_view(owner: Any, key: Hashable) -> bool:
    """Whether a view was made, and not forgotten since."""
    return key in (_views.get(owner) or {})


def forget_view(owner: Any, key: Hashable) -> None:
    """Forgets a view, because its part is gone."""
    (_views.get(owner) or {}).pop(key, None)


class Part:
    """A part of an object that is plain Python state: numbers, text, tensors, lists and dicts of them.

    Args:
        owner: The object.
        get: Returns the part, given the owner.
        put: Replaces the part, given the owner and the new value.
        name: The name of the part in errors.
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


class PartAdapter(PackedAdapter):
    """`Part`: plain state. It can also be restored from a tensor that was saved as such."""

    turn = 0

    def handles(self, kind: type) -> bool:
        return kind is Part

    def name_in_errors(self, obj: Part) -> str:
        return obj.name

    def state(self, obj: Part) -> Any:
        return obj.get(obj.owner)

    def load(self, obj: Part, state: Any) -> None:
        obj.put(obj.owner, state)

    def assign(self, obj: Part, arrays: Mapping[str, Array]) -> Part:
        array = arrays.get(VARIABLE_VALUE)
        if array is None:
            return super().assign(obj, arrays)  # type: ignore[no-any-return]  # it is the same part
        self.load(obj, as_tensor(array.copy()))
        return obj


register(PartAdapter())
