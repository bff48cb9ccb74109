"""What every adapter states: which objects it handles, what they hold, and how their values are read and assigned."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from milepost.graph.contract.operation import Operation
from milepost.graph.contract.values import Array, Value


class Contents(abc.ABC):
    """An object's children and values.

    An object with values overrides `values`, and `assign` unless all values have a `Value.destination`. An object with
    children overrides `children`, and `replace` if a child may be one that cannot change, as a tuple or an array of JAX.
    """

    leaf: bool = False
    """Set if objects have only values and never children. Slot variables belong only to leaves."""

    turn: int = 0
    """Objects with a higher turn are saved and restored after those with a lower one. Random state comes last."""

    each_process: str = ""
    """The kind of the state if every process of a program has its own: ``"random"`` for a generator of random numbers,
    ``"data"`` for the position in a stream of data. Empty if all processes hold the same state."""

    @abc.abstractmethod
    def handles(self, kind: type) -> bool:
        """Whether this adapter handles objects of exactly this type. The answer is remembered."""

    def during(self, operation: Operation) -> Self:
        """The adapter to use instead of this one during one operation. It may hold what belongs to the operation, such as an
        option of a save.

        Args:
            operation: The save, restore, report, assertion or drawing. Threads may run several at the same time.
        """
        return self

    def tracks(self, obj: Any) -> bool:
        """Whether this object is saved. Some types, such as tuples, have objects that are not."""
        return True

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        """The objects that ``obj`` holds under names, in its own order. Children that are not trackable are removed
        later.

        A name must be the same in every process that runs the program. Each call must return the same objects.
        """
        return ()

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        """Names of children that TensorFlow does not save, so that its own assertions do not fail for them."""
        return ()

    def of_first_process(self, obj: Any) -> Collection[Any]:
        """Objects below this one whose value on process 0 is that of all processes, whatever the others hold at this moment.

        It is called when several processes save together. Objects that are not in the checkpoint may be among them.
        """
        return ()

    def frozen(self, obj: Any) -> Collection[Any]:
        """Objects that this one holds and that its framework does not train, such as parameters without a gradient. Statistics, which change in
        training without being trained, are not among them.

        It is called in a save with ``CheckpointOptions(base=...)``, which leaves them out.
        """
        return ()

    def version(self, obj: Any) -> Any:
        """Plain data that is another one when the values of the object have changed. None if only the values themselves tell.

        It is called for what a save with ``CheckpointOptions(base=...)`` leaves out. The values are read again when it has changed, and each
        time if it is None.
        """
        return None

    def values(self, obj: Any) -> Sequence[Value]:
        """The tensors of the object itself. It must change nothing, because reports call it too."""
        return ()

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        """The tensors of the object itself in a save, if the object must be asked for its state.

        `values` then returns what is known without asking, because reports and restores must change nothing.
        """
        return self.values(obj)

    def may_refuse(self, obj: Any) -> bool:
        """Whether `assign` may fail for this object. If not, `assign` runs no code of a user, and no old value is copied."""
        return True

    def before_assign(self, obj: Any) -> Callable[[], object]:
        """Called before an `assign` that may fail. Returns a function that puts back the values without a destination."""
        try:
            values: dict[str, Any] = {
                value.name: value.read().copy() for value in self.values(obj) if value.destination is None
            }
        except Exception:  # serialize() may raise one before the object was used; it can still be restored
            values = {}
        return lambda: values and self.assign(obj, values)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        """Takes saved values. It is not called for values with a `Value.destination`, which are read into that memory.

        Args:
            obj: The object.
            arrays: The values by local name, with the shape and a dtype that `values` has stated.

        Returns:
            The object to use instead of ``obj``: ``obj`` itself, or its successor if it cannot change. It is never None.

        Raises:
            MismatchError: The value does not fit. Any other exception is raised as `RefusedError`.
        """
        return obj

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        """Replaces children that cannot change by their successors.

        Args:
            obj: The object that holds them.
            changes: The successors by edge name.

        Returns:
            The object to use instead of ``obj``, as for `assign`.
        """
        raise NotImplementedError
