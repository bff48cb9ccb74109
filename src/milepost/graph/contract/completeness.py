"""What a checkpoint of an object would leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.graph.omissions import Accounted, Omission


class Completeness:
    """What tells a save that it would lose something. The save then fails, with the path and a remedy.

    A restore calls the same methods, so that live state that cannot be saved is *missing* in its report.
    """

    searched: bool = False
    """Set where no framework says what of an object is saved, so that a save looks for what it holds and does not track."""

    def omission(self, obj: Any) -> Omission | None:
        """Why an object of a handled type does not take part (`tracks`), if its owner should know."""
        return None

    def unfinished(self, obj: Any) -> Omission | None:
        """Why a save at this moment would lose something, although ``obj`` itself is saved. It must change nothing.

        It is not called for leaves. An adapter overrides it if objects have state between two steps that their framework does not
        save, such as gradients that are being accumulated. What it needs to know is noted from `DeferredChildren.on_attached` on.
        """
        return None

    def account(self, obj: Any) -> Iterable[Accounted]:
        """What the framework's own way of saving would hold of ``obj`` and all that it holds, as ``state_dict()`` does.

        A save compares it with what it is about to write, and fails if that lacks a part. It is asked for objects that
        are in no account of an object above them.
        """
        return ()
