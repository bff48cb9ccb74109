"""Imports the adapters of the frameworks that the user has imported: each as a whole, or not at all.

An adapter uses private names of its framework, and another version of the framework may lack one, or may be older than the
oldest that milepost supports. Then no part of the adapter stays imported: the framework is *refused*. Every save and restore
that meets an object of a refused framework raises the same `milepost.AdapterError`, so no checkpoint is saved without such an object.
Objects of other libraries are saved and restored as usual.
"""

from __future__ import annotations

import copy
import importlib
import re
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar

from milepost.errors import AdapterError
from milepost.forks import ForkableLock

_T = TypeVar("_T")
Snapshot = Callable[[], Callable[[], None]]
"""A function that copies a registry. It returns a function that restores the copy."""

_OWN: Final = "milepost."
_UNDONE: Final = ("milepost.adapters.", "milepost.callbacks.")
"""The packages of milepost's modules that use private names of frameworks."""


@dataclass(slots=True)
class _Framework:
    """What `register_framework` was given, and what has become of it.

    Attributes:
        is_awaited: Whether the adapter is still to be imported.
        is_importing: Whether it is being imported now.
        error: Why milepost cannot use the framework, or None.
    """

    module: str
    tried: str
    oldest: str
    packages: tuple[str, ...]
    registered: Callable[[], Container[type]]
    is_awaited: bool
    is_importing: bool = False
    error: AdapterError | None = None


_frameworks: Final[dict[str, _Framework]] = {}
_registries: Final[list[Snapshot]] = []
_lock: Final = ForkableLock()  # the thread that imports an adapter may itself ask for adapters


def register_framework(
    framework: str,
    module: str,
    tried: str = "",
    oldest: str = "",
    packages: Sequence[str] = (),
    registered: Callable[[], Container[type]] = tuple,
) -> None:
    """Names the module that registers the adapter of a framework. It is imported when the user has imported the framework.

    If that module cannot be imported, or the framework is too old, saves and restores that meet an object of the framework raise
    `AdapterError`. An object is of the framework if its class, or a base class, is defined in it, or if the program has registered the class with
    the framework, and no other adapter handles it.

    Args:
        framework: Name of the framework's package, or of a module in it.
        module: Full name of the module that calls `milepost.graph.adapter.register` when imported. Empty for a framework whose
            objects need no adapter of their own.
        tried: The versions of the framework with which the adapter was tested.
        oldest: The oldest version that works, such as ``"0.6"``. If several major versions work, the oldest of each: ``"2.15 or 3.10"``.
        packages: Other packages whose objects are of no use without the adapter.
        registered: Returns the classes of programs that are registered with the framework, as those of pytrees are with JAX.

    Example:
        >>> from milepost.adapters import register_framework
        >>> register_framework("some_framework", "some_library.milepost_adapters", tried="1.4", oldest="1.2")
    """
    _frameworks[framework] = _Framework(
        module, tried, oldest, (framework, *packages), registered, is_awaited=bool(module)
    )


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
    """Imports the adapters of all frameworks that the user has imported so far. Those that milepost cannot use are refused."""
    if not any(each.is_awaited and name in sys.modules for name, each in tuple(_frameworks.items())):
        return
    with _lock:  # wait for another thread that may be importing them
        for name, framework in tuple(_frameworks.items()):
            if framework.is_awaited and not framework.is_importing and imported(name) is not None:
                framework.is_importing = True
                try:
                    with whole_import(name):
                        importlib.import_module(framework.module)
                except AdapterError as error:
                    framework.error = error
                finally:
                    framework.is_importing = False
                framework.is_awaited = False


def _refused() -> dict[str, AdapterError]:
    """The error of each framework that milepost cannot use."""
    return {name: each.error for name, each in tuple(_frameworks.items()) if each.error is not None}


def usable(framework: str) -> ModuleType | None:
    """The module of the framework, if the user has imported it and milepost can use it. Its adapter is imported then."""
    import_adapters()
    return None if framework in _refused() else imported(framework)


def require(framework: str) -> None:
    """Imports the adapter of a framework, for modules that use its parts. One without an adapter must not be too old.

    Raises:
        AdapterError: milepost cannot use the installed version.
    """
    import_adapters()
    if framework in _frameworks and not _frameworks[framework].module:
        _check_age(framework)
    error = _refused().get(framework)
    if error is not None:
        raise copy.copy(error) from error.__cause__  # a new one, because callers add facts to it


def refuse_type(kind: type) -> None:
    """Raises the error of a framework that milepost cannot use, if a class belongs to it.

    Raises:
        AdapterError: The class, or a base class, is defined in such a framework.
    """
    for framework in _refused():
        packages = tuple(f"{package}." for package in _frameworks[framework].packages)
        if any(f"{base.__module__}.".startswith(packages) for base in kind.__mro__):
            require(framework)


def refuse_registered(kind: type) -> None:
    """Raises the error of a framework that milepost cannot use, if a class that no adapter handles is registered with it.

    Raises:
        AdapterError: It is.
    """
    for framework in _refused():
        if kind in _frameworks[framework].registered():
            require(framework)


@contextmanager
def whole_import(framework: str) -> Iterator[None]:
    """Undoes the changes to modules of adapters and to registries if an import in the block fails.

    The modules are forgotten with what they have registered, so that the next import registers it again. These are modules of
    milepost, and of the package of the framework's adapter.

    Args:
        framework: The framework whose private names are used.

    Raises:
        AdapterError: The framework is too old, or an import raised an exception, which is the cause.
    """
    with _lock:
        modules = set(sys.modules)
        put_back = [snapshot() for snapshot in _registries]
        try:
            _check_age(framework)
            yield
            for other in _refused():
                if other != framework and _frameworks[other].module in sys.modules:
                    require(other)  # the block has imported its adapter, by itself
        except BaseException as error:
            _forget_modules(
                [name for name in sys.modules if f"{name}.".startswith(_undone(framework)) and name not in modules]
            )
            for restore in put_back:
                restore()
            if isinstance(error, AdapterError) or not isinstance(error, Exception):
                raise
            raise _import_error(framework, error) from error


def _undone(framework: str) -> tuple[str, ...]:
    """The packages whose modules are forgotten when the import of an adapter fails, each with a dot at its end."""
    return (*_UNDONE, *(_package_of(each) for each in (framework, *_refused()) if _who(each) != "milepost"))


def _package_of(framework: str) -> str:
    """The package of the modules of its adapter. In a package of the framework, it is the module itself."""
    adapter = _frameworks[framework].module
    package = adapter.partition(".")[0]
    return f"{adapter if package == framework.partition('.')[0] else package}."


def _forget_modules(names: list[str]) -> None:
    for name in names:
        module = sys.modules.pop(name)
        package, _, own_name = name.rpartition(".")
        holder = vars(sys.modules[package]) if package in sys.modules else {}
        if holder.get(own_name) is module:
            del holder[own_name]


def _check_age(framework: str) -> None:
    """Raises an error if the framework is older than the oldest version that works."""
    package, version = _installed(framework)
    oldest = _frameworks[framework].oldest
    numbers = _numbers(version)
    if not oldest or not numbers:
        return
    limits = oldest.split(" or ")
    limit = next((each for each in limits if _numbers(each)[0] == numbers[0]), limits[-1])
    if numbers < _numbers(limit):
        raise _adapter_error(
            framework,
            expected=f"{package} {limit} or newer",
            found=f"{package} {version}",
            remedy=f"install {package} {limit} or newer; this version of milepost was tested with {_frameworks[framework].tried}",
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with.

    Example:
        >>> _numbers("2.13.0+cpu"), _numbers("1.4rc1"), _numbers("unknown")
        ((2, 13, 0), (1, 4), ())
    """
    return tuple(map(int, re.findall(r"\d+", (re.match(r"[\d.]*", version) or [""])[0])))


def _installed(framework: str) -> tuple[str, str]:
    """The package of a framework and its version, or where it is from if it has none."""
    package = framework.partition(".")[0]
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)
    return package, str(
        version
    ) if version else f"without a version, from {getattr(module, '__file__', 'an unknown place')}"


def _import_error(framework: str, cause: Exception) -> AdapterError:
    package, version = _installed(framework)
    tried = _frameworks[framework].tried or "another version"
    who = _who(framework)
    return _adapter_error(
        framework,
        key=_missing_name(cause),
        expected=f"{package} {tried}, with which this version of {who} was tested",
        found=f"{package} {version}: {type(cause).__name__}: {cause}",
        remedy=f"install {package} {tried}, or a version of {who} that was tested with {package} {version}",
    )


def _who(framework: str) -> str:
    adapter = _frameworks[framework].module
    return adapter if adapter and not adapter.startswith(_OWN) else "milepost"


def _adapter_error(framework: str, **facts: Any) -> AdapterError:
    package, version = _installed(framework)
    consequence = f", so it saves and restores no objects of {framework}" if _frameworks[framework].module else ""
    return AdapterError(
        f"{_who(framework)} cannot use the installed version of {package}{consequence}",
        framework=package,
        version=version,
        tried=_frameworks[framework].tried or "another version",
        **facts,
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
