"""How waiting values reach what Keras objects make late: layers in ``build`` and ``call``, optimizers, lazy metrics.

While values wait on an object, some of its methods are wrapped, on this instance only and as Keras itself does with
``build``. After ``build``, and before ``call``, the object is looked through for what values wait for. Keras swallows
exceptions in the first, traced call of a model; what went wrong there goes wrong again, aloud, in the real call.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final

from milepost.adapters.attributes import watch_attributes
from milepost.adapters.keras.own_state import give_own_state, is_own_state_waiting
from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter
from milepost.graph.by_identity import forgetting
from milepost.graph.look_again import look_again
from milepost.graph.waiting import waiting_on

_AFTER: Final = ("build", "_build")
_BEFORE: Final = ("call", "apply", "update_state")
_wrapped: Final[dict[int, tuple[weakref.ref[Any], dict[str, Any]]]] = {}
"""By the object's identity: the object, and what it had of its own under the wrapped names."""
_MISSING: Final = object()


class HookedAdapter(Adapter):
    """An adapter of objects that are told of new children by hooks."""

    def watch(self, obj: Any) -> None:
        hook(obj)
        watch_attributes(obj)


def hook(obj: Any) -> None:
    """Wraps the methods of an object on which values wait."""
    known = _wrapped.get(id(obj))
    if known is not None and known[0]() is obj:
        return
    identity = id(obj)
    before: dict[str, Any] = {}
    for name in (*_AFTER, *_BEFORE):
        method = getattr(obj, name, None)
        if callable(method):
            before[name] = vars(obj).get(name, _MISSING)
            # Into the dict itself: Keras would track, and PyTorch would refuse.
            vars(obj)[name] = _wrapper(weakref.ref(obj), method, first=name in _BEFORE)
    _wrapped[identity] = (weakref.ref(obj, forgetting(_wrapped, identity)), before)


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
    if not waiting_on(obj) and not is_own_state_waiting(obj):
        _unhook(obj)


def _wrapper(reference: weakref.ref[Any], method: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
    @functools.wraps(method)  # Keras looks at the signature, and at marks on the function
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        obj = reference()
        if first:
            deliver(obj)
            return method(*args, **kwargs)
        result = method(*args, **kwargs)
        deliver(obj)
        return result

    return wrapped


def _unhook(obj: Any) -> None:
    known = _wrapped.get(id(obj))
    if known is None or known[0]() is not obj:
        return
    del _wrapped[id(obj)]
    for name, value in known[1].items():
        if value is _MISSING:
            vars(obj).pop(name, None)
        else:
            vars(obj)[name] = value
