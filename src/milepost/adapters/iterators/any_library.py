"""Objects that say what state they are in: iterators over data, loaders, schedulers, of any library.

An object is one of these if its class has ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``, and no other
adapter knows it. Nothing is imported to find out.

Objects are asked for their state to save it, and before a restore that could fail after it. Else they are left in peace:
a loader that is asked starts its workers.
"""

from __future__ import annotations

from typing import Any, Final

from milepost.adapters.iterators.grain import with_new_addresses
from milepost.adapters.packed import PackedAdapter
from milepost.graph.adapter import register

_PAIRS: Final = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class StatefulAdapter(PackedAdapter):
    """Any object with ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``."""

    def methods(self, kind: type) -> tuple[str, str] | None:
        """The names of the methods that return and take the state; None if a class has none."""
        return next((names for names in _PAIRS if all(callable(getattr(kind, name, None)) for name in names)), None)

    def handles(self, kind: type) -> bool:
        return self.methods(kind) is not None

    def state(self, obj: Any) -> Any:
        return getattr(obj, self._method(obj, 0))()

    def load(self, obj: Any, state: Any) -> None:
        getattr(obj, self._method(obj, 1))(with_new_addresses(obj, state))

    def _method(self, obj: Any, number: int) -> str:
        methods = self.methods(type(obj))
        assert methods is not None, "only objects that have them are handled"
        return methods[number]


def is_of(kind: type, *packages: str) -> bool:
    """Whether a class, or one that it is derived from, is of one of these packages."""
    return any(base.__module__.startswith(packages) for base in kind.__mro__)


register(StatefulAdapter(), last=True)
