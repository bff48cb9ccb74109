"""What milepost remembers about live objects: one sidecar for each object, and one rule for all facts in it.

- *Life*: an object is referred to weakly, so its facts end with it. How objects compare or hash does not matter.
- *Copy and pickle*: nothing is put into the object, so a copy has no facts.
- *Fork*: a child knows of its objects what its parent knew. What belongs to one process or thread is not a fact.
- *Threads*: each call is whole, whatever other threads do. Who asks for a fact and then sets it needs a lock.
- *Exit*: facts are just there. When the interpreter ends, no name of a module is needed to forget them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

_Value = TypeVar("_Value")


class _Sidecar(weakref.ref[Any]):
    """A weak reference to an object, with the first fact that was set for it. There may be millions of them."""

    __slots__ = ("fact", "identity", "value")

    fact: Fact[Any]
    identity: int
    value: Any


class _Kept(_Sidecar):
    """The same for an object that allows no weak reference. It is kept alive. What this refers to weakly does not matter."""

    __slots__ = ("obj",)

    obj: Any

    def __new__(cls, obj: Any, forget: Any) -> _Kept:
        kept = super().__new__(cls, cls, forget)
        kept.obj = obj
        return kept

    def __call__(self) -> Any:
        return self.obj


_sidecars: Final[dict[int, _Sidecar]] = {}
_others: Final[dict[int, dict[Fact[Any], Any]]] = {}
"""The facts of an object after its first."""
_NO_FACTS: Final[Mapping[Fact[Any], Any]] = MappingProxyType({})


def _forget(sidecar: Any, sidecars: Any = _sidecars, others: Any = _others) -> None:
    identity, fact = sidecar.identity, sidecar.fact
    sidecars.pop(identity, None)
    if fact._holders is not None or identity in others:
        for each in (fact, *others.pop(identity, ())):
            if each._holders is not None:
                each._holders.pop(identity, None)


class Fact(Generic[_Value]):
    """One fact that objects may have. None is the same as no fact.

    Example:
        >>> class Thing: ...
        >>> thing, color = Thing(), Fact()
        >>> color[thing] = "red"
        >>> color.get(thing), color.get(Thing()), thing in color
        ('red', None, True)
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[int, _Sidecar] | None = None

    def get(self, obj: Any) -> _Value | None:
        """The fact of an object, or None."""
        sidecar = _sidecars.get(id(obj))
        if sidecar is None or sidecar() is not obj:
            return None
        value: _Value | None = sidecar.value if sidecar.fact is self else _others.get(id(obj), _NO_FACTS).get(self)
        return value

    def put(self, obj: Any, value: _Value, kind: type[_Sidecar] = _Sidecar) -> _Value | None:
        """Sets the fact of an object.

        Args:
            obj: The object.
            value: The fact.
            kind: How the object is referred to.

        Returns:
            What it was before, or None.

        Raises:
            TypeError: The object allows no weak reference.
        """
        identity = id(obj)
        sidecar = _sidecars.get(identity)
        if sidecar is None or sidecar() is not obj:
            new = kind(obj, _forget)
            new.identity = identity
            new.fact = self
            new.value = None
            sidecar = _sidecars.setdefault(identity, new)
            if sidecar is not new and sidecar() is not obj:  # Ctrl-C came when an object that had this identity ended
                _forget(sidecar)
                sidecar = _sidecars.setdefault(identity, new)
        if self._holders is not None:
            self._holders[identity] = sidecar
        former: _Value | None
        if sidecar.fact is self:
            former, sidecar.value = sidecar.value, value
        else:
            others = _others.setdefault(identity, {})
            former = others.get(self)
            others[self] = value
        return former

    def __setitem__(self, obj: Any, value: _Value) -> None:
        """As `put`."""
        self.put(obj, value)

    def keep(self, obj: Any, value: _Value) -> None:
        """As `put`, but an object that allows no weak reference is kept alive forever."""
        try:
            self.put(obj, value)
        except TypeError:
            self.put(obj, value, _Kept)

    def pop(self, obj: Any) -> _Value | None:
        """Forgets the fact of an object. Returns what it was, or None."""
        former = self.get(obj)
        if former is not None:
            sidecar = _sidecars[id(obj)]
            if sidecar.fact is self:
                sidecar.value = None
            else:
                _others[id(obj)].pop(self, None)
            if self._holders is not None:
                self._holders.pop(id(obj), None)
        return former

    def __contains__(self, obj: object) -> bool:
        return self.get(obj) is not None


class ListedFact(Fact[_Value]):
    """A fact whose objects can be listed.

    Example:
        >>> class Thing: ...
        >>> thing, color = Thing(), ListedFact()
        >>> color[thing] = "red"
        >>> [(each is thing, value) for each, value in color.items()], len(color)
        ([(True, 'red')], 1)
        >>> del thing
        >>> len(color)
        0
    """

    __slots__ = ()

    def __init__(self) -> None:
        self._holders: dict[int, _Sidecar] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def items(self) -> Iterator[tuple[Any, _Value]]:
        """The objects that have it, and their facts. They may change while this is used."""
        for sidecar in list(self._holders.values()):
            obj = sidecar()
            value = self.get(obj)
            if value is not None:
                yield obj, value


def reference_to(obj: Any) -> Callable[[], Any]:
    """A function that returns an object, or None if it no longer exists. One that allows no weak reference is kept alive."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj
