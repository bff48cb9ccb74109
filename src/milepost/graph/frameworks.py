"""Imports the adapters of the frameworks that the user has imported: each as a whole, or not at all.

An adapter uses private names of its framework, and another version of the framework may lack one. Then no part of the
adapter stays imported, and every save and restore raises the same `milepost.AdapterError`. So no checkpoint is saved without
the objects of that framework.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final, NamedTuple, TypeVar

from milepost.errors import AdapterError
from milepost.forks import ForkableLock

_T = TypeVar("_T")
Snapshot = Callable[[], Callable[[], None]]
"""A function that copies a registry. It returns a function that restores the copy."""

_OWN: Final = "milepost."
_UNDONE: Final = ("milepost.adapters.", "milepost.callbacks.")
"""The packages of milepost's modules that use private names of frameworks."""


class _Awaited(NamedTuple):
    """An adapter that is not imported yet."""

    module: str
    tried: str


_awaited: dict[str, _Awaited] = {}
_known: dict[str, _Awaited] = {}
"""The adapters of each package, whether they are imported or not."""
_registries: Final[list[Snapshot]] = []
_lock: Final = ForkableLock()  # the thread that imports an adapter may itself ask for adapters
_importing: Final[set[str]] = set()


def register_framework(framework: str, module: str, tried: str = "") -> None:
    """Names the module that registers the adapter of a framework. It is imported when the user has imported the framework.

    Args:
        framework: Name of the framework's package.
        module: Full name of the module that calls `milepost.graph.adapter.register` when imported.
        tried: The versions of the framework with which the adapter was tested.
    """
    _awaited[framework] = _known[framework.partition(".")[0]] = _Awaited(module, tried)


def register_registry(snapshot: Snapshot) -> None:
    """Registers a registry to which modules of adapters add entries, so that a failed import leaves it unchanged."""
    _registries.append(snapshot)


def registry(kinds: dict[str, _T]) -> dict[str, _T]:
    """Registers a dict, so that a failed import leaves it unchanged. Returns the dict."""

    def snapshot() -> Callable[[], None]:
        before = dict(kinds)

        def put_back() -> None:
            kinds.clear()
            kinds.update(before)

        return put_back

    register_registry(snapshot)
    return kinds


def imported(framework: str) -> ModuleType | None:
    """The module of the framework, if the user has imported it.

    A module that another thread is still importing does not count. Neither does an empty one: the mark of a blocked import
    (``sys.modules[name] = None``), a stub without a file, or a folder of the same name.
    """
    module = sys.modules.get(framework)
    if module is None or not isinstance(getattr(module, "__file__", None), str):
        return None
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return module


def import_adapters() -> None:
    """Imports the adapters of all frameworks that the user has imported so far.

    Raises:
        AdapterError: An adapter cannot be imported. The next call raises the error again.
    """
    if not any(name in sys.modules for name in _awaited):
        return
    with _lock:  # wait for another thread that may be importing them
        for framework, awaited in list(_awaited.items()):
            if framework not in _importing and imported(framework) is not None:
                _importing.add(framework)
                try:
                    with whole_import(framework, awaited.module):
                        importlib.import_module(awaited.module)
                finally:
                    _importing.discard(framework)
                _awaited.pop(framework, None)


@contextmanager
def whole_import(framework: str, adapter: str = "") -> Iterator[None]:
    """Undoes the changes to modules of adapters and to registries if an import in the block fails.

    The modules are forgotten with what they have registered, so that the next import registers it again.

    Args:
        framework: The framework whose private names are used.
        adapter: The module of the adapter, if it is not one of milepost's. All modules of its package count.

    Raises:
        AdapterError: An import raised an exception, which is the cause.
    """
    with _lock:
        modules = set(sys.modules)
        put_back = [snapshot() for snapshot in _registries]
        try:
            yield
        except BaseException as error:
            own = _UNDONE if adapter.startswith(_OWN) else (*_UNDONE, *_package_of(adapter, framework))
            _forget_modules([name for name in sys.modules if f"{name}.".startswith(own) and name not in modules])
            for restore in put_back:
                restore()
            if isinstance(error, AdapterError) or not isinstance(error, Exception):
                raise
            raise _adapter_error(framework, error) from error


def _package_of(adapter: str, framework: str) -> tuple[str, ...]:
    """The package of an adapter's modules, with a dot at its end. In a package of the framework, it is the module itself."""
    package = adapter.partition(".")[0]
    if not package:
        return ()
    return (f"{adapter if package == framework.partition('.')[0] else package}.",)


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
    adapter, tried = _known.get(package) or _Awaited(_OWN, "")
    tried = tried or "another version"
    version = str(version) if version else f"without a version, from {getattr(module, '__file__', 'an unknown place')}"
    who = "milepost" if adapter.startswith(_OWN) else adapter
    return AdapterError(
        f"{who} cannot use the installed version of {package}, so milepost saves and restores nothing while it is imported",
        key=_missing_name(cause),
        expected=f"{package} {tried}, with which this version of {who} was tested",
        found=f"{package} {version}: {type(cause).__name__}: {cause}",
        remedy=f"install {package} {tried}, or a version of {who} that was tested with {package} {version}",
        framework=package,
        version=version,
        tried=tried,
    )


def _missing_name(cause: Exception) -> str | None:
    """The full name that is missing, if the exception tells it."""
    if isinstance(cause, ImportError):
        name = re.match(r"cannot import name '(\w+)'", str(cause))  # an attribute has it from Python 3.12 on only
        return f"{cause.name}.{name[1]}" if cause.name and name else cause.name
    if isinstance(cause, AttributeError) and cause.name:
        owner = getattr(cause.obj, "__name__", None)
        return f"{owner}.{cause.name}" if isinstance(owner, str) else cause.name
    return None
