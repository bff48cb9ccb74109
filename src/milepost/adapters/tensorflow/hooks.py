"""How waiting values reach the children that TensorFlow's objects get late.

Every such object calls its own ``_handle_deferred_dependencies`` for a new child, which is where TensorFlow gives it
its values, before anyone can use it. While values wait on an object, that method is wrapped, on this instance only.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, Final

from milepost.errors import MilepostError
from milepost.graph.waiting import admit, waiting_on

_CHILD: Final = "_handle_deferred_dependencies"
_SLOT: Final = "_restore_slot_variable"


class _Hook:
    """Stands for a method of one object. A copy of the object has the method itself, without values that wait."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = weakref.ref(owner)
        self._name = name

    def __reduce__(self) -> Any:
        return _method, (self._owner(), self._name)


class _ChildHook(_Hook):
    """TensorFlow calls this when an object gets a new child."""

    def __call__(self, name: str, trackable: Any) -> None:
        owner = self._owner()
        try:
            _method(owner, self._name)(name, trackable)
            admit(owner, name, trackable)
        except MilepostError as error:
            _forget_child(owner, name)
            error._keras_call_info_injected = True  # type: ignore[attr-defined]  # Keras would replace it, and its text
            raise
        unhook(owner)


class _SlotHook(_Hook):
    """Optimizers call this when they have made a slot variable."""

    def __call__(self, slot_name: str, variable: Any, slot_variable: Any) -> None:
        owner = self._owner()
        _method(owner, self._name)(slot_name=slot_name, variable=variable, slot_variable=slot_variable)
        admit(owner, (id(variable), slot_name), slot_variable)
        unhook(owner)


def hook(obj: Any) -> None:
    """Wraps the methods of an object on which values wait."""
    for name, kind in ((_CHILD, _ChildHook), (_SLOT, _SlotHook)):
        if hasattr(type(obj), name) and not isinstance(_own(obj).get(name), kind):
            object.__setattr__(obj, name, kind(obj, name))


def unhook(obj: Any) -> None:
    """Gives an object its own methods back once nothing waits on it any more."""
    if waiting_on(obj):
        return
    for name in (_CHILD, _SLOT):
        if isinstance(_own(obj).get(name), _Hook):
            object.__delattr__(obj, name)


def _own(obj: Any) -> dict[str, Any]:
    """Attributes of the object itself, also where it is a proxy of another."""
    own: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    return own


def _method(owner: Any, name: str) -> Any:
    return types.MethodType(getattr(type(owner), name), owner)


def _forget_child(owner: Any, name: str) -> None:
    """Undoes what TensorFlow has noted of a child that its owner does not get."""
    if name not in owner._self_unconditional_dependency_names:
        references = owner._self_unconditional_checkpoint_dependencies
        references[:] = [reference for reference in references if reference.name != name]
