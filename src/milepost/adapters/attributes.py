"""Deferred values of children that TensorFlow and Keras do not announce: objects of other libraries in their attributes.

These frameworks announce only objects of their own. While a value is deferred for a child of an object, the ``__setattr__`` of
the object's class is wrapped. A child of another library that is assigned under the deferred name is restored at once.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection
from typing import Any, Final, cast

from milepost.deferred.rescan import look_again
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError
from milepost.facts import Fact
from milepost.graph.adapter import adapter_of_type

_METHOD: Final = "__setattr__"
_FRAMEWORKS: Final = frozenset({"keras", "tf_keras", "tensorflow"})
_watches: Final[Fact[_ClassWatch]] = Fact()


class _ClassWatch:
    """Wraps the ``__setattr__`` of a class.

    Args:
        kind: The class.
        unseen: Attributes whose children have other names than the attribute, and that the framework never announces.
    """

    def __init__(self, kind: type, unseen: Collection[str]) -> None:
        setter = vars(kind).get(_METHOD)
        holders: list[weakref.ref[Any]] = []
        watched = weakref.ref(kind)

        def set_attribute(obj: Any, name: str, value: Any) -> None:
            if setter is not None:
                setter(obj, name, value)
            else:
                super(cast("Any", watched()), obj).__setattr__(name, value)
            edges = deferred_on(obj)
            if edges and (name in unseen or (name in edges and not _is_announced(value))):
                try:
                    look_again(obj)
                except MilepostError:
                    with contextlib.suppress(AttributeError):  # the class's own setter may not have set the attribute
                        delattr(obj, name)
                    raise
            if not edges:
                self.end()

        self.holders = holders
        self._kind = watched
        self._own = setter
        self._installed = set_attribute
        setattr(kind, _METHOD, set_attribute)

    def end(self) -> None:
        """Gives the class its own method back when nothing is deferred any more."""
        if any((holder := reference()) is not None and deferred_on(holder) for reference in self.holders):
            return
        kind = self._kind()
        if kind is None or vars(kind).get(_METHOD) is not self._installed:
            return
        if self._own is not None:
            setattr(kind, _METHOD, self._own)
        else:
            delattr(kind, _METHOD)
        _watches.pop(kind)


def _is_announced(value: Any) -> bool:
    """Whether the framework announces a value, or no adapter handles it."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_announced, value))
    if isinstance(value, dict):
        return all(map(_is_announced, value.values()))
    return adapter_of_type(type(value)) is None or any(
        base.__module__.partition(".")[0] in _FRAMEWORKS for base in type(value).__mro__
    )


def watch_attributes(obj: Any, unseen: Collection[str] = ()) -> None:
    """Watches the attributes of an object until no value is deferred for a child of it.

    Args:
        obj: The object.
        unseen: Attributes whose children have other names than the attribute, and that the framework never announces. They are
            the same for all objects of a class.
    """
    kind = type(obj)
    watch = _watches.get(kind)
    if watch is None:
        try:
            watch = _watches[kind] = _ClassWatch(kind, unseen)
        except TypeError:
            return  # A class of an extension module cannot be changed. A save looks for the children.
    if all(reference() is not obj for reference in watch.holders):
        watch.holders.append(weakref.ref(obj))
