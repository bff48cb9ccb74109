"""Nodes of JAX's trees other than built-in containers: objects of every class that is registered with `jax.tree_util`.

Their children are those that JAX knows, under JAX's names. Their other attributes are not saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import jax
import numpy as np

from milepost.adapters.jax.private import PYTREE_TYPES
from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, adapter_of, register
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.numbers import NUMBERS
from milepost.graph.omissions import Omission
from milepost.graph.text import TEXTS
from milepost.graph.trees.structure import holds_no_data, is_container

_NODES: Final = jax.tree_util.default_registry


class PytreeAdapter(Adapter):
    """Dataclasses, Flax's structs, Equinox's modules, and all other registered nodes that hold data."""

    functional = True

    def handles(self, kind: type) -> bool:
        return kind in PYTREE_TYPES and kind is not type(None) and not is_container(kind)

    def may_refuse(self, obj: Any) -> bool:
        return False

    def tracks(self, obj: Any) -> bool:
        return any(_is_data(leaf) for leaf in _leaves(obj))

    def omission(self, obj: Any) -> Omission | None:
        for leaf in _leaves(obj):
            if not holds_no_data(leaf):
                reason = f"a {type(obj).__name__} holds a {type(leaf).__name__}, which cannot be stored"
                return Omission(reason, "hold it as numbers, text or arrays; or keep it out of the tree")
        return None

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        pairs = _children(obj)
        if len({name for name, _ in pairs}) < len(pairs):
            raise UntrackableError(
                "two children of a pytree node would have the same name in a checkpoint",
                expected="keys that differ as text",
                found=f"{', '.join(name for name, _ in pairs)}, in a {type(obj).__name__}",
                remedy="register the class with other keys, such as jax.tree_util.GetAttrKey for each field",
            )
        return pairs

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        names = [name for name, _ in _children(obj)]
        leaves, structure = jax.tree_util.tree_flatten(obj, is_leaf=lambda each: each is not obj)
        return structure.unflatten(
            [changes.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)],
        )


def _children(obj: Any) -> list[tuple[str, Any]]:
    pairs, _ = _NODES.flatten_one_level_with_keys(obj)
    return [(_name(key), child) for key, child in pairs]


def _name(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _leaves(obj: Any) -> Iterator[Any]:
    """The leaves of a node. JAX's own function is recursive, and does not always recover from a tree that is too deep."""
    seen: dict[int, Any] = {}
    left = [obj]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        level = _NODES.flatten_one_level(node)
        if level is None:
            yield node
        else:
            seen[id(node)] = node
            left += reversed(list(level[0]))


def _is_data(leaf: Any) -> bool:
    return (
        type(leaf) in NUMBERS
        or type(leaf) in TEXTS
        or isinstance(leaf, (jax.Array, np.ndarray))
        or adapter_of(leaf) is not None
    )


def _flatten_list(obj: ListWrapper) -> tuple[Any, None]:
    return [(jax.tree_util.SequenceKey(index), item) for index, item in enumerate(obj)], None


def _flatten_dict(obj: Any) -> tuple[Any, Any]:
    keys = tuple(sorted(obj)) if isinstance(obj, DictWrapper) else tuple(obj)
    return [(jax.tree_util.DictKey(key), obj[key]) for key in keys], keys


def _register_wrappers() -> None:
    """Registers milepost's lists and dicts with JAX, which treats subclasses of list and dict as leaves."""
    for kind, flatten, make in (
        (ListWrapper, _flatten_list, lambda _, items: ListWrapper(items)),
        (DictWrapper, _flatten_dict, lambda keys, items: DictWrapper(zip(keys, items, strict=True))),
        (OrderedDictWrapper, _flatten_dict, lambda keys, items: OrderedDictWrapper(zip(keys, items, strict=True))),
    ):
        # JAX refuses a class that is already registered. That happens if an earlier import of this package failed after this line.
        if kind not in PYTREE_TYPES:
            jax.tree_util.register_pytree_with_keys(kind, flatten, make)


_register_wrappers()
register(PytreeAdapter(), last=True)
