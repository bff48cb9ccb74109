"""NNX graph nodes: modules, optimizers, metrics, random streams, `nnx.List`, `nnx.Dict`, and every other `nnx.Pytree`.

Their children are their attributes, static ones included, since NNX draws the line between data and settings elsewhere:
what is not trackable is left out. Containers without state are settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flax import nnx

from milepost.graph.adapter import Adapter

_BOOKKEEPING: Final = "_pytree__"


class NodeAdapter(Adapter):
    """`nnx.Pytree`: its attributes."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, nnx.Pytree)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        pairs = [(name, child) for name, child in vars(obj).items() if not name.startswith(_BOOKKEEPING)]
        if isinstance(obj, nnx.List):  # inserting leaves them in another order
            pairs = sorted((pair for pair in pairs if pair[0].isdecimal()), key=lambda pair: int(pair[0]))
        return pairs

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        # Past __setattr__, which would decide anew what is data; the successor is of the same kind.
        vars(obj).update(changes)
        return obj
