"""Values of frameworks that may be in plain state, such as their tensors and element types."""

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


kinds: Final[dict[str, Kind]] = registry({})
"""By the name in files; one that was registered later is asked first."""
overlaps: Final[dict[str, Callable[[Sequence[Any]], Mapping[int, Any]]]] = registry({})
"""Functions that find values which lie in the memory of others: given all mutable values of registered kinds in a state,
each returns, by identity, what is to be written in the place of such a one: a value of a registered kind, whose ``owners()``
are those others."""


def register_kind(
    name: str,
    handles: Callable[[Any], bool],
    to_plain: Callable[[Any], Any],
    from_plain: Callable[[Any], Any],
    *,
    mutable: bool = False,
) -> None:
    """Makes values of a framework part of plain state: its tensors, or small things such as its element types.

    Args:
        name: What files call it.
        handles: Whether a value, of no type that is known here, is one of these.
        to_plain: Makes an array of it, or other plain state.
        from_plain: Makes it from that; may raise whatever it likes if that cannot be.
        mutable: Whether it can be changed in place, so that one that stands in several places is to stay one.

    Example:
        >>> from milepost.plain_state.encoding import pack, unpack
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
