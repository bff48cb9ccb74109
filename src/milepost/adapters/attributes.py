"""Values for objects that are assigned late to an object of TensorFlow or Keras which is not told of them.

Those frameworks tell only of objects of their own. While values wait on an object, the ``__setattr__`` of its class is
wrapped, so that an object of another kind that is assigned under a name that is waited for has its value at once.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection
from typing import Any, Final, cast

from milepost.deferred.rescan import look_again
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError
from milepost.graph.adapter import adapter_of_type

_METHOD: Final = "__setattr__"
_FRAMEWORKS: Final = frozenset({"keras", "tf_keras", "tensorflow"})
_watches: Final[weakref.WeakKeyDictionary[type, _Watch]] = weakref.WeakKeyDictionary()


class _Watch:
    """Stands before the ``__setattr__`` of a class.

    Args:
        kind: The class.
        unseen: Names of attributes whose children have names of their own, and of which the framework never tells.
    """

    def __init__(self, kind: type, unseen: Collection[str]) -> None:
        own = vars(kind).get(_METHOD)
        holders: list[weakref.ref[Any]] = []
        watched = weakref.ref(kind)

        def set_attribute(obj: Any, name: str, value: Any) -> None:
            if own is not None:
                own(obj, name, value)
            else:
                super(cast("Any", watched()), obj).__setattr__(name, value)
            edges = deferred_on(obj)
            if edges and (name in unseen or (name in edges and not _is_announced(value))):
                try:
                    look_again(obj)
                except MilepostError:
                    with contextlib.suppress(AttributeError):  # a setter of its own may have set no such attribute
                        delattr(obj, name)
                    raise
            if not edges:
                self.end()

        self.holders = holders
        self._kind = watched
        self._own = own
        self._installed = set_attribute
        setattr(kind, _METHOD, set_attribute)

    def end(self) -> None:
        """Gives the class its own method back once nothing waits any more."""
        if any((holder := reference()) is not None and deferred_on(holder) for reference in self.holders):
            return
        kind = self._kind()
        if kind is None or vars(kind).get(_METHOD) is not self._installed:
            return
        if self._own is not None:
            setattr(kind, _METHOD, self._own)
        else:
            delattr(kind, _METHOD)
        _watches.pop(kind, None)


def _is_announced(value: Any) -> bool:
    """Whether the framework tells of it, or the adapter sees it in its own time."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_announced, value))
    if isinstance(value, dict):
        return all(map(_is_announced, value.values()))
    return adapter_of_type(type(value)) is None or any(
        base.__module__.partition(".")[0] in _FRAMEWORKS for base in type(value).__mro__
    )


def watch_attributes(obj: Any, unseen: Collection[str] = ()) -> None:
    """Watches what is assigned to an object on which values wait, until nothing waits on it any more.

    Args:
        obj: The object.
        unseen: Names of attributes whose children have names of their own, and of which the framework never tells; the same
            for all objects of a class.
    """
    kind = type(obj)
    watch = _watches.get(kind)
    if watch is None:
        try:
            watch = _watches[kind] = _Watch(kind, unseen)
        except TypeError:
            return  # A class of an extension, which keeps its methods. A save looks again.
    if all(reference() is not obj for reference in watch.holders):
        watch.holders.append(weakref.ref(obj))
