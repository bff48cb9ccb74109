"""Adapters for milepost's own objects and for Python's containers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, adapter_of, adapter_of_type, register
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper, agree, put_all
from milepost.graph.module import UNTRACKED, Tracked
from milepost.graph.omissions import Omission, Unnamed
from milepost.graph.plain.places import holds_state
from milepost.graph.plain.values import PLAIN
from milepost.graph.state import PythonState, TensorState
from milepost.graph.trees.structure import is_tuple, make_tuple, positions_beside_fields
from milepost.graph.variable import VariableAdapter, as_array
from milepost.tensor import DType, TensorSpec
from milepost.tensor.dtype import STRING


class SlotAdapter(Adapter):
    """Any object that has ``get_slot_names()`` and ``get_slot(variable, name)``."""

    def has_slots(self, obj: Any) -> bool:
        # looked up in the class, because a __getattr__ may return something for every name
        return hasattr(type(obj), "get_slot_names") and hasattr(type(obj), "get_slot")

    def slot_names(self, obj: Any) -> Sequence[str]:
        names: Sequence[str] = obj.get_slot_names()
        return names

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        try:
            return obj.get_slot(variable, name)
        except (KeyError, AttributeError):
            return None

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        return obj.add_slot(variable, name) if hasattr(type(obj), "add_slot") else None

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        if hasattr(type(obj), "drop_slot"):
            obj.drop_slot(variable, name)


_NOTHING: Final[frozenset[str]] = frozenset()


class AttributeAdapter(Adapter):
    """Objects that keep their children as attributes."""

    searched = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Tracked)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        attributes = vars(obj)
        untracked = attributes.get(UNTRACKED, _NOTHING) | getattr(type(obj), "_internal", _NOTHING)
        pairs: Iterable[tuple[str, Any]] = attributes.items()
        if slots := getattr(type(obj), "_names_in_slots", ()):
            pairs = [*pairs, *((name, getattr(obj, name)) for name in slots if hasattr(obj, name))]
        return [pair for pair in pairs if pair[0] not in untracked] if untracked else list(pairs)

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        for name, child in changes.items():
            object.__setattr__(obj, name, child)
        return obj


class MethodsAdapter(SlotAdapter, AttributeAdapter):
    """Objects that keep their children as attributes, and have methods by which optimizers or modules of PyTorch tell their state."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Tracked) and (hasattr(kind, "get_slot_names") or _tells_state(kind))

    def unfinished(self, obj: Any) -> Omission | None:
        kind = type(obj)
        if not (self.searched and _tells_state(kind) and hasattr(kind, "load_state_dict")):
            return None
        reason = f"an object of type {kind.__name__} is a Module, which is saved by its attributes, so its state_dict() is not called"
        remedy = "hold the state in arrays or Variables in attributes, or do not derive the class from Module"
        return Omission(reason, remedy, doubtful=True)


def _tells_state(kind: type) -> bool:
    """Whether a class has a ``state_dict()`` of the program's own. That of a `Checkpoint` saves its attributes."""
    method = getattr(kind, "state_dict", None)
    return method is not None and getattr(method, "__qualname__", "") != "Checkpoint.state_dict"


class StateAdapter(MethodsAdapter):
    """`PythonState`: one scalar string, and attributes if the object is a `Module` too."""

    searched = False

    def handles(self, kind: type) -> bool:
        return issubclass(kind, PythonState)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return super().children(obj) if isinstance(obj, Tracked) else ()

    def values(self, obj: PythonState) -> Sequence[Value]:
        return (Value("py_state", STRING, (), lambda: _serialized(obj)),)

    def assign(self, obj: PythonState, arrays: Mapping[str, Array]) -> PythonState:
        data = arrays["py_state"].item()
        try:
            obj.deserialize(data.decode())
        except UnicodeDecodeError:
            obj.deserialize(data)
        return obj


def _serialized(obj: PythonState) -> Array:
    data = obj.serialize()
    if not isinstance(data, (str, bytes)):
        raise UntrackableError(
            "serialize() of a PythonState must return text or bytes",
            found=f"{data!r:.80} of type {type(data).__name__}, from {type(obj).__name__}.serialize()",
            remedy="return text, such as that of json.dumps()",
        )
    return as_array(data)


class TensorStateAdapter(StateAdapter):
    """`TensorState`: named tensors of any shape."""

    open_ended = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, TensorState)

    def values(self, obj: Any) -> Sequence[Value]:
        arrays = {name: as_array(tensor) for name, tensor in obj.serialize().items()}
        return [Value(name, DType.of(array), (None,) * array.ndim, array) for name, array in arrays.items()]

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        obj.deserialize(arrays)
        return obj


class ListAdapter(Adapter):
    """Lists: edges ``0``, ``1``, ..."""

    searched = True

    def handles(self, kind: type) -> bool:
        return kind in (list, ListWrapper)

    def children(self, obj: list[Any]) -> Iterable[tuple[str, Any]]:
        if getattr(obj, "_original", None) is not None:
            agree(obj)
        members = list.copy(obj)  # another thread may change the list meanwhile
        pairs: Iterable[tuple[str, Any]] = zip(map(str, range(len(members))), members, strict=True)
        untracked = getattr(obj, "_untracked", None)
        if not untracked:
            return pairs
        return [pair for pair in pairs if type(pair[1]) in PLAIN or not _among(pair[1], untracked)]

    def replace(self, obj: list[Any], changes: Mapping[str, Any]) -> list[Any]:
        by_position = {int(name): child for name, child in changes.items()}
        if isinstance(obj, ListWrapper):
            put_all(obj, by_position)
        else:
            for position, child in by_position.items():
                obj[position] = child
        return obj


class DictAdapter(Adapter):
    """Dicts: edges are the keys that are strings. A save refuses other members that are trackable or state."""

    searched = True

    def handles(self, kind: type) -> bool:
        return kind in (dict, OrderedDict, DictWrapper, OrderedDictWrapper)

    def children(self, obj: dict[Any, Any]) -> Iterable[tuple[str, Any]]:
        untracked = getattr(obj, "_untracked", ())
        keys = getattr(obj, "_untracked_keys", ())
        pairs: list[tuple[str, Any]] = []
        if getattr(obj, "_original", None) is not None:
            agree(obj)
        base = OrderedDict if isinstance(obj, OrderedDict) else dict  # whose methods are no calls of Python
        for key, child in list(base.items(obj)):
            if untracked and (key in keys if type(child) in PLAIN else _among(child, untracked)):
                continue
            if isinstance(key, str):
                pairs.append((key, child))
            elif holds_state(obj) or adapter_of(child) is not None:
                pairs.append((str(key), unnamed(obj, key, child)))
        return pairs

    def replace(self, obj: dict[Any, Any], changes: Mapping[str, Any]) -> dict[Any, Any]:
        if isinstance(obj, (DictWrapper, OrderedDictWrapper)):
            put_all(obj, changes)
        else:
            obj.update(changes)
        return obj


def unnamed(holder: Mapping[Any, Any], key: Any, child: Any) -> Unnamed:
    """The member of a dict that is not saved because its key is not a string."""
    remedy = "use str(key), or wrap the value in NoDependency"
    if str(key) in holder:
        remedy = "use other keys, or hold the values under other names: str(key) is a key of this dict too"
    elif isinstance(child, dict):  # as the state of an optimizer of PyTorch
        remedy += "; if state_dict() of an object returned this, pass the object itself"
    return Unnamed(child, remedy)


class TupleAdapter(Adapter):
    """Tuples and named tuples that hold a trackable object. Each field of a named tuple has two edges."""

    searched = True

    def handles(self, kind: type) -> bool:
        return is_tuple(kind)

    def tracks(self, obj: tuple[Any, ...]) -> bool:
        seen = {id(obj)}
        tuples = [obj]  # any number of levels, since there is no recursion
        for holder in tuples:
            for member in holder:
                if adapter_of_type(type(member)) is not self:
                    if adapter_of(member) is not None:
                        return True
                elif id(member) not in seen:
                    seen.add(id(member))
                    tuples.append(member)
        return False

    def children(self, obj: tuple[Any, ...]) -> Iterable[tuple[str, Any]]:
        fields: Sequence[str] = getattr(obj, "_fields", ())
        return [*zip(fields, obj, strict=False), *((str(index), member) for index, member in enumerate(obj))]

    def unwanted(self, obj: tuple[Any, ...], saved: Collection[str]) -> Collection[str]:
        return positions_beside_fields(obj, saved)

    def replace(self, obj: tuple[Any, ...], changes: Mapping[str, Any]) -> tuple[Any, ...]:
        fields: Sequence[str] = getattr(obj, "_fields", ())
        members = list(obj)
        for name, child in changes.items():
            members[fields.index(name) if name in fields else int(name)] = child
        return make_tuple(type(obj), members)


def _among(value: Any, others: Iterable[Any]) -> bool:
    return any(value is other for other in others)


for _adapter in (
    VariableAdapter(),
    ListAdapter(),
    DictAdapter(),
    TupleAdapter(),
    AttributeAdapter(),
    MethodsAdapter(),
    StateAdapter(),
    TensorStateAdapter(),
):
    register(_adapter)
