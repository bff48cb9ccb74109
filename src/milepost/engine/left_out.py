"""The record of what a save has left out on purpose, which is in the metadata of its checkpoint.

::

    left_out := {"only": [text, ...] | null, "ignore": [text, ...], "base": text, "values": {key: type and shape, ...}, "digests": {key: digest, ...}}

``values`` has the key that each value would have, with its element type and shape as reports show them. ``digests`` has those that belong to
``base``, which are not saved because the program loads them by itself. A digest is that of `milepost.bundle.digest.digest_of`; it is empty if steps of
``convert`` have laid out the value otherwise, since the digest of the result is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from milepost.errors import CorruptCheckpointError
from milepost.graph.description import counted
from milepost.graph.keys import ATTRIBUTES, SLOT
from milepost.series.metadata import with_left_out


@dataclass(frozen=True)
class LeftOut:
    """What a save has left out.

    Attributes:
        only: The names that it was to save alone; None for all.
        ignore: The names that it was to leave out.
        base: What has the other values, in the words of the program; empty if nothing has them.
        values: Element type and shape of each value that is left out, by the key that it would have.
        digests: The digest of each of them that belongs to ``base``, by key; empty if it is not known.

    Example:
        >>> record = LeftOut(ignore=["head"], values={"head/.ATTRIBUTES/VARIABLE_VALUE": "float32[3]"})
        >>> LeftOut.parsed(record.plain()) == record, record.reason("head/.ATTRIBUTES/VARIABLE_VALUE")
        (True, "left out when it was saved, by ignore='head'")
    """

    only: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    base: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return {
            "only": None if self.only is None else list(self.only),
            "ignore": list(self.ignore),
            "base": self.base,
            "values": dict(self.values),
            "digests": dict(self.digests),
        }

    @classmethod
    def parsed(cls, data: Any) -> LeftOut:
        """The inverse of `plain`.

        Raises:
            CorruptCheckpointError: The data is not of this form.
        """
        if data is None:
            return NOTHING
        try:
            record = cls(**data)
            texts = [record.base, *(record.only or ()), *record.ignore]
            texts += [text for each in (record.values, record.digests) for pair in each.items() for text in pair]
            is_whole = all(isinstance(text, str) for text in texts)
        except (TypeError, AttributeError):
            is_whole = False
        if not is_whole:
            raise CorruptCheckpointError(
                "the record of what the save has left out is malformed",
                found=f"{data!r:.80}",
                remedy="restore another checkpoint",
            )
        return record

    def beside(self, metadata: bytes | None) -> bytes | None:
        """What `milepost.series.metadata.encode` has returned, with this record."""
        return metadata if self is NOTHING else with_left_out(metadata, self.plain())

    @property
    def how(self) -> str:
        """The options of the save that have left values out, as the program writes them."""
        options = [] if self.only is None else [f"only={_names(self.only)}"]
        options += [f"ignore={_names(self.ignore)}"] if self.ignore else []
        return " and ".join(options)

    def reason(self, key: str) -> str:
        """Why a value is left out."""
        if key in self.digests:
            unknown = (
                "" if self.digests[key] else ", and not compared with it, because convert has laid it out otherwise"
            )
            return f"left out when it was saved, because the base {self.base!r} has it{unknown}"
        return (
            f"left out when it was saved, {f'by {self.how}' if self.how else 'with its variable, which the base has'}"
        )

    def summary(self) -> list[str]:
        """What was left out, in a line for each reason.

        Example:
            >>> LeftOut(ignore=["head"], values={"head/.ATTRIBUTES/VARIABLE_VALUE": "float32[3]"}).summary()
            ["1 value was left out when it was saved, by ignore='head'"]
        """
        counts = Counter(self.reason(key) for key in self.values)
        return [
            f"{counted(count, 'value')} {'was' if count == 1 else 'were'} {reason}" for reason, count in counts.items()
        ]

    def renamed(self, live_path: Callable[[str], str | None]) -> LeftOut:
        """The record with the names of another program, in which values that have none are left out."""
        keys = {}
        for key in self.values:
            path, marker, local = key.partition(ATTRIBUTES)
            new = live_path(path)
            if new is not None:
                keys[key] = new + marker + local
        values, digests = (
            {keys[key]: text for key, text in texts.items() if key in keys} for texts in (self.values, self.digests)
        )
        return replace(self, values=values, digests=digests)

    def has_object(self, path: str) -> bool:
        """Whether the values of the object at a path are left out, or those of the variable of a slot variable."""
        return path in self.paths or path.partition(SLOT)[0] in self.paths

    @cached_property
    def paths(self) -> frozenset[str]:
        """The paths of the objects and slot variables whose values are left out."""
        return frozenset(key.partition(ATTRIBUTES)[0] for key in self.values)


def _names(names: Sequence[str]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(list(names))


NOTHING: Final = LeftOut()
"""The record of a save that has left out nothing."""
