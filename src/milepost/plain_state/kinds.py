"""Kinds of values that frameworks add to plain state, such as their tensors and element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from milepost.graph.frameworks import registry


class Kind(NamedTuple):
    """One kind of values of a framework; see `register_kind`."""

    handles: Callable[[Any], bool]
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]
    mutable: bool


class OfKind:
    """Stands for a value of a registered kind in a state that is encoded. The library of the kind need not be imported.

    Args:
        kind: The name of the kind.
        plain: What ``to_plain`` of the kind returns for the value.
    """

    __slots__ = ("kind", "plain")

    def __init__(self, kind: str, plain: Any) -> None:
        self.kind = kind
        self.plain = plain


kinds: Final[dict[str, Kind]] = registry({})
"""The kinds by their name in files. The last that was registered is asked first."""
overlaps: Final[dict[str, Callable[[Sequence[Any]], Mapping[int, Any]]]] = registry({})
"""Functions that find values which share the memory of others.

Each gets all mutable values of registered kinds in a state. It returns, by identity, the values to write instead of those that share
memory. The returned values are of a registered kind too, and their method ``owners()`` returns the values whose memory they share."""


def register_kind(
    name: str,
    handles: Callable[[Any], bool],
    to_plain: Callable[[Any], Any],
    from_plain: Callable[[Any], Any],
    *,
    mutable: bool = False,
) -> None:
    """Registers a kind of values of a framework, so that plain state can hold them.

    Args:
        name: The name of the kind in files.
        handles: Returns whether a value is of this kind. It is not called for values that plain state holds anyway.
        to_plain: Converts a value to an array, or to other plain state.
        from_plain: Converts it back. It may raise any exception.
        mutable: Whether values can change in place, so that a value in several places is one object after a restore.

    Example:
        >>> from milepost.plain_state.decoding import unpack
        >>> from milepost.plain_state.encoding import pack
        >>> register_kind(
        ...     "slice",
        ...     handles=lambda value: type(value) is slice,
        ...     to_plain=lambda value: (value.start, value.stop, value.step),
        ...     from_plain=lambda members: slice(*members),
        ... )
        >>> unpack(pack({"rows": slice(2, None)}))
        {'rows': slice(2, None, None)}
    """
    kinds[name] = Kind(handles, to_plain, from_plain, mutable)
