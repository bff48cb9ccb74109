"""A stand-in for state that cannot be saved. A save that meets it reports the state."""

from __future__ import annotations

from milepost.graph.adapter import Adapter, register
from milepost.graph.omissions import Omission


class Unsaved:
    """Stands for state that is not saved.

    Attributes:
        omission: Why it is not saved.
    """

    __slots__ = ("omission",)

    def __init__(self, omission: Omission) -> None:
        self.omission = omission


class UnsavedAdapter(Adapter):
    """`Unsaved`."""

    def handles(self, kind: type) -> bool:
        return kind is Unsaved

    def tracks(self, obj: Unsaved) -> bool:
        return False

    def omission(self, obj: Unsaved) -> Omission | None:
        return obj.omission


register(UnsavedAdapter())
