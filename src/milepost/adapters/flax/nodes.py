"""NNX graph nodes: modules, optimizers, metrics, random streams, `nnx.List`, `nnx.Dict`, and every other `nnx.Pytree`.

Their children are all their attributes, static ones included; attributes that are not trackable are left out. Numbers and text
are settings, except those that `nnx.data` marks: `nnx.state` has these too, so they are state. `nnx.State` is not a node, but an
ordinary tree of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from flax import nnx

from milepost.adapters.counters import has_counted
from milepost.adapters.flax.moved import List, Pytree, marked, marks_attributes
from milepost.adapters.flax.private import flatten
from milepost.adapters.flax.variables import leaves_with_path
from milepost.graph.adapter import Adapter
from milepost.graph.numbers import NUMBERS
from milepost.graph.omissions import Accounted
from milepost.graph.text import TEXTS
from milepost.graph.trees.places import InPlace, kind_of_place
from milepost.graph.trees.structure import name_of_key

_BOOKKEEPING: Final = ("_pytree__", "_object__")
"""Flax before 0.11 has the second."""


class NnxPytreeAdapter(Adapter):
    """`nnx.Pytree`: its attributes."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Pytree)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        is_data = marked(obj)
        pairs = [
            (str(name), _place(child) if _needs_place(child, is_data=is_data.get(name, False)) else child)
            for name, child in vars(obj).items()
            if not str(name).startswith(_BOOKKEEPING)
        ]
        if isinstance(obj, List):  # insertions change the order of the attributes
            pairs = sorted((pair for pair in pairs if pair[0].isdecimal()), key=lambda pair: int(pair[0]))
        return pairs

    def account(self, obj: Any) -> Iterable[Accounted]:
        is_usual = type(obj)._graph_node_flatten is flatten
        return _account_of_attributes(obj) if is_usual and marks_attributes(obj) else _account_of_state(obj)

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        # Set in the dict itself: __setattr__ would decide again which attributes are data, and a successor is of the same kind.
        own = vars(obj)
        own.update(
            (name if name in own or not name.isdecimal() else int(name), child) for name, child in changes.items()
        )
        return obj


class NnxOptimizerAdapter(NnxPytreeAdapter):
    """`nnx.Optimizer`, which makes its state once."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, nnx.Optimizer)

    def has_stepped(self, obj: Any) -> bool:
        return has_counted(obj.step)


def _account_of_attributes(obj: Any) -> Iterator[Accounted]:
    """The part of `nnx.state` that belongs to a node itself. Each node below it has an account of its own."""
    is_data = marked(obj)
    for name, child in vars(obj).items():
        if not is_data.get(name, False):
            continue
        parts = [((), child)] if _is_node(child) else leaves_with_path(child, _is_node)
        for path, part in parts:
            if _is_node(part):
                yield Accounted((str(name),), part, anywhere=True)
            elif not path or hasattr(part, "dtype"):  # numbers and text inside of trees are settings
                yield Accounted((str(name), *(name_of_key(_key(step)) for step in path)), part)


def _account_of_state(obj: Any) -> Iterator[Accounted]:
    try:
        state = nnx.to_flat_state(nnx.state(obj))
    except (TypeError, ValueError):
        return  # NNX itself cannot save this node
    for path, value in state:
        yield Accounted([name_of_key(key) for key in path], value)


def _is_node(value: Any) -> bool:
    return isinstance(value, (Pytree, nnx.Variable))


def _key(step: Any) -> Any:
    """The key that NNX uses in a path for a step of a path of JAX."""
    return next(getattr(step, name) for name in ("key", "idx", "name") if hasattr(step, name))


def _needs_place(child: Any, *, is_data: bool) -> bool:
    kind = type(child)
    if kind is dict:
        return not _has_names(child)
    return is_data and (kind in NUMBERS or kind in TEXTS)


def _has_names(mapping: dict[Any, Any]) -> bool:
    return all(
        isinstance(key, str) and (type(child) is not dict or _has_names(child)) for key, child in mapping.items()
    )


def _place(child: Any) -> Any:
    """The place of a number, or of a dict whose keys are not text.

    Such a dict may hold variables, which NNX sees and JAX does not.
    """
    kind = kind_of_place(child)
    return child if kind is None else InPlace(child)
