"""NNX graph nodes: modules, optimizers, metrics, random streams, `nnx.List`, `nnx.Dict`, and every other `nnx.Pytree`.

Their children are their attributes, static ones included, since NNX draws the line between data and settings elsewhere:
what is not trackable is left out. `nnx.State` is no node, but a tree like any other of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flax import nnx

from milepost.graph.adapter import Adapter
from milepost.graph.places import kind_of_place, place_of_tree

_BOOKKEEPING: Final = "_pytree__"


class NodeAdapter(Adapter):
    """`nnx.Pytree`: its attributes."""

    silent = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, nnx.Pytree)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        pairs = [
            (name, child if type(child) is not dict or _has_names(child) else _place(obj, name, child))
            for name, child in vars(obj).items()
            if not name.startswith(_BOOKKEEPING)
        ]
        if isinstance(obj, nnx.List):  # inserting leaves them in another order
            pairs = sorted((pair for pair in pairs if pair[0].isdecimal()), key=lambda pair: int(pair[0]))
        return pairs

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        # Past __setattr__, which would decide anew what is data; the successor is of the same kind.
        vars(obj).update(changes)
        return obj


def _has_names(mapping: dict[Any, Any]) -> bool:
    return all(
        isinstance(key, str) and (type(child) is not dict or _has_names(child)) for key, child in mapping.items()
    )


def _place(obj: Any, name: str, mapping: dict[Any, Any]) -> Any:
    """The place of a dict by positions or paths, which may hold variables, so that it is a tree to NNX only."""
    kind = kind_of_place(mapping)
    return mapping if kind is None else place_of_tree(obj, name, mapping, kind, attached=True)
