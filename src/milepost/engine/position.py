"""A saved node that waits for its object, as one restore of an object-based checkpoint leaves it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from milepost.tensor import TensorSpec

if TYPE_CHECKING:
    from milepost.engine.restore import Restoration


class RestoredPosition:
    """A saved node that waits for its object; see `milepost.graph.waiting`."""

    __slots__ = ("is_late", "node", "restoration", "siblings", "superseded", "variable", "was_passed")

    def __init__(self, restoration: Restoration, node: int, variable: Any, siblings: int, *, is_late: bool) -> None:
        self.restoration = restoration
        self.node = node
        self.siblings = siblings
        self.is_late = is_late
        self.variable = variable  # kept: a slot waits under its variable's identity, which must stay its own
        self.superseded = False
        self.was_passed = False
        restoration.waiting.add(node)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # or the names of modules may be gone
            self.restoration.waiting.remove(self.node, superseded=self.superseded)

    def supersede(self) -> bool:
        if not self.superseded:
            self.superseded = True
            self.restoration.waiting.supersede()
        return self.restoration.is_watched

    @property
    def file(self) -> str:
        return self.restoration.reader.prefix

    @property
    def key(self) -> str:
        return self.restoration.first_key(self.node)

    @property
    def is_wanted(self) -> bool:
        """Whether a save is to take along what waits."""
        return not self.superseded and not self.restoration.partial_expected

    @property
    def uid(self) -> int:
        return self.restoration.uid

    def peek(self) -> Any:
        values = self.restoration.graph.nodes[self.node].values
        return self.restoration.reader.read(values[0].key) if len(values) == 1 and not self.superseded else None

    def specs(self) -> Mapping[str, TensorSpec]:
        return self.restoration.specs(self.node)

    def is_settled(self) -> bool:
        return self.restoration.is_settled(self.node)

    def settle(self, name: Any, child: Any) -> Any:
        return self.restoration.settle(self.node, child, superseded=self.superseded)
