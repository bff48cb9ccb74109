"""Objects of any library whose state is plain data: iterators, loaders, schedulers.

An object is one of these if its class has ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``, and no other
adapter handles it. No library is imported to find out.

An object is asked for its state in a save, and in a restore before its state is replaced. It is not asked at other times, because
a loader that is asked for its state starts its workers.
"""

from __future__ import annotations

from typing import Any, Final

from milepost.adapters.iterators.grain import with_new_addresses
from milepost.adapters.packed import PackedAdapter
from milepost.graph.adapter import register

_PAIRS: Final = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class StatefulAdapter(PackedAdapter):
    """Any object with ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``."""

    each_process = "data"

    def methods(self, kind: type) -> tuple[str, str] | None:
        """The names of the methods that return and set the state; None if a class has none."""
        return next((names for names in _PAIRS if all(callable(getattr(kind, name, None)) for name in names)), None)

    def handles(self, kind: type) -> bool:
        return self.methods(kind) is not None

    def state(self, obj: Any) -> Any:
        return getattr(obj, self._method(obj, 0))()

    def load(self, obj: Any, state: Any) -> None:
        getattr(obj, self._method(obj, 1))(with_new_addresses(obj, state))

    def _method(self, obj: Any, number: int) -> str:
        methods = self.methods(type(obj))
        assert methods is not None, "only objects with these methods are handled"
        return methods[number]


def is_of(kind: type, *packages: str) -> bool:
    """Whether a class, or a base class of it, is defined in one of these packages."""
    return any(base.__module__.startswith(packages) for base in kind.__mro__)


register(StatefulAdapter(), last=True)
