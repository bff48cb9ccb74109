"""Classes, functions and objects that a pickled stream names, and that only running code could make.

milepost neither looks them up nor makes them. An object is described by the name of its class and by the data in the stream: its
arguments, its state, and its members if it is a kind of list or dict. So its contents can be read although the object is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from milepost.coding.depth import DEEPEST
from milepost.errors import UnsupportedError

_PARAMETERS: Final = "_parameters"
_BUFFERS: Final = "_buffers"
_MODULES: Final = "_modules"
_NOT_SAVED: Final = "_non_persistent_buffers_set"

Spend = Callable[[str], object]
"""Called with each name before it is kept. It raises an error if there are too many names, or if they are too long."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a class or function, which is not looked up.

    Attributes:
        module: Its module.
        name: Its qualified name in the module.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Opaque:
    """An object that could be made only by running code.

    Attributes:
        name: Its class, or the function that makes it.
        arguments: The arguments of that call.
        state: The state that is set after the call; None if none is.
        items: Members that are appended or added to it.
        entries: Keys and values that are set in it.
        sealed: Whether its contents have no meaning by themselves, such as the storage of a quantised tensor.
    """

    __slots__ = ("arguments", "entries", "items", "name", "sealed", "state")

    def __init__(self, name: Name, arguments: tuple[Any, ...] = (), state: Any = None, *, sealed: bool = False) -> None:
        self.name = name
        self.arguments = arguments
        self.state = state
        self.items: list[Any] | None = None
        self.entries: list[tuple[Any, Any]] | None = None
        self.sealed = sealed

    def __str__(self) -> str:
        return f"{self.name!s:.200}"

    @property
    def is_reference(self) -> bool:
        """Whether this is a class or function itself, and not an object that it makes."""
        return self.state is None and self.arguments == () and not self.is_container

    @property
    def is_container(self) -> bool:
        """Whether this is a kind of list, set or dict."""
        return self.items is not None or self.entries is not None

    @property
    def is_module(self) -> bool:
        """Whether this is a `torch.nn.Module`, judged by its attributes."""
        return _is_module(self)

    def parts(self) -> Iterator[Any]:
        """Its contents, without names."""
        if not self.sealed:
            yield self.arguments
            yield self.state
            yield from self.items or ()
            for pair in self.entries or ():
                yield from pair

    def members(self, spend: Spend) -> Iterator[tuple[Any, Any]]:
        """Its contents, by name.

        A module of PyTorch holds the entries of its ``state_dict()``, under the same names. Any other object holds its attributes
        or entries by name, and its items and arguments by position.

        Args:
            spend: Called with each name, to limit how many there are and how long they are.
        """
        if self.sealed:
            return
        if self.is_module:
            yield from _module_members(self, spend)
            return
        states = self.state if _is_state_with_slots(self.state) else (self.state,)
        for state in states:
            if isinstance(state, Mapping):
                yield from state.items()
            elif state is not None:
                yield "state", state
        yield from self.entries or ()
        for values in (self.items or (), self.arguments):
            yield from ((str(position), value) for position, value in enumerate(values))


_ARRAY_OF: Final = "ndarray of "
OBJECT_ARRAY: Final = Name("numpy", f"{_ARRAY_OF}objects")
"""What an array of objects in a .npz file is called."""


def unread_array(element_type: object) -> Opaque:
    """An array of NumPy whose element type milepost does not read."""
    return Opaque(Name("numpy", f"{_ARRAY_OF}{element_type!s:.80}"), sealed=True)


def _is_unread_array(name: Name) -> bool:
    return name.module == "numpy" and name.name.startswith(_ARRAY_OF) and name != OBJECT_ARRAY


def needs_code(opaque: Opaque | Name) -> UnsupportedError:
    """The error for an object that only code named by the file could make, or for an array of an element type that is not read."""
    name = opaque.name if isinstance(opaque, Opaque) else opaque
    if _is_unread_array(name):
        return UnsupportedError(
            "milepost does not read this element type of NumPy",
            expected="numbers, truth values or text",
            found=name.name.removeprefix(_ARRAY_OF),
            remedy="load the file with numpy.load, and save a view of the array with a type of NumPy's own",
        )
    load = "numpy.load(path, allow_pickle=True)" if name == OBJECT_ARRAY else "torch.load(path, weights_only=False)"
    return UnsupportedError(
        "this object cannot be read without running code that the file names, which milepost never does",
        expected="tensors, numbers, text, and lists, tuples, dicts and sets of them",
        found=f"{opaque!s:.200}",
        remedy=(
            "restore the other contents of the file, under their names; if the object is needed and you trust the author of "
            f"the file: load it with {load} where nothing else can be harmed"
        ),
    )


def holding(root: Any, kinds: tuple[type, ...]) -> set[int]:
    """The identities of the containers and objects that hold an object of given classes, directly or at a lower level.

    Args:
        root: The container to search, which may be among the results.
        kinds: The classes.
    """
    holders: dict[int, list[int]] = {}
    identities: list[int] = []
    seen = {id(root)}
    pending = [root]
    while pending:
        value = pending.pop()
        identity = id(value)
        is_direct = False
        for child in _parts(value):
            if isinstance(child, kinds):
                is_direct = True
            elif isinstance(child, (Mapping, list, tuple, set, frozenset, Opaque)):
                above = holders.setdefault(id(child), [])
                if not above or above[-1] != identity:
                    above.append(identity)
                if id(child) not in seen:
                    seen.add(id(child))
                    pending.append(child)
        if is_direct:
            identities.append(identity)
    result = set(identities)
    for below in identities:
        above = [holder for holder in holders.get(below, ()) if holder not in result]
        result.update(above)
        identities += above
    return result


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Opaque):
        yield from value.parts()
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from pair
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value


def _is_state_with_slots(state: Any) -> bool:
    return (
        isinstance(state, tuple)
        and len(state) == 2
        and isinstance(state[1], Mapping)
        and (state[0] is None or isinstance(state[0], Mapping))
    )


def _is_module(value: Any) -> bool:
    if not isinstance(value, Opaque) or not isinstance(value.state, Mapping):
        return False
    return all(isinstance(value.state.get(name), Mapping) for name in (_PARAMETERS, _BUFFERS, _MODULES))


def _module_members(module: Opaque, spend: Spend) -> Iterator[tuple[str, Any]]:
    """The entries of a module's ``state_dict()``, in the same order."""
    pending: list[tuple[str, Opaque, int]] = [("", module, 0)]
    while pending:
        prefix, submodule, depth = pending.pop()
        state = submodule.state
        skipped = state.get(_NOT_SAVED)
        for kind, skips in ((_PARAMETERS, ()), (_BUFFERS, skipped if isinstance(skipped, (set, frozenset)) else ())):
            for name, value in state[kind].items():
                if value is not None and name not in skips:
                    spend(prefix)
                    yield f"{prefix}{name!s:.200}", value
        below: list[tuple[str, Opaque, int]] = []
        for name, value in state[_MODULES].items():
            if value is None:
                continue
            spend(prefix)
            if _is_module(value) and depth < DEEPEST:
                below.append((f"{prefix}{name!s:.200}.", value, depth + 1))
            else:
                yield f"{prefix}{name!s:.200}", value
        pending += reversed(below)
