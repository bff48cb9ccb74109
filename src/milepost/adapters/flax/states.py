"""`nnx.State`: nested names, or positions in lists, to variables or arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flax import nnx

from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, adapter_of


class StateAdapter(Adapter):
    """A state: edges are its keys, and positions as text."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, nnx.State)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        # Nested mappings come as states of their own, which share the mapping.
        return [(name, obj[key]) for name, key in _keys_by_name(obj).items()]

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        keys = _keys_by_name(obj)
        for name, child in changes.items():
            obj[keys[name]] = child
        return obj


def _keys_by_name(state: Any) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, child in state.raw_mapping.items():
        if isinstance(key, (str, int)) and str(key) not in keys:
            keys[str(key)] = key
        elif isinstance(child, Mapping) or adapter_of(child) is not None:
            name = str(key)
            raise UntrackableError(
                "a state holds something trackable under a key that no path can name",
                expected="text or positions, each once",
                found=f"{key!r} beside {keys[name]!r}" if name in keys else f"{key!r}, a {type(key).__name__}",
                remedy="use another key",
            )
    return keys
