"""Objects whose attributes are tracked: `Tracked`, `Module` and `SlotOwner`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from milepost.graph import attach
from milepost.graph.adapter import adapter_of
from milepost.graph.containers import NoDependency, wrap
from milepost.graph.description import with_children
from milepost.graph.numbers import NUMBERS
from milepost.graph.traversal import reachable
from milepost.graph.variable import Variable

UNTRACKED: Final = "_milepost_untracked"
"""The attribute with the names of attributes that were assigned as `NoDependency`."""
NOW_NUMBERS: Final = "_milepost_now_numbers"
"""The attribute with the names of attributes that were tracked objects and are numbers now."""


class _TrackedCachedProperty(cached_property[Any]):
    """A cached property. Its value is assigned like an attribute, so that it gets its restored value before it is used."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        assert self.attrname is not None, "the class body has named it"
        setattr(instance, self.attrname, self.func(instance))
        return instance.__dict__[self.attrname]


class Tracked:
    """An object whose attributes are edges of the object graph.

    Lists and dicts that are assigned become tracked wrappers (`milepost.graph.containers`). A new attribute gets its deferred
    value, if there is one, before the attribute can be read.

    Type checkers know the attributes that a class declares or assigns in its methods, and report others as mistakes. A
    `__getattr__` would make them accept every misspelt method.
    """

    _internal: ClassVar[frozenset[str]] = frozenset()
    """Attributes of the class itself, which are not children."""
    _names_in_slots: ClassVar[Sequence[str]] = ()
    """Names in ``__slots__`` of the class and its bases. Their values are not in ``vars``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        slots = [vars(base).get("__slots__", ()) for base in cls.__mro__]
        names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
        cls._names_in_slots = [name for name in names if name not in ("__dict__", "__weakref__")]
        # A cached_property does not call __setattr__() for its value. It may belong to a base that is not tracked.
        members = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items()}
        for name, member in members.items():
            if type(member) is cached_property:
                tracked = _TrackedCachedProperty(member.func)
                tracked.__set_name__(cls, name)
                setattr(cls, name, tracked)

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if type(value) is NoDependency:
            attributes.setdefault(UNTRACKED, set()).add(name)
            object.__setattr__(self, name, value.value)
            return
        value = wrap(value)
        adapter = adapter_of(value)
        if adapter is not None:
            adapter.on_attached(value)
            is_new_edge = name in attributes and adapter_of(attributes[name]) is None
            # One line, so that Ctrl-C comes before both or after both: a child that has got its deferred values is held.
            object.__setattr__(self, name, attach.deferral.admit(self, name, value))
            if is_new_edge and name in attributes:
                # Edges have the order in which they were first tracked, so `self.a = None` must not define a position.
                attributes[name] = attributes.pop(name)
            if NOW_NUMBERS in attributes:
                attributes[NOW_NUMBERS].discard(name)
        else:
            if type(value) in NUMBERS and name in attributes and adapter_of(attributes[name]) is not None:
                attributes.setdefault(NOW_NUMBERS, set()).add(name)
            object.__setattr__(self, name, value)
        if UNTRACKED in attributes:
            attributes[UNTRACKED].discard(name)

    def __repr__(self) -> str:
        attributes = vars(self)
        return with_children(self, attributes, {*type(self)._internal, *attributes.get(UNTRACKED, ())})

    def _now_numbers(self) -> list[str]:
        """Names of attributes that were tracked objects and are numbers now, which a module does not save."""
        names = self.__dict__.get(NOW_NUMBERS, ())
        return sorted(name for name in names if type(self.__dict__.get(name)) in NUMBERS)


class Module(Tracked):
    """A container for variables, arrays, other modules, and lists, dicts and tuples of them.

    Example:
        >>> import milepost
        >>> class Dense(milepost.Module):
        ...     def __init__(self, units):
        ...         self.bias = milepost.Variable([0.0] * units)
        >>> [variable.shape for variable in Dense(5).variables]
        [(5,)]
    """

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables that can be reached from this module, nearest first."""
        return tuple(obj for obj in reachable(self) if isinstance(obj, Variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those of `variables` that were created with ``trainable=True``."""
        return tuple(variable for variable in self.variables if variable.trainable)


class SlotOwner(Module):
    """A module, usually an optimizer, that keeps *slot variables*: state that belongs to it and to one variable.

    A slot variable is saved only if both its owner and its variable are saved. A restore makes the slots that the
    checkpoint has, so they need not exist before.

    Any other class has slot variables if it has the methods ``get_slot_names()`` and ``get_slot(variable, name)``. Slots that do
    not exist yet are restored if it has ``add_slot(variable, name)`` too.

    Example:
        >>> import milepost
        >>> class Momentum(milepost.SlotOwner):
        ...     def apply(self, variable, gradient):
        ...         m = self.add_slot(variable, "m")
        ...         m.assign(0.9 * m + gradient)
        ...         variable.assign_sub(0.1 * m)
        >>> optimizer, w = Momentum(), milepost.Variable([1.0])
        >>> optimizer.apply(w, 1.0)
        >>> optimizer.get_slot(w, "m").numpy()
        array([1.], dtype=float32)
    """

    def get_slot_names(self) -> Sequence[str]:
        """Names of the slots made so far, in the order in which they were first made."""
        return list(self._slots())

    def get_slot(self, variable: Any, name: str) -> Variable | None:
        """The slot ``name`` of ``variable``, or None if it does not exist."""
        entry = self._slots().get(name, {}).get(id(variable))
        return entry[1] if entry is not None else None

    def add_slot(self, variable: Any, name: str, initial_value: Any = None) -> Variable:
        """Returns the slot ``name`` of ``variable``. Makes the slot if it does not exist.

        Args:
            variable: The variable to which the slot belongs.
            name: The name of the slot, for example ``"m"``.
            initial_value: The value of a new slot. By default zeros with the shape and dtype of the variable.

        Raises:
            MismatchError: A restored checkpoint has a value of another shape or dtype for the slot.
        """
        slot = self.get_slot(variable, name)
        if slot is None:
            if initial_value is None:
                initial_value = np.zeros_like(np.asarray(variable))
            slot = attach.deferral.admit(self, (id(variable), name), Variable(initial_value, trainable=False))
            # The variable is kept alive, because its identity is the key and must not become that of another object.
            self._slots().setdefault(name, {})[id(variable)] = (variable, slot)
        return slot

    def drop_slot(self, variable: Any, name: str) -> None:
        """Removes the slot ``name`` of ``variable``."""
        self._slots().get(name, {}).pop(id(variable), None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # After copying or unpickling, the variables are other objects with other identities.
        self.__dict__.update(state)
        for slots in self._slots().values():
            pairs = list(slots.values())
            slots.clear()
            slots.update((id(variable), (variable, slot)) for variable, slot in pairs)

    def _slots(self) -> dict[str, dict[int, tuple[Any, Variable]]]:
        if "_slot_variables" not in self.__dict__:
            self._slot_variables = NoDependency({})
        slots: dict[str, dict[int, tuple[Any, Variable]]] = self.__dict__["_slot_variables"]
        return slots
