"""How deferred values are restored into children that TensorFlow's objects get later.

Every trackable object calls its own ``_handle_deferred_dependencies`` for a new child. There TensorFlow restores the child, before
the program can use it. While values are deferred for an object, this method is wrapped, on this instance only.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.layer_names import has_weights_now, is_layer_name
from milepost.adapters.tensorflow.private import DelegatingTrackableMixin, Trackable
from milepost.deferred.rescan import look_again
from milepost.deferred.table import admit, deferred_on
from milepost.errors import MilepostError
from milepost.graph.adapter import adapter_of

_CHILD: Final = "_handle_deferred_dependencies"
_SLOT: Final = "_restore_slot_variable"
_MEMBER: Final = "_track_value"
_NETWORK: Final = "_init_graph_network"
_BUILD: Final = "build"


class _Hook:
    """Replaces a method of one object. A copy of the object gets the original method.

    Args:
        owner: The object.
        name: The name of the method.

    Attributes:
        holders: The objects for whose children values are deferred: the owner, and objects that delegate their tracking to it.
        models: Models for whose layers values are deferred until it is known which of them have weights. Each comes with the
            layer that the owner is, or belongs to.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = weakref.ref(owner)
        self._name = name
        self.holders: list[weakref.ref[Any]] = []
        self.models: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []

    def __reduce__(self) -> Any:
        return _method, (self._owner(), self._name)

    def _original(self) -> Any:
        return _method(self._owner(), self._name)

    def _living(self) -> list[Any]:
        return [holder for reference in self.holders if (holder := reference()) is not None]

    def _admit(self, name: Any, child: Any) -> None:
        for holder in self._living():
            admit(holder, name, child)
            if isinstance(name, str) and is_layer_name(name) and deferred_on(holder):
                hook_until_built(child, holder)
        self._look_at_models(child)

    def _look_at_models(self, child: Any = None) -> None:
        """Restores deferred values of layers of models, of which the owner may be one or a part.

        Args:
            child: A new child of the owner.
        """
        for model, layer in [(model(), layer()) for model, layer in self.models]:
            if model is not None and layer is not None and deferred_on(model):
                if isinstance(child, tf.Variable):
                    has_weights_now(layer)
                elif isinstance(child, tf.Module):
                    _hook_parts(child, layer, model)
                look_again(model)
        _unhook(self._owner(), [*self.holders, *(model for model, _ in self.models)])


class _ChildHook(_Hook):
    """An object calls this when it gets a new child."""

    def __call__(self, name: str, trackable: Any) -> None:
        self._original()(name, trackable)
        try:
            self._admit(name, trackable)
        except MilepostError as error:
            _forget_child(self._owner(), name)
            # Keras and AutoGraph would replace an error without these attributes, which their own code sets too.
            error._keras_call_info_injected = error.ag_pass_through = True  # type: ignore[attr-defined]
            raise


class _SlotHook(_Hook):
    """An optimizer calls this when it has made a slot variable."""

    def __call__(self, slot_name: str, variable: Any, slot_variable: Any) -> None:
        self._original()(slot_name=slot_name, variable=variable, slot_variable=slot_variable)
        self._admit((id(variable), slot_name), slot_variable)


class _MemberHook(_Hook):
    """A list or dict calls this before it holds a new member. Members of other libraries reach no other hook."""

    def __call__(self, value: Any, name: Any) -> Any:
        value = self._original()(value=value, name=name)
        if not isinstance(value, Trackable):
            self._admit(name, value)
        return value


class _NetworkHook(_Hook):
    """A model calls this when it connects its layers, which are built then. It announces none of them."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._original()(*args, **kwargs)
        for holder in self._living():
            look_again(holder)
        self._look_at_models()


class _BuildHook(_Hook):
    """An optimizer calls this before its first step."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._original()(*args, **kwargs)
        for holder in self._living():
            look_again(holder)
            if (adapter := adapter_of(holder)) is not None:
                adapter.on_restored(
                    holder
                )  # computes what follows from the values, after building has made its attributes
        _unhook(self._owner(), self.holders)


_KINDS: Final[Mapping[str, type[_Hook]]] = {
    _CHILD: _ChildHook,
    _SLOT: _SlotHook,
    _MEMBER: _MemberHook,
    _NETWORK: _NetworkHook,
}


def hook(obj: Any) -> None:
    """Wraps the methods of an object for whose children values are deferred."""
    for installed in _installed(obj):
        if all(reference() is not obj for reference in installed.holders):
            installed.holders.append(weakref.ref(obj))


def hook_until_built(layer: Any, model: Any) -> None:
    """Restores deferred values of a model's layers when a layer has made its weights.

    Args:
        layer: The layer. Nothing happens if it is built.
        model: The model, for whose layers values are deferred.
    """
    if not layer.built:
        _hook_parts(layer, layer, model)


def _hook_parts(part: Any, layer: Any, model: Any) -> None:
    """Does this for what makes the weights: the layer itself, or an object that it holds, and all that this one holds."""
    for submodule in (part, *part.submodules):
        for installed in _installed(submodule):
            if all(of() is not model or at() is not layer for of, at in installed.models):
                installed.models.append((weakref.ref(model), weakref.ref(layer)))


def hook_build(optimizer: Any) -> None:
    """Restores deferred values of an optimizer when it has made its variables."""
    for installed in _installed(optimizer, {_BUILD: _BuildHook}):
        installed.holders.append(weakref.ref(optimizer))


def _installed(obj: Any, kinds: Mapping[str, type[_Hook]] = _KINDS) -> Iterator[_Hook]:
    """Replaces an object's methods by hooks, if there are none yet, and returns the hooks."""
    owner = tracked_for(obj)
    for name, kind in kinds.items():
        if not hasattr(type(owner), name):
            continue
        installed = getattr(owner, name)
        if not isinstance(installed, kind):
            installed = kind(owner, name)
            _set(owner, name, installed)
        yield installed


def tracked_for(obj: Any) -> Any:
    """The object that does the tracking: the object itself, or one that it delegates to, as optimizers with loss scaling do."""
    while isinstance(obj, DelegatingTrackableMixin):
        obj = obj._trackable
    return obj


def _unhook(owner: Any, holders: list[weakref.ref[Any]]) -> None:
    """Gives an object its own methods back when nothing is deferred any more."""
    if any((holder := reference()) is not None and deferred_on(holder) for reference in holders):
        return
    for name in (*_KINDS, _BUILD):
        if isinstance(getattr(owner, name, None), _Hook):
            _delete(owner, name)


def _set(obj: Any, name: str, value: Any) -> None:
    try:
        object.__setattr__(obj, name, value)  # the object's own __setattr__ would track it
    except TypeError:  # a proxy, whose attributes cannot be set in this way
        setattr(obj, name, value)


def _delete(obj: Any, name: str) -> None:
    try:
        object.__delattr__(obj, name)
    except TypeError:
        delattr(obj, name)


def _method(owner: Any, name: str) -> Any:
    return types.MethodType(getattr(type(owner), name), owner)


def _forget_child(owner: Any, name: str) -> None:
    """Removes TensorFlow's record of a child that its owner will not hold."""
    if name not in owner._self_unconditional_dependency_names:
        references = owner._self_unconditional_checkpoint_dependencies
        references[:] = [reference for reference in references if reference.name != name]
