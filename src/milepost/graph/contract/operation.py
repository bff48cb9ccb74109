"""What one save, restore, report, assertion or drawing knows of the live objects while it runs.

It is made when the operation begins, and passed to everything that looks at live objects. Operations share none of it. So any number
of them may look at the same objects at the same time, in several threads or one inside another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.graph.adapter import Adapter
    from milepost.graph.trees.places import Place


class Operation:
    """One operation on live objects.

    Args:
        root: The object to begin with. In a save or restore of a whole checkpoint it is node 0.
        attached: More edges of the root, after its own. A `Checkpoint` adds them to a root that it was given.

    Attributes:
        root: As given.
        attached: As given.
        adapters: The adapters of types that were met, if no object of the type is in the graph as a place.
        held: The value of each place that was met.
        saved_as: The names of the types of the saved values that places of plain values take, if the live values have other types.
        coming: The place of a tree that no object holds yet, because it is being restored before it is assigned.
        session: What a save or restore does with a session of TensorFlow 1; None if there is none.
        options: The options of a save, which adapters may ask (`Adapter.during`). None if there are none.

    Example:
        >>> import milepost
        >>> operation = Operation(milepost.Variable(1.0))
        >>> operation.held, operation.attached
        ({}, ())
    """

    __slots__ = ("adapters", "attached", "coming", "held", "options", "root", "saved_as", "session")

    def __init__(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> None:
        self.root = root
        self.attached = attached
        self.adapters: dict[type, Adapter] = {}
        self.held: dict[Place, Any] = {}
        self.saved_as: dict[Place, str] = {}
        self.coming: Place | None = None
        self.session: Any = None
        self.options: Any = None
