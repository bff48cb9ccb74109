"""The values in an object that reading batches may change: its attributes, and those of objects in them.

Objects of the program's own classes are searched, as are PyTorch's data sets, samplers and loaders, and lists, tuples
and dicts. Objects of other libraries are not searched. Of the variables of the module or of an enclosing function that
functions and methods name, random generators are found. Plain data there is only noted, because the program may assign
it too.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.callbacks.data.fingerprints import SCALARS, is_plain
from milepost.graph.adapter import adapter_of

_LIBRARIES: Final = frozenset(sys.stdlib_module_names) | {
    *("numpy", "torch", "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "flax", "optax", "milepost", "grain"),
    *("pandas", "polars", "pyarrow", "datasets", "scipy", "sklearn", "PIL", "cv2", "h5py", "zarr", "lmdb", "xarray"),
    *("dask", "fsspec", "transformers", "tokenizers", "tiktoken", "sentencepiece", "torchvision", "torchaudio"),
}
_SEARCHED_MODULES: Final = ("torch.utils.data", "torchdata", "typing", "abc", "collections.abc", "_collections_abc")
_BASES: Final = frozenset({"torchvision", "torchaudio", "datasets"})
"""Libraries whose classes are searched where a program derives its own from them."""
_SEARCHED_NAMES: Final = frozenset({"PyDataset", "Sequence", "Generic", "Protocol", "ABC"})
STATE_METHODS: Final = (("get_state", "set_state"), ("state_dict", "load_state_dict"))
_LOADER: Final = ("dataset", "sampler", "batch_sampler", "generator", "collate_fn", "worker_init_fn")
_OF_TORCHDATA: Final = ("next_iter_state", "_initial_iter_for_state_dict", "_get_iterator")
"""Where torchdata's loader keeps its place, which is in its state."""
_CONTAINERS: Final = (list, tuple, dict, set, np.ndarray)
_MOST: Final = 10_000
"""Objects in one list or dict that are searched one by one."""

Put = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Held:
    """A value in an object.

    Attributes:
        path: Names from the searched object on, joined by dots.
        value: The value.
        kind: ``"plain"``, ``"state"`` for what an adapter gives a state to, ``"order"`` for a list of other objects,
            or ``"opaque"``.
        put: Replaces the value, or None if that is impossible.
    """

    path: str
    value: Any
    kind: str
    put: Put | None


class Reachable:
    """All that can be reached from an object.

    Args:
        data: The object.
        trusted: Whether to leave out objects that have methods for their state.

    Attributes:
        held: All values without parts to search, by path.
        owners: The objects, lists and dicts that were searched, by path.
        outer: Plain data in variables of the module or of an enclosing function that functions name, by path.
    """

    def __init__(self, data: Any, trusted: bool = False) -> None:
        self._trusted = trusted
        self.held: dict[str, Held] = {}
        self.owners: dict[str, Any] = {}
        self.outer: dict[str, Any] = {}
        self._seen: set[int] = set()
        self._search("", data, None)

    def putter(self, path: str) -> Put | None:
        """The function that puts a value at a path without one."""
        owner, _, name = path.rpartition(".")
        obj = self.owners.get(owner)
        if isinstance(obj, dict):
            return functools.partial(obj.__setitem__, name) if name not in obj else None
        return None if obj is None or isinstance(obj, (list, tuple)) else functools.partial(setattr, obj, name)

    def _search(self, path: str, value: Any, put: Put | None) -> None:
        if is_plain(value):
            self._add(path, value, "plain", put)
            return
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if self._trusted and path and has_state_methods(value) and not is_random(value):
            return
        if is_searched(type(value)):
            self._search_object(path, value)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            self._add(path, value, "opaque", put)
            self._search_callable(path, value)
        elif isinstance(value, (list, tuple, dict)) and type(value) in (list, tuple, dict):
            self._search_container(path, value, put)
        elif has_state(value) and not (hasattr(value, "__iter__") and has_state_methods(value)):
            self._add(path, value, "state", put)
        else:
            self._add(path, value, "opaque", put)

    def _search_object(self, path: str, value: Any) -> None:
        self.owners[path] = value
        is_loader = _is_loader(type(value))
        for name in _attributes(value):
            if is_loader and name not in _LOADER and name in _loader_names():
                continue
            self._search(_join(path, name), getattr(value, name, None), functools.partial(setattr, value, name))
        for kind in type(value).__mro__:
            if not _is_users(kind) or id(kind) in self._seen:
                continue
            self._seen.add(id(kind))
            class_path = _join(path, kind.__name__)
            self.owners[class_path] = kind
            for name, member in list(vars(kind).items()):
                function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                if isinstance(function, types.FunctionType):
                    self._search_callable(f"{class_path}.{name}", function)
                elif not name.startswith("__") and (is_plain(member) or has_state(member)):
                    self._search(f"{class_path}.{name}", member, functools.partial(setattr, kind, name))

    def _search_container(self, path: str, value: Any, put: Put | None) -> None:
        self.owners[path] = value
        if isinstance(value, list):
            self._add(path, value, "order", put)
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        for name, each in pairs[:_MOST]:
            setter = None if isinstance(value, tuple) else functools.partial(value.__setitem__, name)
            self._search(_join(path, str(name)), each, setter)

    def _search_callable(self, path: str, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self._search(_join(path, "__self__"), value.__self__, None)
            value = value.__func__
        if isinstance(value, functools.partial):
            self._search(_join(path, "args"), value.args, None)
            self._search(_join(path, "keywords"), value.keywords, None)
            value = value.func
        if not isinstance(value, types.FunctionType) or _top(value.__module__) in _LIBRARIES:
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # it is not assigned yet
                continue
            self._search_variable(_join(path, name), content, functools.partial(setattr, cell, "cell_contents"))
        variables = value.__globals__
        for name in _names(value.__code__) & variables.keys():
            put = functools.partial(variables.__setitem__, name)
            self._search_variable(_join(path, name), variables[name], put)

    def _search_variable(self, path: str, value: Any, put: Put) -> None:
        if isinstance(value, types.FunctionType):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._search_callable(path, value)
        elif is_random(value):
            self._search(path, value, put)
        elif type(value) in SCALARS or isinstance(value, _CONTAINERS):
            self.outer[path] = value

    def _add(self, path: str, value: Any, kind: str, put: Put | None) -> None:
        self.held[path] = Held(path, value, kind, put)


def is_searched(kind: type) -> bool:
    """Whether the attributes of objects of this class are searched."""
    if kind is object or issubclass(kind, (type, BaseException, types.ModuleType)):
        return False
    is_own = _is_users(kind)
    return all(_is_searched_base(base) or (is_own and _top(base.__module__) in _BASES) for base in kind.__mro__[:-1])


def has_state_methods(value: Any) -> bool:
    """Whether an object has a pair of methods that get and set its state."""
    return any(all(callable(getattr(value, name, None)) for name in names) for names in STATE_METHODS)


def has_state(value: Any) -> bool:
    """Whether an adapter gives the complete state of this object."""
    adapter = adapter_of(value)
    if adapter is None or isinstance(value, (list, tuple, dict, set, type, types.FunctionType)):
        return False
    try:
        return not list(adapter.children(value)) and (adapter.open_ended or bool(list(adapter.values(value))))
    except Exception:  # an object that is not made yet may raise anything when it is asked for its values
        return False


def is_random(value: Any) -> bool:
    """Whether an object is a random generator of Python, NumPy or PyTorch."""
    return any((_top(base.__module__), base.__name__) in _RANDOM for base in type(value).__mro__)


_RANDOM: Final = frozenset(
    {
        *(("numpy", name) for name in ("Generator", "BitGenerator", "RandomState")),
        *(("random", "Random"), ("torch", "Generator"), ("_random", "Random"), ("tensorflow", "Generator")),
    }
)


def _is_searched_base(base: type) -> bool:
    return _is_users(base) or base.__module__.startswith(_SEARCHED_MODULES) or base.__name__ in _SEARCHED_NAMES


def _is_users(kind: type) -> bool:
    return _top(kind.__module__) not in _LIBRARIES and not kind.__module__.startswith("torchdata")


def _is_loader(kind: type) -> bool:
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in kind.__mro__)


@functools.cache
def _loader_names() -> frozenset[str]:
    """The attributes of a plain loader, which are settings."""
    torch = sys.modules["torch"]
    return frozenset({*vars(torch.utils.data.DataLoader([0])), *_OF_TORCHDATA})


def _attributes(value: Any) -> list[str]:
    names = list(getattr(value, "__dict__", ()))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [name for name in ((slots,) if isinstance(slots, str) else slots) if hasattr(value, name)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _names(code: types.CodeType) -> set[str]:
    """The names in a function and in functions within it, those of attributes included."""
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
