"""The contract between milepost and the objects it saves.

An adapter answers five questions about objects of one kind: what are its named children; what are its values, and
how are they read and given back; by what other names may an edge be matched; which slot variables did it make; and
how is one told that it has a new child. Adapters hold no state of their own: there is one instance of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import numpy as np

from milepost.graph.frameworks import import_adapters, register_registry
from milepost.graph.omissions import Accounted, Omission
from milepost.tensor import DType, PiecewiseArray, TensorSlice, TensorSpec

Array = np.ndarray[Any, Any]
Shape = tuple[int | None, ...]
ANY_SHAPE: Final[Shape] = (-1,)
"""Of a value that takes any number of dimensions, of any lengths."""


class StoredTensor(Protocol):
    """A saved value of which boxes can be read, so that it is never in memory as a whole."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, box: TensorSlice) -> Array:
        """Reads a box into a fresh array."""
        ...


class Value:
    """One tensor of an object, as its adapter presents it.

    Attributes:
        name: Local name, the last part of the key.
        dtype: Element type; a saved value of another type does not fit.
        shape: Dimensions; None where any length fits.
        source: The array itself, or a function that makes it, called only when the value is saved. It may lie in pieces.
        destination: Writable C-contiguous memory of exactly ``dtype`` and ``shape`` that a saved value may be read
            straight into, or None if it must go through `Adapter.assign`.
        full_name: The variable's own name, by which name-based (TensorFlow 1) checkpoints are matched.
        accepts: Other element types of saved values that `Adapter.assign` converts without loss, or refuses.
        listed: The name under which the object graph lists the value, if another than ``name``, as TensorFlow does for
            iterators and tables; several values may be listed under one.
        private: Whether TensorFlow would not save it, and its own assertions are not to be told of it.
        in_boxes: Whether `Adapter.assign` may get a `StoredTensor` in the place of an array, to read boxes of it.
    """

    __slots__ = (
        "accepts",
        "destination",
        "dtype",
        "full_name",
        "in_boxes",
        "listed",
        "name",
        "private",
        "shape",
        "source",
    )

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: Shape,
        source: Array | Callable[[], Array | PiecewiseArray],
        destination: Array | None = None,
        full_name: str = "",
        accepts: frozenset[DType] = frozenset(),
        listed: str = "",
        private: bool = False,
        in_boxes: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.source = source
        self.destination = destination
        self.full_name = full_name
        self.accepts = accepts
        self.listed = listed or name
        self.private = private
        self.in_boxes = in_boxes

    def read(self) -> Array | PiecewiseArray:
        """The value as an array, without a copy where the object has one."""
        return self.source() if callable(self.source) else self.source

    def taken(self, array: Array) -> Array:
        """A saved value as `Adapter.assign` is to get it."""
        return array


class Adapter:
    """What milepost knows of one kind of object. Subclasses override the questions their objects have answers to."""

    def handles(self, kind: type) -> bool:
        """Whether objects of exactly this type are this adapter's."""
        raise NotImplementedError

    def tracks(self, obj: Any) -> bool:
        """Whether this very object takes part; asked only where `conditional` is set."""
        return True

    conditional: bool = False
    """Set where some objects of a handled type take part and others do not, as with tuples."""

    open_ended: bool = False
    """Set where objects take whatever tensors were saved for them, of any name, shape and type."""

    searched: bool = False
    """Set where no framework says what of an object is saved, so that a save looks for what it holds and does not track."""

    slots_are_children: bool = False
    """Set where slot variables may be reached by ordinary edges too."""

    leaf: bool = False
    """Set where objects have values only and never children."""

    functional: bool = False
    """Set for values of a program without side effects, which are never changed but succeeded by others, together with
    the containers that hold them (`milepost.graph.trees.places`). Two places that hold the same one are still two."""

    hints: frozenset[str] = frozenset()
    """Names of saved values that `assign` takes beside those of `values`, unless these are read straight into memory. They may
    be there or not, and nothing is missing or left over for it."""

    may_refuse: bool = True
    """Cleared where `assign` runs nobody's code and cannot fail, so that no copy of the old value need be kept."""

    array_type: str = ""
    """The name that the object graph has for the type of arrays that a restore can make anew (`new_array`), if there are any."""

    turn: int = 0
    """Objects of a higher turn are saved, and restored, after those of a lower one; random state comes last."""

    def refuses(self, obj: Any) -> bool:
        """Whether `assign` may fail for this very object; asked only where `may_refuse` is set."""
        return True

    def omission(self, obj: Any) -> Omission | None:
        """Why an object of a handled type does not take part, if its owner should know."""
        return None

    def unfinished(self, obj: Any) -> Omission | None:
        """Why a save at this very moment would lose something, although ``obj`` itself is saved; not asked of leaves."""
        return None

    def attached(self, obj: Any) -> None:
        """Called when ``obj`` becomes an attribute of a `Checkpoint` or `Module`; for what must be watched from then on."""

    def account(self, obj: Any) -> Iterable[Accounted]:
        """What the framework's own way of saving would hold of ``obj`` and all that it holds, as ``state_dict()`` does.

        A save compares it with what it is about to write, and fails if that lacks a part. It is asked for objects that
        are in no account of an object above them.
        """
        return ()

    def is_value(self, obj: Any) -> bool:
        """Whether this is an array as a program computes them, and no variable that holds one."""
        return False

    def is_new_array(self, obj: Any) -> bool:
        """Whether `new_array` makes an array that is like this one but for its elements; asked where `array_type` is set."""
        return False

    def new_array(self, spec: TensorSpec) -> Any:
        """Makes an array that takes a saved value of this element type and shape."""
        raise NotImplementedError

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        """Everything the object holds under a name, in its own order; what is not trackable is left out later."""
        return ()

    def private(self, obj: Any) -> Collection[str]:
        """Names of edges to what TensorFlow would not save, so that its own assertions are not told of it."""
        return ()

    def values(self, obj: Any) -> Sequence[Value]:
        """The object's own tensors."""
        return ()

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        """The object's own tensors when it is saved, if only asking it tells what they are.

        Then `values` gives as much as is known without asking, since reports and restores must change nothing.
        """
        return self.values(obj)

    def undoing(self, obj: Any) -> Callable[[], object]:
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
            The object that is to stand where ``obj`` stood: ``obj``, or its successor if it cannot change.
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

    def aliases(self, obj: Any) -> Mapping[str, str]:
        """Other names that edges of a saved node may have, each with the name of the child it means."""
        return {}

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        """Children that saved edges are matched with although they are never saved under these names.

        They are matched last, after all that can be reached by ordinary names, so that those decide.

        Args:
            obj: The object.
            saved: The names of the saved edges, by which one tells who wrote them.
        """
        return ()

    def exchanged(self, obj: Any) -> Collection[str]:
        """Names of children for which the object puts others as it runs; each counts as the one that was restored."""
        return ()

    def has_slots(self, obj: Any) -> bool:
        """Whether this object is an optimizer, that is, may make slot variables."""
        return False

    def refuse_slots(self, obj: Any, saved: Collection[str]) -> None:
        """Called where slot variables were saved for an object that makes none; raises if they may not be passed over.

        Args:
            obj: The object.
            saved: The names of the saved edges, by which one tells who wrote them.

        Raises:
            MismatchError: Without them, the object would not go on where it was.
        """

    def slot_names(self, obj: Any) -> Sequence[str]:
        """Names of the slot variables that this optimizer has made, or may make."""
        return ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        """The slot variable ``name`` that this optimizer made for ``variable``, or None."""
        return None

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        """Makes that slot variable now, or returns None if the optimizer will make it by itself later.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            saved: Element type and shape of each value that waits for the slot, by local name.
        """
        return None

    def slot_fits(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> bool:
        """Whether a slot variable that exists can take what was saved; if not, `make_slot` puts another in its place."""
        return True

    def share_slot(self, obj: Any, variable: Any, name: str, slot: Any) -> Callable[[], object] | None:
        """Makes the slot variable of another variable this one's too, for they were one when they were saved.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            slot: The other's.

        Returns:
            What undoes that, or None if it was not done.
        """
        return None

    def undoing_slot(self, obj: Any, variable: Any, name: str) -> Callable[[], object]:
        """Called before `make_slot`; what it returns undoes that."""
        return lambda: self.drop_slot(obj, variable, name)

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        """Undoes `make_slot`, because the restore that asked for it failed."""

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        """Saved edges that are not to be followed, because their writer meant something else by the names below them.

        Args:
            obj: The object.
            saved: The names of the saved edges, by which one tells who wrote them.
        """
        return ()

    def settled(self, obj: Any) -> None:
        """Called after ``obj`` or something right below it got saved values; to compute what follows from them."""

    def watch(self, obj: Any) -> None:
        """Called when saved values begin to wait on ``obj``.

        Objects that announce new children by themselves (`milepost.deferred.pending.admit`) need nothing; for others
        this installs the framework's hook.
        """


saving_legacy_slots: Final[ContextVar[bool]] = ContextVar("saving_legacy_slots", default=False)
"""Set during a save for Keras' oldest optimizers, which know slot variables and hyperparameters only."""

_adapters: list[Adapter] = []
_by_type: dict[type, Adapter | None] = {}
_functional: Final = [False]
_MISSING: Final = object()


def register(adapter: Adapter, *, last: bool = False) -> None:
    """Adds an adapter. One added later is asked first, so that it may refine an earlier one.

    Args:
        adapter: The adapter.
        last: Whether it is asked after all others instead, as one of objects that nobody else knows.
    """
    _adapters.insert(len(_adapters) if last else 0, adapter)
    _forget_answers()
    _functional[0] |= adapter.functional


def is_anything_functional() -> bool:
    """Whether any adapter is one of values that never change."""
    return _functional[0]


def adapter_of_type(kind: type) -> Adapter | None:
    """The adapter for objects of exactly this type, or None if they are not trackable.

    Raises:
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    known = _by_type.get(kind, _MISSING)
    if known is not _MISSING:
        return known  # type: ignore[return-value]
    import_adapters()
    answers = _by_type
    found = next((adapter for adapter in _adapters if adapter.handles(kind)), None)
    answers[kind] = found
    return found


def adapter_of(obj: object) -> Adapter | None:
    """The adapter for an object, or None if it is not trackable."""
    adapter = adapter_of_type(type(obj))
    if adapter is not None and adapter.conditional and not adapter.tracks(obj):
        return None
    return adapter


def adapter_of_array_type(name: str) -> Adapter | None:
    """The adapter that makes arrays of the type that the object graph calls so; None while its framework is not imported."""
    if not name:
        return None
    import_adapters()
    return next((adapter for adapter in _adapters if adapter.array_type == name), None)


def _forget_answers() -> None:
    """Lets every type be asked about again; what a thread has found out meanwhile goes to the old answers."""
    global _by_type
    _by_type = {}


def _snapshot() -> Callable[[], None]:
    adapters, functional = list(_adapters), _functional[0]

    def put_back() -> None:
        _adapters[:] = adapters
        _functional[0] = functional
        _forget_answers()

    return put_back


register_registry(_snapshot)
