"""Short names of tensors: the path of an object, such as ``net/l1/kernel``, for the key of its only tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.errors import KeyNotFoundError, UnsupportedError
from milepost.graph.keys import ATTRIBUTES, SLOT, VARIABLE_VALUE, escape, short_name, tensor_key, unescape

_MOST_LISTED: Final = 5
_SLASH: Final = escape("/")


def key_of(bundle: BundleReader, name: str) -> str:
    """The full key for a key or a short name. The name itself if there is no such tensor. Names of edges may be escaped, as in keys, or not.

    Raises:
        KeyNotFoundError: Several tensors have this short name.
        UnsupportedError: The name is not text.
    """
    check_key(name)
    if name in bundle:
        return name
    escaped = "/".join(map(escape, name.split("/")))
    for path in dict.fromkeys((name, escaped)):
        if (key := tensor_key(path, VARIABLE_VALUE)) in bundle:
            return key
        keys = sorted(key for key in bundle.keys() if key.startswith(path + ATTRIBUTES))  # noqa: SIM118 - a reader is not a mapping
        if keys:
            return _only(keys, name, bundle)
    # the name of an edge may have a slash in it
    keys = sorted(key for key in bundle.keys() if _SLASH in key and name in (name_of(key), _path_of(key)))  # noqa: SIM118 - a reader is not a mapping
    return _only(keys, name, bundle) if keys else name


def _only(keys: Sequence[str], name: str, bundle: BundleReader) -> str:
    """The only one of some keys.

    Raises:
        KeyNotFoundError: There are several.
    """
    if len(keys) > 1:
        listed = ", ".join(map(repr, keys[:_MOST_LISTED]))
        more = f" and {len(keys) - _MOST_LISTED} more" if len(keys) > _MOST_LISTED else ""
        raise KeyNotFoundError(
            f"this short name stands for {len(keys)} tensors",
            key=name,
            file=bundle.prefix,
            expected="the full key of one of them",
            found=listed + more,
            remedy=f"pass a full key, such as {keys[0]!r}",
        )
    return keys[0]


def check_key(key: Any) -> None:
    """Raises an `UnsupportedError` unless a key is text."""
    if not isinstance(key, (str, bytes)):
        raise UnsupportedError(
            "a key must be text",
            found=f"{key!r:.80} of type {type(key).__name__}",
            remedy="pass a key that list_variables() or keys() gives",
        )


def name_of(key: str) -> str:
    """The name of a tensor as the program and other libraries have it: the path of its object, and the name of the value if that is not the
    only one.

    Example:
        >>> name_of("net/a.Sb/.ATTRIBUTES/VARIABLE_VALUE"), name_of("net/.ATTRIBUTES/state")
        ('net/a/b', 'net/state')
    """
    if ATTRIBUTES not in key:
        return key  # not a path of objects, whose names are escaped
    path, marker, local = short_name(key).partition(ATTRIBUTES)
    plain = "/".join(map(unescape, path.split("/"))) if SLOT not in path else path
    return f"{plain}/{unescape(local)}" if marker else plain


def _path_of(key: str) -> str:
    """The path of the object that has a tensor, with names as the program has them."""
    return "/".join(map(unescape, key.partition(ATTRIBUTES)[0].split("/")))
