"""Digests of live values, such as those that a save leaves out because its base has them.

A digest of these is computed once, and again if the adapter of the object says that its values may have changed, or cannot say (`Adapter.version`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from milepost.bundle import for_each
from milepost.bundle.digest import digest_of
from milepost.errors import MilepostError, UnsupportedError, UntrackableError
from milepost.facts import Fact
from milepost.graph.adapter import Adapter, Array, Value
from milepost.tensor import DType, PiecewiseArray, ShardedArray

_known: Final[Fact[dict[str, tuple[Any, str]]]] = Fact()
"""The digest of each value of an object by its name, after the version of the object that has it."""


class LiveValue(NamedTuple):
    """A live value of which a digest is wanted.

    Attributes:
        key: The key that it has, or would have.
        value: The value.
        obj: Its object; None if no digest is remembered.
        adapter: The adapter of the object.
    """

    key: str
    value: Value
    obj: Any = None
    adapter: Adapter | None = None

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.dtype

    @property
    def version(self) -> Any:
        """What tells whether the value has changed; None if nothing does."""
        adapter = self.adapter
        return adapter.version(self.obj) if adapter is not None and "version" in adapter.overrides else None

    @property
    def former_digest(self) -> str | None:
        """The digest that was computed last."""
        known = (_known.get(self.obj) or {}).get(self.value.name)
        return None if known is None else known[1]

    def known_digest(self, version: Any) -> str | None:
        """The digest, if it was computed for this version of the object."""
        known = (_known.get(self.obj) or {}).get(self.value.name)
        return known[1] if known is not None and version is not None and known[0] == version else None

    def remember(self, version: Any, digest: str) -> None:
        """Remembers the digest for this version of the object, as long as the object exists."""
        with suppress(TypeError):  # nothing is remembered of an object that allows no weak reference
            _known[self.obj] = {**(_known.get(self.obj) or {}), self.value.name: (version, digest)}

    def read(self) -> Array | PiecewiseArray | ShardedArray:
        """The value, or what this process holds of it.

        Raises:
            MilepostError: It cannot be read, such as one on the meta device.
        """
        try:
            return self.value.read()
        except MilepostError as error:
            raise error.with_context(key=self.key) from error.__cause__

    def whole(self) -> Array | PiecewiseArray:
        """The value, which this process holds.

        Raises:
            UnsupportedError: Other processes hold parts of it.
        """
        array = self.read()
        if isinstance(array, ShardedArray):
            whole = array.whole()
            if whole is None:
                raise UnsupportedError(
                    "other processes hold parts of this tensor, and this process alone computes its digest",
                    key=self.key,
                    found=array.layout,
                    remedy="let all processes save and restore together, without CheckpointOptions(process_local=True)",
                )
            return whole
        return array


def digests_of(values: Sequence[LiveValue]) -> dict[str, str]:
    """The digest of each value, by its key. Values that may have changed are read, on a few threads.

    Raises:
        UnsupportedError: Other processes hold parts of a value, or it has no elements, as on the meta device.
    """
    versions = [each.version for each in values]
    digests = {each.key: each.known_digest(version) for each, version in zip(values, versions, strict=True)}

    def compute(each: LiveValue) -> None:
        digests[each.key] = digest_of(each.whole(), each.dtype)

    for_each(compute, [each for each in values if digests[each.key] is None])
    return {key: digest for key, digest in digests.items() if digest is not None}


def remembered(values: Sequence[LiveValue], digests: Mapping[str, str]) -> None:
    """Remembers the digests of values, so that they need not be computed again."""
    for each in values:
        each.remember(each.version, digests[each.key])


def refuse_changed(values: Sequence[LiveValue], digests: Mapping[str, str]) -> None:
    """Raises an error if a value has changed since its digest was computed first, so that it is not frozen.

    Raises:
        UntrackableError: A value has changed.
    """
    changed = [each.key for each in values if each.former_digest not in (None, digests[each.key])]
    if changed:
        raise UntrackableError(
            f"{len(changed)} of the values that the base is to have {'has' if len(changed) == 1 else 'have'} changed since an earlier "
            "save or restore, so the base does not have them; nothing was saved",
            key=changed[0],
            expected="values that do not change",
            found=f"other digests than before, of {', '.join(_some(changed))}",
            remedy="name the values that do not change in CheckpointOptions(base=..., frozen=[...]); or require a gradient for those that change",
        )


_MOST_LISTED: Final = 5


def _some(keys: Sequence[str]) -> Iterator[str]:
    yield from keys[:_MOST_LISTED]
    if len(keys) > _MOST_LISTED:
        yield f"and {len(keys) - _MOST_LISTED} more"
