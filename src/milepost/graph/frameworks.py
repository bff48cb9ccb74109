"""Imports the adapters of the frameworks that the user has imported: each as a whole, or not at all.

An adapter uses private names of its framework, and another version of the framework may lack one. Then nothing of the
adapter stays behind, and every attempt ends with the same `milepost.AdapterError`, so that nothing is ever saved without
the objects of that framework.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final, NamedTuple, TypeVar

from milepost.errors import AdapterError

_T = TypeVar("_T")
Snapshot = Callable[[], Callable[[], None]]
"""Takes a copy of a registry; what it returns puts that copy back."""

_UNDONE: Final = ("milepost.adapters.", "milepost.callbacks.")
"""Where modules that use private names of frameworks are."""


class _Awaited(NamedTuple):
    """An adapter that is not imported yet."""

    module: str
    tried: str


_awaited: dict[str, _Awaited] = {}
_tried: dict[str, str] = {}
_registries: Final[list[Snapshot]] = []
_lock: Final = threading.RLock()  # the thread that imports an adapter may ask for adapters meanwhile
_importing: Final[set[str]] = set()


def register_framework(framework: str, module: str, tried: str = "") -> None:
    """Names the module that registers a framework's adapter; it is imported once the user has imported the framework.

    Args:
        framework: Name of the framework's package.
        module: Full name of the module that calls `milepost.graph.adapter.register` when imported.
        tried: The versions of the framework that the adapter was tried with.
    """
    _awaited[framework] = _Awaited(module, tried)
    _tried[framework.partition(".")[0]] = tried


def register_registry(snapshot: Snapshot) -> None:
    """Names something that modules of adapters add to when they are imported, and which a failed import must not change."""
    _registries.append(snapshot)


def registry(kinds: dict[str, _T]) -> dict[str, _T]:
    """The same dict, which a failed import leaves as it was."""

    def snapshot() -> Callable[[], None]:
        before = dict(kinds)

        def put_back() -> None:
            kinds.clear()
            kinds.update(before)

        return put_back

    register_registry(snapshot)
    return kinds


def imported(framework: str) -> ModuleType | None:
    """The framework's module, if the user has imported it by now.

    A module that another thread is still importing does not count, nor does an empty one: the mark of a blocked import
    (``sys.modules[name] = None``), a stub without a file, a folder of the same name.
    """
    module = sys.modules.get(framework)
    if module is None or not isinstance(getattr(module, "__file__", None), str):
        return None
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return module


def import_adapters() -> None:
    """Imports the adapters of all frameworks that the user has imported by now.

    Raises:
        AdapterError: One cannot be imported. The next call raises it again.
    """
    if not any(name in sys.modules for name in _awaited):
        return
    with _lock:  # another thread may be importing them, and must not be overtaken
        for framework, awaited in list(_awaited.items()):
            if framework not in _importing and imported(framework) is not None:
                _importing.add(framework)
                try:
                    with whole_import(framework):
                        importlib.import_module(awaited.module)
                finally:
                    _importing.discard(framework)
                _awaited.pop(framework, None)


@contextmanager
def whole_import(framework: str) -> Iterator[None]:
    """Undoes what the imports in its block did to milepost's modules and registries, if one of them fails.

    Args:
        framework: The framework of which private names are used.

    Raises:
        AdapterError: In place of any exception of the imports.
    """
    with _lock:
        modules = set(sys.modules)
        put_back = [snapshot() for snapshot in _registries]
        try:
            yield
        except BaseException as error:
            _forget_modules([name for name in sys.modules if name.startswith(_UNDONE) and name not in modules])
            for restore in put_back:
                restore()
            if isinstance(error, AdapterError) or not isinstance(error, Exception):
                raise
            raise _adapter_error(framework, error) from error


def _forget_modules(names: list[str]) -> None:
    for name in names:
        module = sys.modules.pop(name)
        package, _, own_name = name.rpartition(".")
        holder = vars(sys.modules[package]) if package in sys.modules else {}
        if holder.get(own_name) is module:
            del holder[own_name]


def _adapter_error(framework: str, cause: Exception) -> AdapterError:
    package = framework.partition(".")[0]
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)
    tried = _tried.get(package) or "another version"
    version = str(version) if version else f"without a version, from {getattr(module, '__file__', 'an unknown place')}"
    return AdapterError(
        f"milepost cannot use the installed version of {package}, so nothing is saved or restored while it is imported",
        key=_missing_name(cause),
        expected=f"{package} {tried}, which this version of milepost was tried with",
        found=f"{package} {version}: {type(cause).__name__}: {cause}",
        remedy=f"install {package} {tried}, or a version of milepost that was tried with {package} {version}",
        framework=package,
        version=version,
        tried=tried,
    )


def _missing_name(cause: Exception) -> str | None:
    """The full name that is gone, as far as the exception tells."""
    if isinstance(cause, ImportError):
        name = re.match(r"cannot import name '(\w+)'", str(cause))  # an attribute has it from Python 3.12 on only
        return f"{cause.name}.{name[1]}" if cause.name and name else cause.name
    if isinstance(cause, AttributeError) and cause.name:
        owner = getattr(cause.obj, "__name__", None)
        return f"{owner}.{cause.name}" if isinstance(owner, str) else cause.name
    return None
