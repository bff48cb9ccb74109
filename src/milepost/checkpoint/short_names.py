"""Short names of tensors: the path of an object, such as ``net/l1/kernel``, for the key of its only tensor."""

from __future__ import annotations

from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.errors import KeyNotFoundError, UnsupportedError
from milepost.graph.keys import ATTRIBUTES, VARIABLE_VALUE, escape, tensor_key

_MOST_LISTED: Final = 5
_END: Final = ATTRIBUTES + VARIABLE_VALUE


def key_of(bundle: BundleReader, name: str) -> str:
    """The full key for a key or a short name. The name itself if there is no such tensor.

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
        found = sorted(key for key in bundle.keys() if key.startswith(path + ATTRIBUTES))  # noqa: SIM118 - a reader is not a mapping
        if len(found) > 1:
            listed = ", ".join(map(repr, found[:_MOST_LISTED]))
            more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
            raise KeyNotFoundError(
                f"this short name stands for {len(found)} tensors",
                key=name,
                file=bundle.prefix,
                expected="the full key of one of them",
                found=listed + more,
                remedy=f"pass a full key, such as {found[0]!r}",
            )
        if found:
            return found[0]
    return name


def check_key(key: Any) -> None:
    """Raises an `UnsupportedError` unless a key is text."""
    if not isinstance(key, (str, bytes)):
        raise UnsupportedError(
            "a key must be text",
            found=f"{key!r:.80} of type {type(key).__name__}",
            remedy="pass a key that list_variables() or keys() gives",
        )


def short_name(key: str) -> str:
    """The name of a tensor as users write it.

    Example:
        >>> short_name("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"), short_name("global_step")
        ('net/l1/kernel', 'global_step')
    """
    return key.removesuffix(_END)
