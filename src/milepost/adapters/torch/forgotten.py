"""State that is not saved, in the place where it would be, with the reason."""

from __future__ import annotations

from milepost.graph.adapter import Adapter, register
from milepost.graph.omissions import Omission


class Forgotten:
    """Stands for state that is not saved.

    Attributes:
        omission: Why not.
    """

    __slots__ = ("omission",)

    def __init__(self, omission: Omission) -> None:
        self.omission = omission


class ForgottenAdapter(Adapter):
    """`Forgotten`."""

    def handles(self, kind: type) -> bool:
        return kind is Forgotten

    def tracks(self, obj: Forgotten) -> bool:
        return False

    def omission(self, obj: Forgotten) -> Omission | None:
        return obj.omission


register(ForgottenAdapter())
