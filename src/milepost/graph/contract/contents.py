"""What every adapter says: which objects are its own, what they hold, and how their values are read and given back."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from milepost.graph.contract.values import Array, Value


class Contents(abc.ABC):
    """An object's children and values.

    An object with values overrides `values`, and `assign` unless all values have a `Value.destination`. An object with
    children overrides `children`, and `replace` if a child may be one that cannot change, as a tuple or an array of JAX.
    """

    leaf: bool = False
    """Set where objects have values only and never children. Slot variables belong to leaves only."""

    turn: int = 0
    """Objects of a higher turn are saved, and get their values, after those of a lower one; random state comes last."""

    @abc.abstractmethod
    def handles(self, kind: type) -> bool:
        """Whether objects of exactly this type are this adapter's. The answer is remembered."""

    def tracks(self, obj: Any) -> bool:
        """Whether this very object takes part, where not all objects of a type do, as with tuples."""
        return True

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        """Everything the object holds under a name, in its own order; what is not trackable is left out later.

        A name is the same in every process that runs the program. Each call gives the same children, as the same objects.
        """
        return ()

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        """Names of children that TensorFlow does not save. Its own assertions are not told of them then."""
        return ()

    def values(self, obj: Any) -> Sequence[Value]:
        """The object's own tensors. It must change nothing, since reports ask it, too."""
        return ()

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        """The object's own tensors when it is saved, if only asking it tells what they are.

        Then `values` gives as much as is known without asking, since reports and restores must change nothing.
        """
        return self.values(obj)

    def may_refuse(self, obj: Any) -> bool:
        """Whether `assign` may fail for this object. If not, it runs nobody's code, and no copy of the old value need be kept."""
        return True

    def before_assign(self, obj: Any) -> Callable[[], object]:
        """Called before `assign`, where that may fail; what it returns puts back the values that have no destination."""
        try:
            values = {value.name: value.read().copy() for value in self.values(obj) if value.destination is None}
        except Exception:
            # Whatever a user's own serialize() raises before it was ever used, the object can still be restored.
            values = {}
        return lambda: values and self.assign(obj, values)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        """Takes saved values.

        Args:
            obj: The object.
            arrays: Local name to value, of the dtype (or one that it accepts) and shape that `values` stated. A value that had a
                `Value.destination` is in it already, and the array here is that destination.

        Returns:
            The object that is to stand where ``obj`` stood: ``obj``, or its successor if it cannot change. It is never None.

        Raises:
            MismatchError: The object does not take the value. Any other exception is raised as `RefusedError`.
        """
        return obj

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        """Puts successors in the place of children that cannot change.

        Args:
            obj: The object that holds them.
            changes: Edge name to the successor.

        Returns:
            The object that is to stand where ``obj`` stood, as for `assign`.
        """
        raise NotImplementedError
