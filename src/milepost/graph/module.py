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
"""Where an object notes the names of attributes that were assigned as `NoDependency`."""
NOW_NUMBERS: Final = "_milepost_now_numbers"
"""Where it notes those that were tracked objects and are numbers now."""


class _TrackedCachedProperty(cached_property[Any]):
    """A cached property whose value is assigned like any other attribute, so that it has its restored value before it is used."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        assert self.attrname is not None, "the class body has named it"
        setattr(instance, self.attrname, self.func(instance))
        return instance.__dict__[self.attrname]


class Tracked:
    """An object whose attributes are edges of the object graph.

    Lists and dicts that are assigned become their tracked wrappers (see `milepost.graph.containers`); a value that a
    restored checkpoint holds for a new attribute is given to it before the attribute can be read.

    Type checkers know the attributes that a class declares or assigns in its methods, and report others as mistakes. A
    `__getattr__` for them would have them accept every misspelt method.
    """

    _internal: ClassVar[frozenset[str]] = frozenset()
    """Attributes of the class's own, which are no children."""
    _names_in_slots: ClassVar[Sequence[str]] = ()
    """Names in ``__slots__`` of the class and its bases, whose values are not in ``vars``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        slots = [vars(base).get("__slots__", ()) for base in cls.__mro__]
        names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
        cls._names_in_slots = [name for name in names if name not in ("__dict__", "__weakref__")]
        # Python's own puts its value beside __setattr__(). It may also be that of a base that is no tracked class.
        members = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items()}
        for name, member in members.items():
            if type(member) is cached_property:
                tracked = _TrackedCachedProperty(member.func)
                tracked.__set_name__(cls, name)
                setattr(cls, name, tracked)

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if type(value) is NoDependency:
            value = value.value
            attributes.setdefault(UNTRACKED, set()).add(name)
        else:
            value = wrap(value)
            adapter = adapter_of(value)
            if adapter is not None:
                adapter.on_attached(value)
                value = attach.deferral.admit(self, name, value)
                if name in attributes and adapter_of(attributes[name]) is None:
                    # Edges are ordered by when they were first tracked, so `self.a = None` must not hold a place.
                    del attributes[name]
                if NOW_NUMBERS in attributes:
                    attributes[NOW_NUMBERS].discard(name)
            elif type(value) in NUMBERS and name in attributes and adapter_of(attributes[name]) is not None:
                attributes.setdefault(NOW_NUMBERS, set()).add(name)
            if UNTRACKED in attributes:
                attributes[UNTRACKED].discard(name)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        attributes = vars(self)
        return with_children(self, attributes, {*type(self)._internal, *attributes.get(UNTRACKED, ())})

    def _now_numbers(self) -> list[str]:
        """Names of attributes that were tracked and are numbers now, which no module saves."""
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
        """All variables reachable from this module, nearest first."""
        return tuple(obj for obj in reachable(self) if isinstance(obj, Variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those of `variables` that were created with ``trainable=True``."""
        return tuple(variable for variable in self.variables if variable.trainable)


class SlotOwner(Module):
    """A module, usually an optimizer, that keeps *slot variables*: state that belongs to it and to one variable.

    A slot variable is saved only if both its owner and its variable are. Restoring makes the slots that the
    checkpoint holds, so that they need not exist before.

    Any other class may take part by having ``get_slot_names()`` and ``get_slot(variable, name)``; slots that it does
    not have yet are restored if it has ``add_slot(variable, name)`` too.

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
        """The slot ``name`` of ``variable``, or None if it has not been made."""
        found = self._slots().get(name, {}).get(id(variable))
        return found[1] if found is not None else None

    def add_slot(self, variable: Any, name: str, initial_value: Any = None) -> Variable:
        """Returns the slot ``name`` of ``variable``, and makes it if there is none.

        Args:
            variable: The variable it belongs to.
            name: The slot's name, for example ``"m"``.
            initial_value: What a new slot holds; zeros like the variable unless given.

        Raises:
            MismatchError: A restored checkpoint holds a value of another shape or dtype for it.
        """
        slot = self.get_slot(variable, name)
        if slot is None:
            if initial_value is None:
                initial_value = np.zeros_like(np.asarray(variable))
            slot = attach.deferral.admit(self, (id(variable), name), Variable(initial_value, trainable=False))
            # The variable is kept too: its identity is the key, and must not be given to another object.
            self._slots().setdefault(name, {})[id(variable)] = (variable, slot)
        return slot

    def drop_slot(self, variable: Any, name: str) -> None:
        """Forgets the slot ``name`` of ``variable``."""
        self._slots().get(name, {}).pop(id(variable), None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # After copying or unpickling the variables are others, and so are their identities.
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
