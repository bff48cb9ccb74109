"""Lists, dicts and tuples whose members are tracked.

A plain list or dict that becomes an attribute of a tracked object is replaced by a `ListWrapper`, `DictWrapper` or
`OrderedDictWrapper`. Each is a subclass that behaves like the original, and asks for deferred values before it gets new members.
Tuples cannot change, so they are not replaced; only lists and dicts inside them are. Trees of values that never change, such
as JAX's arrays, are not replaced either (`milepost.graph.trees.places`).

A save reads what a container holds at that moment, so any mutation is allowed.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, SupportsIndex

from milepost.errors import UntrackableError
from milepost.graph import attach
from milepost.graph.adapter import adapter_of
from milepost.graph.plain.places import StateHolder
from milepost.graph.remedies import is_of_python
from milepost.graph.trees.structure import is_container, is_functional, is_tuple, make_tuple


class NoDependency:
    """Marks a value that must not be saved with the object to which it is assigned.

    Args:
        value: The value. It is stored as it is, neither wrapped nor tracked.

    Example:
        >>> import milepost
        >>> module = milepost.Module()
        >>> module.cache = milepost.NoDependency([1, 2])
        >>> module.cache
        [1, 2]
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Source:
    """The list or dict from which a wrapper was made. It shows whether the program has changed the original since."""

    __slots__ = ("members", "original")

    def __init__(self, original: Any) -> None:
        self.original = original
        self.members = _members(original)

    def changed(self) -> bool:
        now = _members(self.original)
        return len(now) != len(self.members) or any(a is not b for a, b in zip(now, self.members, strict=True))


def _members(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


_OUTSIDE_REFERENCES: Final = 2
"""The result of `sys.getrefcount` for an object with one other reference."""


class _Wrapper(StateHolder):
    """The common part of list and dict wrappers."""

    _source: _Source | None
    _untracked: list[Any]
    _untracked_keys: set[Any]
    _is_state = False  # until `hold_state`

    def _changed_outside(self) -> bool:
        """Whether the program has changed the original container since. The wrapper does not see such changes."""
        source: _Source | None = self.__dict__.get("_source")
        if source is None:
            return False
        if sys.getrefcount(source.original) <= _OUTSIDE_REFERENCES:
            del self._source
            return False
        return source.changed()

    def _enter(self, name: str | None, value: Any) -> Any:
        """Wraps a new member and gives it its deferred value."""
        if type(value) is NoDependency:
            self.__dict__.setdefault("_untracked", []).append(value.value)
            return value.value
        value = wrap(value)
        if self._is_state:
            hold_state(value)
        return value if name is None else attach.deferral.admit(self, name, value)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        constructor, arguments, _, *rest = reduced
        return constructor, arguments, {"_is_state": True} if self._is_state else None, *rest


class ListWrapper(_Wrapper, list[Any]):
    """A list whose members are tracked under their positions ``0``, ``1``, ...

    Example:
        >>> import milepost
        >>> module = milepost.Module()
        >>> module.layers = []
        >>> module.layers
        ListWrapper([])
        >>> module.layers == []
        True
    """

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__()
        for item in items:
            self.append(item)

    def append(self, item: Any) -> None:
        attach.deferral.before_append(self)
        super().append(self._enter(str(len(self)), item))

    def extend(self, items: Iterable[Any]) -> None:
        for item in list(items):
            self.append(item)

    def __iadd__(self, items: Iterable[Any]) -> ListWrapper:  # type: ignore[misc]
        self.extend(items)
        return self

    def __imul__(self, count: SupportsIndex) -> ListWrapper:
        return self._change(list(self) * count)

    def insert(self, index: SupportsIndex, item: Any) -> None:
        item = self._enter(None, item)
        if attach.deferral.expects(self):
            members = list(self)
            members.insert(index, item)
            self._change(members)
        else:
            super().insert(index, item)

    def __setitem__(self, index: Any, item: Any) -> None:
        item = [self._enter(None, each) for each in item] if isinstance(index, slice) else self._enter(None, item)
        if attach.deferral.expects(self):
            members = list(self)
            members[index] = item
            self._change(members)
        else:
            super().__setitem__(index, item)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        super().__delitem__(index)
        self._settle_members()

    def pop(self, index: SupportsIndex = -1) -> Any:
        item = super().pop(index)
        self._settle_members()
        return item

    def remove(self, item: Any) -> None:
        super().remove(item)
        self._settle_members()

    def reverse(self) -> None:
        super().reverse()
        self._settle_members()

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        super().sort(key=key, reverse=reverse)
        self._settle_members()

    def copy(self) -> ListWrapper:
        return ListWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return f"ListWrapper({super().__repr__()})"

    def _change(self, members: list[Any]) -> ListWrapper:
        """Replaces the members. If a deferred value does not fit one of them, nothing changes."""
        if attach.deferral.expects(self):
            members = [attach.deferral.admit(self, str(position), item) for position, item in enumerate(members)]
        super().__setitem__(slice(None), members)
        return self

    def _settle_members(self) -> None:
        if attach.deferral.expects(self):
            self._change(list(self))


class _MappingWrapper(_Wrapper):
    """The common part of both dict wrappers."""

    def __setitem__(self, key: Any, value: Any) -> None:
        entering = self._enter(key if isinstance(key, str) else None, value)
        super().__setitem__(key, entering)  # type: ignore[misc]
        if type(value) is NoDependency:
            self.__dict__.setdefault("_untracked_keys", set()).add(key)
        elif "_untracked_keys" in self.__dict__:
            self._untracked_keys.discard(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:  # type: ignore[operator]
            self[key] = default
        return self[key]  # type: ignore[index]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self


class DictWrapper(_MappingWrapper, dict[Any, Any]):
    """A dict whose members are tracked under their string keys.

    Example:
        >>> import milepost
        >>> module = milepost.Module()
        >>> module.rates = {"low": 0.1}
        >>> module.rates
        DictWrapper({'low': 0.1})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def copy(self) -> DictWrapper:
        return DictWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return f"DictWrapper({super().__repr__()})"

    def __str__(self) -> str:
        return super().__repr__()


class OrderedDictWrapper(_MappingWrapper, OrderedDict[Any, Any]):
    """An ``OrderedDict`` whose members are tracked under their string keys."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in OrderedDict(*args, **kwargs).items():
            self[key] = value

    def copy(self) -> OrderedDictWrapper:
        return OrderedDictWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return f"DictWrapper({self})"

    def __str__(self) -> str:
        return f"OrderedDict({list(self.items())!r})"


_WRAPPERS: Final[dict[type, type]] = {list: ListWrapper, dict: DictWrapper, OrderedDict: OrderedDictWrapper}


def wrap(value: Any) -> Any:
    """Replaces plain lists and dicts, also inside tuples, by their wrappers. Other values are returned as they are.

    Trees of values that never change (`milepost.graph.trees.structure`) are not wrapped, because a wrapped tree is another tree.

    Raises:
        UntrackableError: Lists, dicts and tuples are nested more deeply than Python can follow.
    """
    kind = type(value)
    try:
        if is_container(kind) and is_functional(value):
            return value
        if kind in _WRAPPERS:
            return _wrap_container(value, {})
        if issubclass(kind, tuple) and is_tuple(kind):
            return _wrap_tuple(value, {})
    except RecursionError:
        raise UntrackableError(
            "lists, dicts and tuples are nested more deeply than Python can follow",
            found=f"an object of type {kind.__name__} of too many levels",
            remedy="hold the members in one list, or in milepost.Module objects that refer to each other",
        ) from None
    return value


def _wrap_member(value: Any, wrapped: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _WRAPPERS:
        return wrapped[id(value)] if id(value) in wrapped else _wrap_container(value, wrapped)
    if issubclass(kind, tuple) and is_tuple(kind):
        return _wrap_tuple(value, wrapped)
    return value.value if kind is NoDependency else value


def _wrap_container(value: Any, wrapped: dict[int, Any]) -> Any:
    # known before its members are visited, for containers that hold themselves
    wrapper = wrapped[id(value)] = _WRAPPERS[type(value)]()
    wrapper._source = _Source(value)
    if isinstance(value, list):
        list.extend(wrapper, [_wrap_member(item, wrapped) for item in value])
        members: Iterable[Any] = value
    else:
        for key, item in value.items():
            type(value).__setitem__(wrapper, key, _wrap_member(item, wrapped))
        members = value.values()
        keys = {key for key, item in value.items() if type(item) is NoDependency}
        if keys:
            wrapper._untracked_keys = keys
    untracked = [item.value for item in members if type(item) is NoDependency]
    if untracked:
        wrapper._untracked = untracked
    return wrapper


def _wrap_tuple(value: tuple[Any, ...], wrapped: dict[int, Any]) -> tuple[Any, ...]:
    members = [_wrap_member(item, wrapped) for item in value]
    if all(new is old for new, old in zip(members, value, strict=True)):
        return value
    return make_tuple(type(value), members)


def hold_state(value: Any) -> None:
    """Makes plain values in a wrapped list or dict state, also in lists, dicts and tuples inside it."""
    containers = [value]
    for container in containers:
        if isinstance(container, _Wrapper):
            if not container._is_state:
                container._is_state = True
                containers += container.values() if isinstance(container, dict) else container  # type: ignore[arg-type]
        elif type(container) is not str and is_tuple(type(container)):
            containers += container


def _field(obj: Any, name: str) -> Any:
    try:
        return object.__getattribute__(obj, name)
    except AttributeError:
        return None


_MOST_SEARCHED: Final = 1_000


def find_trackable(value: Any, *, within_objects: bool = False, known: Container[int] = ()) -> Any:
    """A trackable object that is not just a container, at any depth inside a value. None if there is none.

    Args:
        value: The value.
        within_objects: Whether the attributes of objects of any class are searched too, for at most 1,000 objects.
        known: Identities of objects that are skipped, with all that they hold.
    """
    seen: dict[int, Any] = {}
    left = [value]
    while left:
        each = left.pop()
        if id(each) in seen or id(each) in known:
            continue
        kind = type(each)  # ``__class__`` may be a property of the object that runs any code
        if issubclass(kind, Mapping):
            members: Iterable[Any] = each.values()
        elif issubclass(kind, (list, tuple, set, frozenset, deque)):
            members = each
        elif is_dataclass(kind) and adapter_of(each) is None:
            members = [_field(each, field.name) for field in fields(kind)]
        elif adapter_of(each) is not None:
            return each
        elif within_objects and len(seen) < _MOST_SEARCHED and not is_of_python(kind):
            members = list((_field(each, "__dict__") or {}).values())
        else:
            continue
        seen[id(each)] = each
        left += reversed(list(members))
    return None
