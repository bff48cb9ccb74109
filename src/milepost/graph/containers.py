"""Lists, dicts and tuples whose members are tracked.

A plain list or dict that becomes an attribute of a tracked object is shown by a `ListWrapper`, `DictWrapper` or
`OrderedDictWrapper`. Each is a subclass that behaves like the original, and asks for deferred values before it gets new members.
Tuples cannot change, so they are not replaced; only lists and dicts inside them are. Trees of values that never change, such
as JAX's arrays, are not replaced either (`milepost.graph.trees.places`).

A wrapper is a view of the list or dict that the program passed, which has the truth:

- Each method that changes the wrapper changes the original too. So does a restore.
- Each method that reads the wrapper reads what the original holds now. So does a save.
- Lists and dicts inside the original have views too, and one list or dict has one view.

The wrapper has the members in its own memory too, because functions in C read the memory of a list without calling its methods.
That memory is brought up to date by each method that needs all members, and by saves and restores. If such a function has changed
the memory, as `heapq` does, the original gets the change. When nobody else holds the original, it is dropped, and the wrapper
has the truth itself.

A save reads what a container holds at that moment, so any mutation is allowed.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import is_
from typing import Any, Final, SupportsIndex
from weakref import WeakValueDictionary

from milepost.errors import UntrackableError, UntrackedWarning, warn
from milepost.forks import ForkableLock
from milepost.graph import attach
from milepost.graph.adapter import adapter_of
from milepost.graph.plain.places import StateHolder
from milepost.graph.remedies import is_of_python
from milepost.graph.trees.structure import is_functional, is_tuple, make_tuple


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


_OUTSIDE_REFERENCES: Final = 2
"""The result of `sys.getrefcount` for an object with one other reference."""
_ABSENT: Final = object()
_views: Final[WeakValueDictionary[int, _Wrapper]] = WeakValueDictionary()
"""The views of lists and dicts that the program holds, by the identity of the list or dict."""
_lock: Final = ForkableLock()
"""Held while a view and its original are changed together."""


class _Wrapper(StateHolder):
    """The common part of list and dict wrappers.

    Attributes:
        _original: The list or dict of which this is a view. None if nobody else holds it.
    """

    _original: Any = None
    _untracked: list[Any]
    _untracked_keys: set[Any]
    _is_state = False  # until `hold_state`

    def _show(self, original: Any) -> None:
        """Makes this the view of a list or dict."""
        self._original = original
        _views[id(original)] = self

    def _held(self) -> Any:
        """The original, or None if nobody else holds it."""
        if self._original is not None and sys.getrefcount(self._original) <= _OUTSIDE_REFERENCES:
            self._agree()
        return self._original

    def _agree(self) -> None:
        """Brings the memory of this view and the original to the same members, and drops an original that nobody else holds."""
        if self._original is None:
            return
        with _lock:
            if self._original is not None:
                self._adopt(self._original.copy())  # another thread may change it meanwhile
                if sys.getrefcount(self._original) <= _OUTSIDE_REFERENCES:
                    _views.pop(id(self._original), None)
                    self._drop()

    def _adopt(self, original: Any) -> None:
        """Brings the memory of this view and the original to the same members.

        Args:
            original: What the original holds now.
        """
        raise NotImplementedError

    def _drop(self) -> None:
        del self._original

    def _given(self) -> Any:
        """The original, to be put into the original of another view. A new one if there is none."""
        raise NotImplementedError

    def _shown(self, member: Any, key: Any = _ABSENT) -> Any:
        """How this view shows a member of the original."""
        if _is_shown_as_it_is(member):
            return member
        if type(member) is NoDependency:
            self._leave_out(member.value, key)
            return member.value
        member = wrap(member)
        if self._is_state:
            hold_state(member)
        return member

    def _leave_out(self, value: Any, key: Any) -> None:
        """Notes a member that is not tracked."""
        self.__dict__.setdefault("_untracked", []).append(value)
        if key is not _ABSENT:
            self.__dict__.setdefault("_untracked_keys", set()).add(key)

    def _enter(self, name: str | None, value: Any, key: Any = _ABSENT) -> Any:
        """Wraps a new member and gives it its deferred value."""
        shown = self._shown(value, key)
        return shown if name is None or type(value) is NoDependency else attach.deferral.admit(self, name, shown)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        self._agree()
        state = {name: vars(self)[name] for name in ("_is_state", "_original") if name in vars(self)}
        members = self._members() if self._original is None else (None, None)
        return type(self), (), state or None, *members

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._is_state = state.get("_is_state", False)
        if "_original" in state:
            self._show(state["_original"])
            self._agree()

    def _members(self) -> tuple[Iterator[Any] | None, Iterator[Any] | None]:
        """The members for pickling: those of a list, and the pairs of a dict."""
        raise NotImplementedError


def _given(member: Any) -> Any:
    """What the original holds for a member of its view."""
    kind = type(member)
    if issubclass(kind, _Wrapper):
        return member._given()
    if issubclass(kind, tuple) and is_tuple(kind):
        members = [_given(each) for each in member]
        return member if all(map(is_, members, member)) else make_tuple(kind, members)
    return member


def _is_shown_as_it_is(member: Any) -> bool:
    kind = type(member)
    return not (kind in _WRAPPERS or issubclass(kind, (tuple, _Wrapper)) or kind is NoDependency)


def _shows(shown: Any, member: Any) -> bool:
    """Whether a member of a view is how the view shows this member of the original."""
    if shown is member:
        return True
    kind = type(shown)
    if issubclass(kind, _Wrapper):
        return shown._original is member
    if type(member) is NoDependency:
        return shown is member.value
    if kind is type(member) and issubclass(kind, tuple) and is_tuple(kind):
        return len(shown) == len(member) and all(map(_shows, shown, member))
    return False


def _agreeing(base: type, name: str) -> Any:
    """A method that reads all members."""
    method = getattr(base, name)

    def read(self: Any, *args: Any) -> Any:
        if self._original is not None:
            self._agree()
        for other in args:
            if isinstance(other, _Wrapper):
                other._agree()
        return method(self, *args)

    read.__name__, read.__doc__ = name, method.__doc__
    return read


class ListWrapper(_Wrapper, list[Any]):
    """A list whose members are tracked under their positions ``0``, ``1``, ...

    It is a view of the list that was assigned: a change of one is a change of the other.

    Example:
        >>> import milepost
        >>> module = milepost.Module()
        >>> module.layers = layers = []
        >>> module.layers
        ListWrapper([])
        >>> layers.append(3)
        >>> module.layers == layers == [3]
        True
    """

    _former: list[Any]
    """The members that this view had in its memory when it last agreed with the original."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__()
        for item in items:
            self.append(item)

    def _show(self, original: list[Any]) -> None:
        self._former = list.copy(self)
        super()._show(original)

    def _fill(self, original: list[Any]) -> None:
        self._show(original)  # before its members, for lists that hold themselves
        list.extend(self, [_wrap_member(item) for item in original])
        self._former = list.copy(self)
        for item in original:
            if type(item) is NoDependency:
                self._leave_out(item.value, _ABSENT)

    def _adopt(self, original: list[Any]) -> None:
        mine, former = list.copy(self), self._former
        self._former = mine
        if len(mine) == len(original):
            others = [number for number, same in enumerate(map(is_, mine, original)) if not same]
            if all(_shows(mine[number], original[number]) for number in others):
                return
        if not _are_same(mine, former):  # a function in C has changed the memory of this view
            if len(former) == len(original) and all(map(_shows, former, original)):
                self._former = mine = [self._shown(each) for each in mine]  # what it has put there has no view yet
                self._original[:] = map(_given, mine)
                list.__setitem__(self, slice(None), mine)
                return
            warn(
                "a list in a checkpoint or module was changed by the program, and its view by a function that calls none of its "
                "methods, as heapq does: the list stays, and the change of the view is lost. Pass the list itself to such functions",
                UntrackedWarning,
            )
        self._former = mine = self._adopted(former, original)
        list.__setitem__(self, slice(None), mine)

    def _adopted(self, former: list[Any], original: list[Any]) -> list[Any]:
        """How this view shows the original, which has changed."""
        mine = [
            former[number] if number < len(former) and _shows(former[number], member) else self._shown(member)
            for number, member in enumerate(original)
        ]
        if attach.deferral.expects(self):
            for number in range(len(former), len(mine)):
                attach.deferral.keeps_own(self, str(number), mine[number])
        return mine

    def _drop(self) -> None:
        super()._drop()
        del self._former

    def _given(self) -> list[Any]:
        with _lock:
            original: list[Any] | None = self._original
            if original is None:
                original = []
                self._show(original)  # before its members, for lists that hold themselves
                original.extend(map(_given, list.__iter__(self)))
        return original

    def _members(self) -> tuple[Iterator[Any] | None, Iterator[Any] | None]:
        return list.__iter__(self), None

    def _align(self) -> list[Any] | None:
        """The original, or None if nobody else holds it. Each position has the same member in this view and in the original."""
        original: list[Any] | None = self._held()
        if original is not None and not (len(original) == list.__len__(self) == len(self._former)):
            self._agree()
        return original

    def _put(self, index: Any, new: Any) -> None:
        """Puts members at their places, also in the original. Deferred values are not settled."""
        with _lock:
            original = self._align()
            if original is not None:
                original[index] = list(map(_given, new)) if isinstance(index, slice) else _given(new)
                self._former[index] = new
            list.__setitem__(self, index, new)

    def _put_all(self, changes: Mapping[int, Any]) -> None:
        """The same for many members, by their positions."""
        with _lock:
            original = self._align()
            for index, new in changes.items():
                list.__setitem__(self, index, new)
                if original is not None:
                    original[index] = _given(new)
                    self._former[index] = new

    def _append(self, item: Any) -> None:
        """Puts a member at the end, also of the original. Deferred values are not settled."""
        with _lock:
            original = self._align()
            if original is not None:
                original.append(_given(item))
                self._former.append(item)
            list.append(self, item)

    def _remove(self, index: Any) -> None:
        """Removes members, also from the original. Deferred values are not settled."""
        with _lock:
            original = self._align()
            if original is not None:
                del original[index]
                del self._former[index]
            list.__delitem__(self, index)

    def __len__(self) -> int:
        if self._original is None:
            return list.__len__(self)
        with _lock:
            if self._original is None or list.__len__(self) != len(self._former):
                self._agree()
            return list.__len__(self if self._original is None else self._original)

    def __getitem__(self, index: Any) -> Any:
        original: list[Any] | None = self._original
        if original is None:
            return list.__getitem__(self, index)
        if type(index) is int and 0 <= index < list.__len__(self):  # nearly always, and without the lock
            mine = list.__getitem__(self, index)
            if mine is original[index]:
                return mine
        with _lock:
            original = self._original
            if original is not None and not isinstance(index, slice) and list.__len__(self) == len(self._former):
                member, number = original[index], range(len(original))[index]
                if number >= list.__len__(self):
                    if _is_shown_as_it_is(member):
                        return member
                elif (mine := list.__getitem__(self, number)) is self._former[number] and _shows(mine, member):
                    return mine
            self._agree()
            return list.__getitem__(self, index)

    def append(self, item: Any) -> None:
        attach.deferral.before_append(self)
        self._append(self._enter(str(len(self)), item))

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
            self._put(slice(index, index), [item])

    def __setitem__(self, index: Any, item: Any) -> None:
        item = [self._enter(None, each) for each in item] if isinstance(index, slice) else self._enter(None, item)
        if attach.deferral.expects(self):
            members = list(self)
            members[index] = item
            self._change(members)
        else:
            self._put(index, item)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        self._remove(index)
        self._settle_members()

    def pop(self, index: SupportsIndex = -1) -> Any:
        with _lock:
            item = self[index] if len(self) else list.pop(self)  # which raises the error of an empty list
            self._remove(index)
        self._settle_members()
        return item

    def remove(self, item: Any) -> None:
        self._agree()
        try:
            index = list.index(self, item)
        except ValueError:
            raise ValueError("list.remove(x): x not in list") from None
        self._remove(index)
        self._settle_members()

    def clear(self) -> None:
        self._remove(slice(None))

    def reverse(self) -> None:
        self._put(slice(None), list(self)[::-1])
        self._settle_members()

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        self._put(slice(None), sorted(self, key=key, reverse=reverse))
        self._settle_members()

    def copy(self) -> ListWrapper:
        return ListWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        self._agree()
        return f"ListWrapper({super().__repr__()})"

    def _change(self, members: list[Any]) -> ListWrapper:
        """Replaces the members. If a deferred value does not fit one of them, nothing changes."""
        if attach.deferral.expects(self):
            members = [attach.deferral.admit(self, str(position), item) for position, item in enumerate(members)]
        self._put(slice(None), members)
        return self

    def _settle_members(self) -> None:
        if attach.deferral.expects(self):
            self._change(list(self))


def _are_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


_COMPARISONS: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
for _name in (
    *_COMPARISONS,
    "__iter__",
    "__reversed__",
    "__contains__",
    "__add__",
    "__mul__",
    "__rmul__",
    "count",
    "index",
):
    setattr(ListWrapper, _name, _agreeing(list, _name))


class _MappingWrapper(_Wrapper, dict[Any, Any]):
    """The common part of both dict wrappers."""

    _base: type[dict[Any, Any]]

    def _adopt(self, original: dict[Any, Any]) -> None:
        base, mine = self._base, self._pairs()
        if _are_same(list(mine), list(original)):
            for (key, shown), member in zip(mine.items(), original.values(), strict=True):
                if not _shows(shown, member):
                    base.__setitem__(self, key, self._shown(member, key))
            return
        changed = {
            key: mine[key] if key in mine and _shows(mine[key], member) else self._shown(member, key)
            for key, member in original.items()
        }
        if attach.deferral.expects(self):
            for key, member in changed.items():
                if key not in mine and isinstance(key, str):
                    attach.deferral.keeps_own(self, key, member)
        base.clear(self)
        for key, member in changed.items():
            base.__setitem__(self, key, member)

    def _fill(self, original: dict[Any, Any]) -> None:
        self._show(original)  # before its members, for dicts that hold themselves
        for key, item in original.items():
            self._base.__setitem__(self, key, _wrap_member(item))
            if type(item) is NoDependency:
                self._leave_out(item.value, key)

    def _pairs(self) -> dict[Any, Any]:
        """The members in the memory of this view, in order."""
        return {key: dict.__getitem__(self, key) for key in self._base.__iter__(self)}

    def _given(self) -> dict[Any, Any]:
        with _lock:
            original: dict[Any, Any] | None = self._original
            if original is None:
                original = self._base()
                self._show(original)  # before its members, for dicts that hold themselves
                for key, member in self._pairs().items():
                    original[key] = _given(member)
        return original

    def _members(self) -> tuple[Iterator[Any] | None, Iterator[Any] | None]:
        return None, iter(self._pairs().items())

    def _put(self, key: Any, value: Any) -> None:
        """Puts a member at its place, also in the original. Deferred values are not settled."""
        with _lock:
            original = self._held()
            if original is not None:
                original[key] = _given(value)
            self._base.__setitem__(self, key, value)

    def _put_all(self, changes: Mapping[Any, Any]) -> None:
        """The same for many members, by their keys."""
        with _lock:
            original = self._held()
            if original is not None:
                original.update((key, _given(value)) for key, value in changes.items())
            for key, value in changes.items():
                self._base.__setitem__(self, key, value)

    def _remove(self, key: Any) -> None:
        """Removes a member, also from the original."""
        with _lock:
            original = self._held()
            if original is not None:
                del original[key]
                if not dict.__contains__(self, key):
                    return
            self._base.__delitem__(self, key)

    def __len__(self) -> int:
        original = self._original
        return dict.__len__(self) if original is None else len(original)

    def __contains__(self, key: object) -> bool:
        original = self._original
        return dict.__contains__(self, key) if original is None else key in original

    def __getitem__(self, key: Any) -> Any:
        original = self._original
        if original is None:
            return dict.__getitem__(self, key)
        with _lock:
            member, mine = original[key], dict.get(self, key, _ABSENT)
            if mine is not member and not _shows(mine, member):
                mine = self._shown(member, key)
                self._base.__setitem__(self, key, mine)
            return mine

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __setitem__(self, key: Any, value: Any) -> None:
        is_untracked = type(value) is NoDependency
        self._put(key, self._enter(key if isinstance(key, str) else None, value, key))
        if not is_untracked and "_untracked_keys" in self.__dict__:
            self._untracked_keys.discard(key)

    def __delitem__(self, key: Any) -> None:
        self._remove(key)

    def pop(self, key: Any, *default: Any) -> Any:
        if default and key not in self:
            return default[0]
        value = self[key]
        self._remove(key)
        return value

    def _pop_end(self, last: bool) -> tuple[Any, Any]:
        base, original = self._base, self._held()
        members: Any = self if original is None else original
        if not len(members):
            return base.popitem(self)  # which raises the error of an empty dict
        key = next(base.__reversed__(members) if last else base.__iter__(members))
        return key, self.pop(key)

    def clear(self) -> None:
        with _lock:
            original = self._held()
            if original is not None:
                original.clear()
            self._base.clear(self)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in self._base(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self


class DictWrapper(_MappingWrapper):
    """A dict whose members are tracked under their string keys.

    It is a view of the dict that was assigned: a change of one is a change of the other.

    Example:
        >>> import milepost
        >>> module = milepost.Module()
        >>> module.rates = rates = {"low": 0.1}
        >>> module.rates
        DictWrapper({'low': 0.1})
        >>> module.rates["high"] = 0.2
        >>> rates
        {'low': 0.1, 'high': 0.2}
    """

    _base = dict

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def popitem(self) -> tuple[Any, Any]:
        return self._pop_end(last=True)

    def copy(self) -> DictWrapper:
        return DictWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return f"DictWrapper({self})"

    def __str__(self) -> str:
        self._agree()
        return super().__repr__()


class OrderedDictWrapper(_MappingWrapper, OrderedDict[Any, Any]):
    """An ``OrderedDict`` whose members are tracked under their string keys; a view as `DictWrapper` is."""

    _base = OrderedDict

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        return self._pop_end(last)

    def move_to_end(self, key: Any, last: bool = True) -> None:
        with _lock:
            self._agree()
            if self._original is not None:
                self._original.move_to_end(key, last)
            super().move_to_end(key, last)

    def copy(self) -> OrderedDictWrapper:
        return OrderedDictWrapper(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return f"DictWrapper({self})"

    def __str__(self) -> str:
        return f"OrderedDict({list(self.items())!r})"


for _kind in (DictWrapper, OrderedDictWrapper):
    for _name in ("__eq__", "__ne__", "__iter__", "__reversed__", "__or__", "__ror__", "keys", "values", "items"):
        setattr(_kind, _name, _agreeing(_kind._base, _name))

_WRAPPERS: Final[dict[type, type]] = {list: ListWrapper, dict: DictWrapper, OrderedDict: OrderedDictWrapper}


def wrap(value: Any) -> Any:
    """The views of plain lists and dicts, also inside tuples. Other values are returned as they are.

    Trees of values that never change (`milepost.graph.trees.structure`) are not wrapped, because a wrapped tree is another tree.

    Raises:
        UntrackableError: Lists, dicts and tuples are nested more deeply than Python can follow.
    """
    kind = type(value)
    if not (kind in _WRAPPERS or issubclass(kind, tuple)):
        return value
    try:
        return value if is_functional(value) else _wrap_member(value)
    except RecursionError:
        raise UntrackableError(
            "lists, dicts and tuples are nested more deeply than Python can follow",
            found=f"an object of type {kind.__name__} of too many levels",
            remedy="hold the members in one list, or in milepost.Module objects that refer to each other",
        ) from None


def _wrap_member(value: Any) -> Any:
    kind = type(value)
    if kind in _WRAPPERS:
        return view_of(value)
    if issubclass(kind, tuple) and is_tuple(kind):
        members = [_wrap_member(item) for item in value]
        return value if all(map(is_, members, value)) else make_tuple(kind, members)
    return value.value if kind is NoDependency else value


def view_of(original: Any) -> Any:
    """The view of a list or dict, whatever it holds. Members are wrapped as `wrap` does it."""
    view = _views.get(id(original))
    if view is not None and view._original is original:
        return view
    view = _WRAPPERS[type(original)]()
    view._fill(original)
    return view


def agree(container: Any) -> None:
    """Brings a view and the list or dict that it shows to the same members. Any other container stays as it is."""
    if isinstance(container, _Wrapper) and container._original is not None:
        container._agree()


def put(view: Any, key: Any, value: Any) -> None:
    """Puts a member, or several at a slice, into a view and the list or dict that it shows. Deferred values are not settled."""
    view._put(key, value)


def put_all(view: Any, changes: Mapping[Any, Any]) -> None:
    """The same for several members, by their positions or keys."""
    view._put_all(changes)


def append(view: ListWrapper, item: Any) -> None:
    """Puts a member at the end of a view and of the list that it shows. Deferred values are not settled."""
    view._append(item)


def remove(view: Any, key: Any) -> None:
    """Removes a member, or several at a slice, from a view and the list or dict that it shows."""
    view._remove(key)


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
        obj = left.pop()
        if id(obj) in seen or id(obj) in known:
            continue
        kind = type(obj)  # ``__class__`` may be a property of the object that runs any code
        if issubclass(kind, Mapping):
            members: Iterable[Any] = obj.values()
        elif issubclass(kind, (list, tuple, set, frozenset, deque)):
            members = obj
        elif is_dataclass(kind) and adapter_of(obj) is None:
            members = [_field(obj, field.name) for field in fields(kind)]
        elif adapter_of(obj) is not None:
            return obj
        elif within_objects and len(seen) < _MOST_SEARCHED and not is_of_python(kind):
            members = list((_field(obj, "__dict__") or {}).values())
        else:
            continue
        seen[id(obj)] = obj
        left += reversed(list(members))
    return None
