"""Records the values that a program holds: those of the variables in its frames, and of everything that these lead to.

Values are only read, from attributes and containers. No method of an object is called that might change it, and no property. Of objects that
milepost saves, their adapters say how values are read.
"""

from __future__ import annotations

import functools
import gc
import inspect
import operator
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.adapters.random_state import RandomState, RandomStateAdapter
from milepost.graph.adapter import Adapter, adapter_of, values_of
from milepost.graph.keys import VARIABLE_VALUE
from milepost.plain_state.encoding import pack
from milepost.tools.resumes.facts import PLAIN, SCALARS, Kind, Recorded, digest_of, of_array, of_plain
from milepost.tools.resumes.program import is_of_program, of_module, where

Facts = dict[str, Recorded]
"""What is recorded of each value, by its name."""
GLOBAL: Final = "the global random state"
_MOST_OBJECTS: Final = 20_000
_MOST_MEMBERS: Final = 200
"""Members of one container that are looked at."""
_OF_MILEPOST: Final = ("Checkpoint", "Module", "Variable", "RandomState")
"""The classes of milepost whose objects hold values of programs."""
_BUILT_IN: Final = ("builtins", "itertools")


class _Holder(NamedTuple):
    """The object under which the values below it are reported."""

    name: str = ""
    kind: str = ""
    is_container: bool = True
    is_saved: bool = False


_NOBODY: Final = _Holder()


def evidence_of(
    frames: Iterable[types.FrameType], objects: Iterable[Any], saved: Set[int]
) -> tuple[Facts, dict[int, str]]:
    """What a program holds.

    Args:
        frames: Its frames, the innermost first.
        objects: Objects of its classes, as `objects_of_program` returns them.
        saved: The identities of the objects that are in the checkpoint.

    Returns:
        What was recorded, and the names of all objects that were met, by identity.
    """
    search = _Search(saved)
    for frame in frames:
        if frame.f_locals is not frame.f_globals:
            search.add_variables(frame.f_locals, where(frame))
        search.add_globals(frame.f_globals)
    search.add_objects(objects)
    search.run()
    return {**global_random_state(), **search.facts}, search.names


def objects_of_program() -> list[Any]:
    """All objects whose classes belong to the program. A library may be the only one that holds them, such as a model in a trainer."""
    classes: dict[type, bool] = {}
    objects = []
    for value in gc.get_objects():
        kind = type(value)
        if kind not in classes:
            classes[kind] = is_of_program(kind.__module__) and not issubclass(kind, BaseException)
        if classes[kind]:
            objects.append(value)
    return objects


def global_random_state() -> Facts:
    """The state of the global random generators of all imported libraries, each named after `GLOBAL`."""
    facts = {}
    for library, state in RandomStateAdapter().state(RandomState()).items():
        for name, part in state.items() if library == "torch" else [("", state)]:
            arrays = pack(part)
            digest = digest_of(
                part for key in sorted(arrays) for part in (key.encode(), of_array(arrays[key])[0].encode())
            )
            title = f"{GLOBAL} of {library}{f' ({name})' if name else ''}"
            facts[title] = Recorded("random", digest, "", title, "")
    return facts


def read_values(adapter: Adapter, obj: Any) -> list[tuple[str, Any]]:
    """The values of an object that milepost saves, by their local names."""
    values = adapter.values_to_save(obj) if adapter.each_process == "random" else values_of(adapter, obj)
    return [(value.name, np.asarray(value.read())) for value in values]


def digest_of_values(adapter: Adapter, obj: Any) -> str:
    """A digest of all values of an object."""
    return digest_of(part.encode() for name, array in read_values(adapter, obj) for part in (name, of_array(array)[0]))


class _Search:
    """A search, breadth first, so that each object gets its shortest name."""

    def __init__(self, saved: Set[int]) -> None:
        self.facts: Facts = {}
        self.names: dict[int, str] = {}
        self._saved = saved
        self._counts: Counter[type] = Counter()
        self._kept: list[Any] = []  # so that no identity is used twice
        self._modules: set[int] = set()
        self._waiting: deque[tuple[str, str, Any, _Holder]] = deque()

    def add_variables(self, variables: Mapping[str, Any], suffix: str) -> None:
        """Adds the variables of a frame."""
        for name, value in list(variables.items()):
            if not name.startswith("__"):
                self._waiting.append((name, suffix, value, _NOBODY))

    def add_globals(self, variables: dict[str, Any]) -> None:
        """Adds the variables of a module, once."""
        if id(variables) not in self._modules:
            self._modules.add(id(variables))
            self.add_variables(variables, of_module(variables))

    def add_objects(self, objects: Iterable[Any]) -> None:
        """Adds objects of the program, to which perhaps no variable leads."""
        self._waiting.extend(("", "", value, _NOBODY) for value in objects)

    def run(self) -> None:
        """Visits everything."""
        while self._waiting and len(self.names) < _MOST_OBJECTS:
            name, suffix, value, holder = self._waiting.popleft()
            with suppress(Exception):  # an object that is not made yet may raise anything when it is read
                self._visit(name, suffix, value, holder)

    def _visit(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        if isinstance(value, SCALARS):
            self._note(name, suffix, "value", of_plain(value), holder)
            return
        if id(value) in self.names or type(value) in weakref.ProxyTypes:
            return
        self.names[id(value)] = name + suffix
        self._kept.append(value)
        if isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
            self._visit_code(name, suffix, value)
        elif isinstance(value, (types.MethodType, functools.partial)):
            self._visit_callable(name, suffix, value, holder)
        elif isinstance(value, np.random.RandomState):
            self._note(
                name,
                suffix,
                "random",
                of_plain(str(value.get_state(legacy=False))),
                self._holder(name, suffix, value, holder),
            )
        elif isinstance(value, PLAIN):
            self._visit_container(name, suffix, value, holder)
        elif isinstance(value, types.GeneratorType):
            self._visit_generator(name, suffix, value, holder)
        elif type(value).__module__ in _BUILT_IN:
            self._visit_iterator(name, suffix, value, holder)
        else:
            self._visit_object(name, suffix, value, holder)

    def _visit_code(self, name: str, suffix: str, value: Any) -> None:
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if not is_of_program(module):
            return
        if isinstance(value, types.FunctionType):
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            for variable, cell in cells:
                with suppress(ValueError):  # it is not assigned yet
                    self._waiting.append((variable, f" in {value.__qualname__}()", cell.cell_contents, _NOBODY))
            self._kept.append(value)
            self.add_globals(value.__globals__)
        elif isinstance(value, types.ModuleType):
            self.add_globals(vars(value))
        else:
            members = {
                key: each
                for key, each in vars(value).items()
                if not callable(each) and not inspect.isdatadescriptor(each)
            }
            for key, each in members.items():
                if not key.startswith("__"):
                    self._waiting.append((f"{name}.{key}", suffix, each, _NOBODY))

    def _visit_callable(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        if isinstance(value, types.MethodType):
            self._waiting.append((f"{name}.__self__", suffix, value.__self__, holder))
            return
        for part in ("func", "args", "keywords"):
            self._waiting.append((f"{name}.{part}", suffix, getattr(value, part), holder))

    def _visit_container(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        plain = of_plain(value)
        own = self._holder(name, suffix, value, holder)
        if plain is not None:
            self._note(name, suffix, "value", plain, holder)
            return
        size = of_plain(len(value))
        assert size is not None, "a length is a number"
        self._note(f"len({name})", suffix, "value", (size[0], f"{size[1]} members"), own)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (key, member) in zip(range(_MOST_MEMBERS), list(pairs), strict=False):
            shown = repr(key) if isinstance(key, (str, int, float, bool)) else str(number)
            self._waiting.append((f"{name}[{shown}]", suffix, member, own))

    def _visit_generator(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        own = self._holder(name, suffix, value, holder)
        frame = value.gi_frame
        text = (
            "ended"
            if frame is None
            else f"at line {frame.f_lineno}"
            if frame.f_lasti > 0 and inspect.getgeneratorstate(value) != inspect.GEN_CREATED
            else "not begun"
        )
        self._note(name, suffix, "iterator", of_plain(text), own, text)
        for key, each in (frame.f_locals if frame is not None else {}).items():
            self._waiting.append((f"{name}.{key}", suffix, each, own))
        for each in [value.gi_yieldfrom, *gc.get_referents(value)]:
            if hasattr(type(each), "__next__"):
                self._waiting.append((f"{name}.(iterator)", suffix, each, own))

    def _visit_iterator(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        if not hasattr(type(value), "__next__"):
            return
        own = self._holder(name, suffix, value, holder)
        if hasattr(value, "__length_hint__"):
            left = operator.length_hint(value)
            self._note(name, suffix, "iterator", of_plain(left), own, f"{left} members left")
            return
        for each in gc.get_referents(value):
            if hasattr(type(each), "__next__"):
                self._waiting.append((f"{name}.(iterator)", suffix, each, own))

    def _visit_object(self, name: str, suffix: str, value: Any, holder: _Holder) -> None:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "milepost" and kind.__name__ not in _OF_MILEPOST:
            return
        if is_of_program(kind.__module__):  # which functions hold it under other names
            self._counts[kind] += 1
            name, suffix = f"{kind.__name__}{f' {self._counts[kind]}' if self._counts[kind] > 1 else ''}", ""
            self.names[id(value)] = name
        own = self._holder(name, suffix, value, holder)
        adapter = adapter_of(value)
        if adapter is not None and adapter.each_process == "random" and kind is not RandomState:
            own = own._replace(is_saved=id(value) in self._saved)
            self._note(name, suffix, "random", (digest_of_values(adapter, value), ""), own)
            return
        if adapter is not None and not adapter.open_ended:
            if adapter.leaf and holder.name:  # an array in a list or dict is reported with the others in it
                own = holder._replace(is_saved=holder.is_saved or id(value) in self._saved)
            with suppress(Exception):  # an object of the program may raise anything when it is looked at
                for local, array in read_values(adapter, value):
                    title = name if local == VARIABLE_VALUE else f"{name}.{local}"
                    self._note(title, suffix, "object", of_array(array), own)
            if adapter.leaf:
                return
        children: Callable[[Any], Iterable[tuple[str, Any]]] | None = None
        if adapter is not None and "children" in adapter.overrides:
            children = adapter.children
        for key, each in [*_safely(children, value), *_attributes(value)]:
            if not key.startswith("__"):
                self._waiting.append((f"{name}.{key}", suffix, each, own))

    def _holder(self, name: str, suffix: str, value: Any, holder: _Holder) -> _Holder:
        """Under which object the values below this one are reported.

        That is the outermost object of a library. The values of an object of the program are reported by themselves.
        """
        is_saved = id(value) in self._saved
        if not holder.is_container:
            return holder._replace(is_saved=holder.is_saved or is_saved)
        if isinstance(value, PLAIN):
            return holder if holder.name else _Holder(name + suffix, type(value).__name__, is_saved=is_saved)
        if is_of_program(type(value).__module__):
            return _NOBODY
        return _Holder(name + suffix, type(value).__name__, False, is_saved)

    def _note(
        self,
        name: str,
        suffix: str,
        kind: Kind,
        found: tuple[str, str] | None,
        holder: _Holder,
        text: str | None = None,
    ) -> None:
        if found is None:
            return
        title = name + suffix
        group, group_kind = (holder.name, holder.kind) if holder.name else (title, "")
        self.facts.setdefault(
            title, Recorded(kind, found[0], found[1] if text is None else text, group, group_kind, holder.is_saved)
        )


def _safely(children: Callable[[Any], Iterable[tuple[str, Any]]] | None, value: Any) -> Iterator[tuple[str, Any]]:
    """The children of an object; none if it cannot say them now."""
    if children is not None:
        with suppress(Exception):  # an object of the program may raise anything when it is looked at
            yield from list(children(value))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, without those that are computed."""
    with suppress(Exception):  # an object of the program may raise anything when it is looked at
        yield from list(vars(value).items())
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with suppress(Exception):  # an object of the program may raise anything when it is looked at
                yield name, object.__getattribute__(value, name)
