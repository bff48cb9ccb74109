"""The structure of trees of values that never change: their containers and members.

A value never changes if its adapter has `Adapter.functional`. A built-in container that holds such a value at any depth is part
of a tree. So is an object whose own adapter has `Adapter.functional`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from milepost.errors import UntrackableError
from milepost.graph.adapter import adapter_of_type, is_anything_functional
from milepost.graph.frameworks import import_adapters
from milepost.graph.remedies import returned

_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
_LIBRARIES: Final = frozenset({"chex", "equinox", "flax", "haiku", "jax", "jaxlib", "optax"})
"""Packages in which functions may be objects with settings, such as ``equinox.if_array``."""
_STRUCTURE: Final = "PyTreeDef"
"""The name of JAX's class for the structure of a tree without its leaves. Optimizers of JAX keep it next to the
leaves."""
_MAPPINGS: Final = frozenset({dict, OrderedDict, defaultdict})
CONTAINERS: Final = _MAPPINGS | {list}
"""The types of built-in containers in trees, in addition to tuples and named tuples."""


def holds_no_data(leaf: Any) -> bool:
    """Whether a leaf of a tree is a function, such as an activation, or an object without attributes."""
    if isinstance(leaf, (*_FUNCTIONS, type, partial, np.ufunc, np.dtype)):
        return True
    kind = type(leaf)
    of_library = kind.__module__.partition(".")[0] in _LIBRARIES
    if of_library and (callable(leaf) or isinstance(leaf, Enum) or kind.__name__ == _STRUCTURE):
        return True
    return kind.__bases__ == (object,) and getattr(leaf, "__dict__", None) == {} and not hasattr(kind, "__slots__")


def is_tuple(kind: type) -> bool:
    """Whether this is ``tuple`` or the type of a named tuple."""
    return kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make"))


NAMED_TUPLE: Final = "namedtuple:"


def named_tuple_name(kind: type) -> str:
    """The name of a type of named tuples in the object graph."""
    return f"{NAMED_TUPLE}{kind.__module__}:{kind.__qualname__}"


def named_tuple_called(name: str, fields: Collection[str]) -> type[tuple[Any, ...]] | None:
    """The type of named tuples with this name and these fields. None if the program has no such type. Nothing is imported.

    Example:
        >>> from inspect import FullArgSpec
        >>> named_tuple_called(named_tuple_name(FullArgSpec), FullArgSpec._fields) is FullArgSpec
        True
    """
    if not name.startswith(NAMED_TUPLE):
        return None
    module, _, path = name.removeprefix(NAMED_TUPLE).partition(":")
    candidate: Any = sys.modules.get(module)
    for part in path.split("."):
        members = getattr(candidate, "__dict__", {}) if isinstance(candidate, (type, ModuleType)) else {}
        candidate = members.get(part)
    is_it = isinstance(candidate, type) and candidate is not tuple and is_tuple(candidate)
    return candidate if is_it and set(candidate._fields) == set(fields) else None


def make_tuple(kind: type[tuple[Any, ...]], members: Iterable[Any]) -> tuple[Any, ...]:
    """Makes a tuple or named tuple of this type without calling a constructor of the class."""
    return tuple.__new__(kind, members)


def is_container(kind: type) -> bool:
    """Whether objects of exactly this type are containers of a tree."""
    return kind in CONTAINERS or (issubclass(kind, tuple) and is_tuple(kind))


def is_functional(value: Any) -> bool:
    """Whether a value never changes, or is a built-in container that holds such a value at any depth."""
    if not is_container(type(value)):
        return _is_functional_object(value)
    import_adapters()  # looking up a known type would not import them
    if not is_anything_functional():
        return False
    seen = {id(value)}
    containers = [value]
    for container in containers:
        for member in container.values() if isinstance(container, dict) else container:
            if is_container(type(member)):
                if id(member) not in seen:
                    seen.add(id(member))
                    containers.append(member)
            elif _is_functional_object(member):
                return True
    return False


def _is_functional_object(value: Any) -> bool:
    adapter = adapter_of_type(type(value))
    return adapter is not None and adapter.functional and ("tracks" not in adapter.overrides or adapter.tracks(value))


def is_empty_tree(value: Any) -> bool:
    """Whether this is a tree without values, such as the state of an optimizer without state, or the settings of a module.

    A defaultdict does not count, because it is empty until it is asked for a value.
    """
    import_adapters()
    if not is_anything_functional():
        return False
    if is_container(type(value)):
        return type(value) is not defaultdict and not _leaves(value)
    adapter = adapter_of_type(type(value))
    if adapter is None or not (adapter.functional and "tracks" in adapter.overrides):
        return False
    return not adapter.tracks(value) and adapter.omission(value) is None


def _leaves(value: Any) -> list[Any]:
    containers, leaves = [value], []
    for container in containers:
        for member in container.values() if isinstance(container, dict) else container:
            if is_container(type(member)) and type(member) is not defaultdict:
                containers.append(member)
            elif member is not None:
                leaves.append(member)
    return leaves


def has_no_end() -> UntrackableError:
    """The error for a tree in which a container holds itself."""
    return UntrackableError(
        "a tree has no end: a container in it holds itself",
        expected="containers that hold other containers",
        remedy="take it out of itself",
    )


Member = tuple[Sequence[str], Any, Any]
"""One child of a container: the names of its edges, its key or position in the container, and the child."""


def members(value: Any) -> Iterable[Member]:
    """The children of a container, in its own order.

    Raises:
        UntrackableError: Two keys of a dict have the same name.
    """
    kind = type(value)
    if kind in _MAPPINGS:
        if {str}.issuperset(map(type, value)):  # as nearly always
            return zip(zip(value, strict=True), value, value.values(), strict=True)
        _check_names(value)
        return [((name_of_key(key),), key, child) for key, child in value.items()]
    if kind is list or kind is tuple:
        positions = range(len(value))
        return zip(zip(map(str, positions), strict=True), positions, value, strict=True)
    if is_tuple(kind):
        return [
            ((name, str(index)), index, child)
            for index, (name, child) in enumerate(zip(kind._fields, value, strict=False))
        ]
    adapter = adapter_of_type(kind)
    assert adapter is not None, "other containers are those of an adapter"
    return [((name,), name, child) for name, child in adapter.children(value)]


def positions_beside_fields(value: Any, saved: Collection[str]) -> Collection[str]:
    """Saved positions by which a named tuple must not be matched, because the names of its fields were saved too.

    The saved named tuple may have other fields, as that of another optimizer, so that position 0 has another meaning.
    """
    if not hasattr(value, "_fields") or all(name.isdecimal() for name in saved):
        return ()
    return [name for name in saved if name.isdecimal()]


def _check_names(mapping: Mapping[Any, Any]) -> None:
    keys: dict[str, Any] = {}
    for key in mapping:
        name = name_of_key(key)
        if name in keys:
            raise UntrackableError(
                "two keys of a dict would have the same name in a checkpoint",
                expected="keys that differ as text",
                found=f"{keys[name]!r} and {key!r}",
                remedy="give one of them another key",
            )
        keys[name] = key


def name_of_key(key: Any) -> str:
    """The name in a checkpoint of a member with this key in its container."""
    return "/".join(map(str, key)) if type(key) is tuple else str(key)


def with_members(value: Any, changes: Mapping[Any, Any]) -> Any:
    """A copy of a container with some other members.

    Args:
        value: The container.
        changes: New members, by their keys or positions in the container.
    """
    kind = type(value)
    if kind in _MAPPINGS:
        new = value.copy()  # the copy of a defaultdict has the same factory
        new.update(changes)
        return new
    if kind is list or is_tuple(kind):
        changed = list(value)
        for index, child in changes.items():
            changed[index] = child
        return changed if kind is list else make_tuple(kind, changed)
    adapter = adapter_of_type(kind)
    assert adapter is not None, "other containers are those of an adapter"
    return returned(adapter, "replace", adapter.replace(value, changes))
