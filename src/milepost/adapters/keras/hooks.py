"""How deferred values are restored into Keras objects that make their variables later: layers, optimizers, lazy metrics.

While values are deferred for children of an object, some of its methods are wrapped, on this instance only, as Keras itself wraps
``build``. After ``build`` and before ``call``, the children that the object has are restored. Keras swallows exceptions in the
first, traced call of a model. A restore that fails there stays deferred, and raises its error in the real call.

On TensorFlow, Keras resets compiled metrics before it makes their variables in the first step. An object that was reset before
``build`` is reset again after it. Otherwise its result would include the restored counts. The means of the losses of several
outputs are made in the same step. They belong to an object that is not reset itself, so the model's own method is watched.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from milepost.adapters.attributes import watch_attributes
from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.own_state import restore_own_state
from milepost.deferred.rescan import look_again
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError
from milepost.facts import Fact
from milepost.graph.adapter import Adapter

_AFTER: Final = ("build", "_build")
_BEFORE: Final = ("call", "apply", "update_state")
_RESET: Final = "reset_state"
_RESET_METRICS: Final = "reset_metrics"
_LOSSES: Final = "_compile_loss"
"""The attribute of a model that holds its losses, and makes their means in its own ``build``."""


class _Wrapped(NamedTuple):
    """What is known of an object with wrapped methods.

    Attributes:
        before: What its own dict held under the names of these methods.
        models: Models that hold the object, and whose layers with weights are known only after it is built.
        resets: Has a member if the object was reset before ``build``.
    """

    before: dict[str, Any]
    models: list[weakref.ref[Any]]
    resets: list[str]


_wrapped: Final[Fact[_Wrapped]] = Fact()
_MISSING: Final = object()


class HookedAdapter(Adapter):
    """An adapter of objects whose new children hooks find."""

    def on_deferred(self, obj: Any) -> None:
        hook(obj)
        watch_attributes(obj)


def hook(obj: Any, model: Any = None) -> None:
    """Wraps the methods of an object for whose children values are deferred, or of a layer of such a model.

    Args:
        obj: The object.
        model: A model for whose layers values are deferred until it is known which of them have weights. ``obj`` is one of these.
    """
    known = _wrapped.get(obj)
    if known is not None:
        known.models.extend([] if model is None else [weakref.ref(model)])
        return
    before: dict[str, Any] = {}
    resets: list[str] = []
    for name in (*_AFTER, *_BEFORE, _RESET, _RESET_METRICS):
        method = getattr(obj, name, None)
        if callable(method):
            before[name] = vars(obj).get(name, _MISSING)
            # Set in the dict itself: Keras would track an attribute, and PyTorch would refuse it.
            vars(obj)[name] = _wrapper(weakref.ref(obj), name, method, resets)
    models = [] if model is None else [weakref.ref(model)]
    _wrapped[obj] = _Wrapped(before, models, resets)


def watch_resets(model: Any) -> None:
    """Wraps the methods of a model for whose losses of several outputs values are deferred."""
    if _deferred_losses(model) is not None:
        hook(model)


def restore_deferred(obj: Any) -> None:
    """Restores the deferred values of the children that an object has now.

    Raises:
        MismatchError: A value does not fit. It stays deferred.
    """
    if deferred_on(obj):
        try:
            look_again(obj)
        except MilepostError as error:
            error._keras_call_info_injected = True  # type: ignore[attr-defined]  # Keras would replace it, and its text
            raise
    has_own_state = restore_own_state(obj)
    known = _wrapped.get(obj)
    for reference in list(known.models) if known is not None else ():
        model = reference()
        if model is not None:
            restore_deferred(model)
    if has_own_state and not deferred_on(obj):
        _unhook(obj)


def _wrapper(
    reference: weakref.ref[Any], name: str, method: Callable[..., Any], resets: list[str]
) -> Callable[..., Any]:
    """Wraps a method of an object.

    Args:
        reference: The object.
        name: The name of the method.
        method: The method.
        resets: Notes that the object was reset before ``build``; shared by the wrapped methods of one object.
    """

    @functools.wraps(method)  # Keras inspects the signature, and attributes of the function
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        obj: Any = reference()
        if name in _BEFORE:
            restore_deferred(obj)
        result = method(*args, **kwargs)
        if name == _RESET:
            resets.append(name)
        elif name in _AFTER:
            restore_deferred(obj)
            if resets:
                with backend.eagerly():
                    for each in [obj] if _RESET in resets else obj.metrics:
                        each.reset_state()
                resets.clear()
        elif name == _RESET_METRICS:
            losses = _deferred_losses(obj)
            if losses is not None:
                losses.resets.append(name)
        return result

    return wrapped


def _deferred_losses(model: Any) -> _Wrapped | None:
    """What is known of the object that holds the means of the losses of a model's outputs, until it has them."""
    losses = getattr(model, _LOSSES, None)
    return None if losses is None else _wrapped.get(losses)


def _unhook(obj: Any) -> None:
    known = _wrapped.get(obj)
    if known is None or _deferred_losses(obj) is not None:
        return
    if not getattr(obj, "built", True) and any((model := each()) and deferred_on(model) for each in known.models):
        return
    _wrapped.pop(obj)
    for name, value in known.before.items():
        if value is _MISSING:
            vars(obj).pop(name, None)
        else:
            vars(obj)[name] = value
