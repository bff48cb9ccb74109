"""How waiting values reach what Keras objects make late: layers in ``build`` and ``call``, optimizers, lazy metrics.

While values wait on an object, some of its methods are wrapped, on this instance only and as Keras itself does with
``build``. After ``build``, and before ``call``, the object is looked through for what values wait for. Keras swallows
exceptions in the first, traced call of a model; what went wrong there goes wrong again, aloud, in the real call.

On TensorFlow, Keras resets compiled metrics first and makes them in the first step. What was reset before ``build`` is
reset once more after it, or the old counts would be in the new result.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from milepost.adapters.attributes import watch_attributes
from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.own_state import give_own_state, is_own_state_waiting
from milepost.deferred.pending import waiting_on
from milepost.deferred.rescan import look_again
from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter
from milepost.graph.by_identity import ByIdentity

_AFTER: Final = ("build", "_build")
_BEFORE: Final = ("call", "apply", "update_state")
_RESET: Final = "reset_state"


class _Wrapped(NamedTuple):
    """What an object with wrapped methods had of its own under their names, and the models that wait until it is built."""

    before: dict[str, Any]
    models: list[weakref.ref[Any]]


_wrapped: Final[ByIdentity[_Wrapped]] = ByIdentity()
_MISSING: Final = object()


class HookedAdapter(Adapter):
    """An adapter of objects that are told of new children by hooks."""

    def on_deferred(self, obj: Any) -> None:
        hook(obj)
        watch_attributes(obj)


def hook(obj: Any, model: Any = None) -> None:
    """Wraps the methods of an object on which values wait, or of a layer.

    Args:
        obj: The object.
        model: A model on which values wait until it is known that this layer of it has weights.
    """
    known = _wrapped.get(obj)
    if known is not None:
        known.models.extend([] if model is None else [weakref.ref(model)])
        return
    before: dict[str, Any] = {}
    resets: list[str] = []
    for name in (*_AFTER, *_BEFORE, _RESET):
        method = getattr(obj, name, None)
        if callable(method):
            before[name] = vars(obj).get(name, _MISSING)
            # Into the dict itself: Keras would track, and PyTorch would refuse.
            vars(obj)[name] = _wrapper(weakref.ref(obj), name, method, resets)
    models = [] if model is None else [weakref.ref(model)]
    _wrapped[obj] = _Wrapped(before, models)


def deliver(obj: Any) -> None:
    """Gives an object's children what waits for them.

    Raises:
        MismatchError: A waiting value does not fit; it goes on waiting.
    """
    if waiting_on(obj):
        try:
            look_again(obj)
        except MilepostError as error:
            error._keras_call_info_injected = True  # type: ignore[attr-defined]  # Keras would replace it, and its text
            raise
    give_own_state(obj)
    known = _wrapped.get(obj)
    for reference in list(known.models) if known is not None else ():
        model = reference()
        if model is not None:
            deliver(model)
    if not waiting_on(obj) and not is_own_state_waiting(obj):
        _unhook(obj)


def _wrapper(
    reference: weakref.ref[Any], name: str, method: Callable[..., Any], resets: list[str]
) -> Callable[..., Any]:
    """The method ``name`` of an object, whose ``resets`` are not empty once it was reset before ``build``."""

    @functools.wraps(method)  # Keras looks at the signature, and at marks on the function
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        obj: Any = reference()
        if name in _BEFORE:
            deliver(obj)
        result = method(*args, **kwargs)
        if name == _RESET:
            resets.append(name)
        elif name in _AFTER:
            deliver(obj)
            if resets:
                with backend.eagerly():
                    obj.reset_state()
                resets.clear()
        return result

    return wrapped


def _unhook(obj: Any) -> None:
    known = _wrapped.get(obj)
    if known is None or (
        not getattr(obj, "built", True) and any((model := each()) and waiting_on(model) for each in known.models)
    ):
        return
    _wrapped.pop(obj)
    for name, value in known.before.items():
        if value is _MISSING:
            vars(obj).pop(name, None)
        else:
            vars(obj)[name] = value
