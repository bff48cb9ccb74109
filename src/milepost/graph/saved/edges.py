"""Which live child a saved edge means. Whatever follows saved edges in live objects asks here."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Any

from milepost.graph.adapter import Adapter, adapter_of


def by_live_names(
    adapter: Adapter, obj: Any, saved: Sequence[tuple[str, int]], live: Container[str]
) -> Sequence[tuple[str, int]]:
    """Saved edges under the names of the live children that they mean: the saved name, or another one that the object knows for it.

    Args:
        adapter: The adapter of the object.
        obj: The live object.
        saved: The saved edges.
        live: The names of the live children. A saved name that is among them means that child.
    """
    aliases = adapter.aliases(obj) if "aliases" in adapter.overrides else None
    return [(name if name in live else aliases.get(name, name), node) for name, node in saved] if aliases else saved


def stand_ins(adapter: Adapter, obj: Any, saved: Collection[str]) -> dict[str, Any]:
    """The live children that saved edges mean if no child has the name, by the names of these edges.

    Args:
        adapter: The adapter of the object.
        obj: The live object.
        saved: The names of the saved edges.
    """
    pairs = adapter.stand_ins(obj, saved) if "stand_ins" in adapter.overrides else ()
    return {name: child for name, child in pairs if adapter_of(child) is not None}
