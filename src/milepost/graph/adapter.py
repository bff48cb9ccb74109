"""The contract between milepost and the objects it saves, and the registry of those who keep it.

An `Adapter` says what milepost needs to know of one kind of object. Its parts are in `milepost.graph.contract`, one subject a file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from milepost.graph.contract import Arrays, Completeness, Contents, DeferredChildren, Matching, Slots
from milepost.graph.contract.values import ANY_SHAPE as ANY_SHAPE
from milepost.graph.contract.values import Array as Array
from milepost.graph.contract.values import Shape as Shape
from milepost.graph.contract.values import StoredTensor as StoredTensor
from milepost.graph.contract.values import Value as Value
from milepost.graph.frameworks import import_adapters, register_registry


class Adapter(Contents, Matching, Slots, DeferredChildren, Completeness, Arrays):
    """What milepost knows of one kind of object.

    There is one instance for all objects of the kind, and it holds no state of theirs.
    """


saving_legacy_slots: Final[ContextVar[bool]] = ContextVar("saving_legacy_slots", default=False)
"""Set during a save for Keras' oldest optimizers, which know slot variables and hyperparameters only."""

_adapters: list[Adapter] = []
_by_type: dict[type, Adapter | None] = {}
_functional: Final = [False]
_MISSING: Final = object()


def register(adapter: Adapter, *, last: bool = False) -> None:
    """Adds an adapter. One added later is asked first, so that it may refine an earlier one.

    Args:
        adapter: The adapter.
        last: Whether it is asked after all others instead, as one of objects that nobody else knows.
    """
    _adapters.insert(len(_adapters) if last else 0, adapter)
    _forget_answers()
    _functional[0] |= adapter.functional


def is_anything_functional() -> bool:
    """Whether any adapter is one of values that never change."""
    return _functional[0]


def adapter_of_type(kind: type) -> Adapter | None:
    """The adapter for objects of exactly this type, or None if they are not trackable.

    Raises:
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    known = _by_type.get(kind, _MISSING)
    if known is not _MISSING:
        return known  # type: ignore[return-value]
    import_adapters()
    answers = _by_type
    found = next((adapter for adapter in _adapters if adapter.handles(kind)), None)
    answers[kind] = found
    return found


def adapter_of(obj: object) -> Adapter | None:
    """The adapter for an object, or None if it is not trackable."""
    adapter = adapter_of_type(type(obj))
    if adapter is not None and adapter.asks_each and not adapter.tracks(obj):
        return None
    return adapter


def adapter_of_array_type(name: str) -> Adapter | None:
    """The adapter that makes arrays of the type that the object graph calls so; None while its framework is not imported."""
    if not name:
        return None
    import_adapters()
    return next((adapter for adapter in _adapters if adapter.array_type == name), None)


def _forget_answers() -> None:
    """Lets every type be asked about again; what a thread has found out meanwhile goes to the old answers."""
    global _by_type
    _by_type = {}


def _snapshot() -> Callable[[], None]:
    adapters, functional = list(_adapters), _functional[0]

    def put_back() -> None:
        _adapters[:] = adapters
        _functional[0] = functional
        _forget_answers()

    return put_back


register_registry(_snapshot)
